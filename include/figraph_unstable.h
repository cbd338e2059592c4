/* figraph_unstable.h: what tests, benchmarks and doctors need of libfigraph, and nobody else.
 *
 * Nothing here is promised: any of it may change or go in any version, without a word. What is kept
 * stands in figraph.h. */
#ifndef FIGRAPH_UNSTABLE_H
#define FIGRAPH_UNSTABLE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Faults and orders on request: fig_engine_options points here ---------------------------- */
/* Ways that a collective's message may take to the other ranks. */
enum { FIG_ROUTE_ONE_SHOT = 1, FIG_ROUTE_TWO_SHOT = 2, FIG_ROUTE_NCCL = 4 };

typedef struct fig_test_options {
    uint32_t size;
    int32_t plain_kernels; /* cuda: 1: those for any chip since 8.0, even where better ones fit */
    int64_t fail_at_call;  /* the device call of this number, from 1, fails; 0: none does */
    uint64_t shuffle;      /* host: seeds an order of nodes and blocks, any that a GPU might take;
                              0: as recorded */
    int32_t plain_edges;   /* cuda: 1: no kernel is put on the device before those it comes after
                               have ended */
    uint32_t routes; /* cuda: those that collectives may take, the same on all ranks; 0: all */
} fig_test_options;

/* ---- Checked and not used -------------------------------------------------------------------- */
/* What fig_program_create checks, for a program that reads specs and records none. */
FIG_API fig_status fig_spec_check(const fig_spec *spec);

/* ---- Which kernels serve --------------------------------------------------------------------- */
/* Which family of kernels serves a launch, and what those asked before it would need. */
typedef struct fig_launch_info {
    uint32_t size;
    int32_t node, node_count;       /* from 0, that it serves; the fetch serves none */
    const char *operation, *family; /* "attention", "scalar"; NULL: a call has no family, nor has
                                       a launch that is left out: the one behind it does all */
    int32_t refusal_count;
    const char *refused[5], *needs[5]; /* [refusal_count] "bulk", "compute capability 9.0" */
} fig_launch_info;
/* launch: from 0, as fig_graphs_print numbers them. FIG_INVALID: no such launch or bucket.
 * FIG_ORDER: the bucket is not prepared with what is bound. The words outlast the engine. */
FIG_API fig_status fig_engine_launch_info(fig_engine *engine, int32_t bucket, int32_t launch,
                                          fig_launch_info *info);

/* ---- What graphs hold ------------------------------------------------------------------------ */
/* For people, and for programs that keep pace with it. */
typedef uint32_t fig_print_format;
/* HTML: one page that needs nothing else; SVG and DOT: a drawing of a bucket's launches. */
enum { FIG_PRINT_TEXT = 0, FIG_PRINT_JSON, FIG_PRINT_HTML, FIG_PRINT_SVG, FIG_PRINT_DOT };
typedef void (*fig_write_callback)(void *user, const char *bytes, size_t count);
typedef struct fig_print_options {
    uint32_t size;
    fig_print_format format;
    int32_t bucket;      /* 0: the summary; else the launches of this bucket. HTML has both, and it
                            and drawings take for 0 the bucket of the step, or the last */
    int32_t columns;     /* that a line of text may take, 40 to 1000; 0: 80 */
    int32_t all_buckets; /* 1: the summary as text has a line for each bucket, not for each batch */
    const fig_step *step; /* of HTML: whose split is shown; NULL: none is */
} fig_print_options;
FIG_API fig_status fig_graphs_print(const fig_graphs *graphs, const fig_print_options *options,
                                    fig_write_callback write, void *user);

/* In what two graphs differ. What several layers or buckets share is told once. */
typedef struct fig_difference {
    uint32_t size;
    int32_t times;       /* so often in all */
    const char *subject; /* "tensor k_cache.N", N for the number of each layer */
    const char *where;   /* the first of them: "tensor k_cache.0" */
    const char *field;   /* "dtype"; NULL: one of the two has no such subject */
    const char *a, *b;   /* of the first; NULL: it has none. Of a subject "", not NULL, has it */
} fig_difference;
typedef void (*fig_differ_callback)(void *user, const fig_difference *difference);
/* Tells each difference in what inspection says of them: what one has and the other lacks, then
 * fields of what both have. Words last as long as the call. Buckets are alike by their limits and
 * by what a worker reads at once. */
FIG_API fig_status fig_graphs_diff(const fig_graphs *a, const fig_graphs *b,
                                   fig_differ_callback differ, void *user);

/* ---- How well graphs fit a machine ----------------------------------------------------------- */
/* ANEW: they run and are right, and a capture for that machine would make others, faster ones. */
typedef uint32_t fig_fit;
enum { FIG_FIT_FINE = 0, FIG_FIT_WARNING, FIG_FIT_ANEW, FIG_FIT_REFUSED };
typedef void (*fig_fit_callback)(void *user, fig_fit fit, const char *reason); /* a sentence */
/* traits: of a machine that need not be there. *fit is the worst of what there is a reason for;
 * find is told each reason, and may be NULL. */
FIG_API fig_status fig_graphs_fit(const fig_graphs *graphs, const fig_traits *traits, fig_fit *fit,
                                  fig_fit_callback find, void *user);

/* ---- What a step costs, part by part --------------------------------------------------------- */
typedef struct fig_measure_options {
    uint32_t size;
    int32_t steps;        /* 0: 10000 */
    const fig_step *step; /* all lengths are below kv_limit: from step to step rows are a token
                             longer, by up to 64 tokens, and the caller has given their pages */
} fig_measure_options;

/* Medians, in ns. */
typedef struct fig_measured {
    uint32_t size;
    int32_t bucket, launches; /* its number; its launches, fetch included */
    /* The host's parts of a step. */
    double check_ns, choose_ns, plan_ns, launch_ns;
    /* stage and launch together; the driver's launch of the same graph alone. In the first two the
     * host runs ahead of the device, in the others it waits for the device each time. */
    double step_ns, bare_launch_ns, idle_step_ns, idle_bare_launch_ns;
    /* On the device. Each step with a plan of its own: back to back, and one alone. Back to back
     * without a new plan: under the plan that is there, and without a fetch. */
    double fetched_ns, waited_ns, resident_ns, bare_ns;
    /* Between two graphs: the step's without a fetch, and such of as many launches that do nothing,
     * which is the driver's least. */
    double gap_ns, empty_gap_ns;
    /* The host's: from stage until it knows that the step has ended, and the same of a graph of as
     * many launches that do nothing. */
    double result_ns, empty_result_ns;
} fig_measured;

/* Runs a step over and over, and times what it consists of. The engine is idle before (FIG_ORDER)
 * and after; the caches get the step's tokens. */
FIG_API fig_status fig_engine_measure(fig_engine *engine, const fig_measure_options *options,
                                      fig_measured *measured);

/* ---- What nodes take, and reading memory ----------------------------------------------------- */
/* A kernel that has nothing to do with a step: it reads memory, as fast as the device can. */
typedef struct fig_spacer {
    uint32_t size;
    int32_t nodes;      /* of a step, that it stands before: its first so many; the others are left
                           out. 0: all */
    const void *memory; /* the device's */
    int64_t memory_bytes;
    int64_t bytes; /* that each one reads, a multiple of 16: those behind what the one before read,
                      and from the start again; 0: it does nothing */
    int32_t only;  /* 1: the nodes are left out, so that what spacers take by themselves is timed */
} fig_spacer;

typedef struct fig_timing_options {
    uint32_t size;
    int32_t samples;      /* 0: 15 */
    int32_t sample_us;    /* how long one lasts, or a single run; 0: 1000 */
    const fig_step *step; /* it is run once, then its nodes under that plan, without a fetch */
    const char *tensor;   /* and no step: its memory is read, as fast as the device can, from end
                             to end or as far as 64 GB */
    int32_t serial;       /* of a step: 1: each launch comes after the one recorded before it, as on
                             a stream, whatever depends on what */
    int32_t copies;       /* of a tensor: 1: its first half is copied to its second instead */
    int32_t replays;      /* of a sample; 0: as many as last sample_us. Where a step has collectives
                             all ranks replay it equally often, so it is given */
    const fig_spacer *spacer; /* of a step: its nodes one after another, before each a spacer, and
                                 neither begins before the other has ended */
} fig_timing_options;

/* Of one run, on the device, where runs come back to back; in ns. */
typedef struct fig_timed {
    uint32_t size;
    int32_t bucket; /* its number; 0: of a tensor */
    double median_ns, least_ns, most_ns;
} fig_timed;

/* The engine is idle before (FIG_ORDER) and after. */
FIG_API fig_status fig_engine_time(fig_engine *engine, const fig_timing_options *options,
                                   fig_timed *timed);
/* Where a tensor that is bound lies, be it memory of the engine's or the caller's. */
FIG_API fig_status fig_engine_address(fig_engine *engine, const char *name, void **address);

/* ---- The machine ----------------------------------------------------------------------------- */
typedef uint32_t fig_verdict;
enum { FIG_VERDICT_FINE = 0, FIG_VERDICT_ADVICE, FIG_VERDICT_FAULT };

typedef struct fig_finding {
    uint32_t size;
    fig_verdict verdict;
    const char *subject; /* "gpu 0" */
    const char *text;    /* a sentence */
    const char *advice;  /* what to do; "" where there is nothing to do */
} fig_finding;
typedef void (*fig_find_callback)(void *user, const fig_finding *finding);

/* Looks at driver, GPUs, topology, NCCL and this library's kernels, and tries the driver for faults
 * known of some. Calls `find` with each thing found, whose words last as long as that call. What is
 * missing is a finding, not a failure. ordinal: the GPU to try; below 0: none. */
FIG_API fig_status fig_examine(int32_t ordinal, fig_find_callback find, void *user);
/* What an all-reduce costs over 2 to 8 ranks, threads of this process: host ranks, or GPUs, the
 * first ones. Told likewise. */
FIG_API fig_status fig_examine_ranks(fig_device device, int32_t count, fig_find_callback find,
                                     void *user);

#ifdef __cplusplus
}
#endif
#endif
