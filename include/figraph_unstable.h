/* figraph_unstable.h: calls for tests, benchmarks and diagnosis. Any version may change or remove
 * any of these calls without notice. Stable calls are in figraph.h. */
#ifndef FIGRAPH_UNSTABLE_H
#define FIGRAPH_UNSTABLE_H

#include <figraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Faults and orders on request: fig_engine_options points here ---------------------------- */
/* Routes that a collective's message may take to the other ranks. */
enum { FIG_ROUTE_ONE_SHOT = 1, FIG_ROUTE_TWO_SHOT = 2, FIG_ROUTE_NCCL = 4 };

typedef struct fig_test_options {
    uint32_t size; /* sizeof(fig_test_options) */
    /* CUDA. 1: the engine uses only kernels that run on any chip of compute capability 8.0 or
     * later, even if better ones fit. */
    int32_t plain_kernels;
    /* The device call of this number, from 1, fails. 0: none fails. */
    int64_t fail_at_call;
    /* Host: the seed of a random order in which nodes and blocks run. It is always an order in
     * which a GPU could run them, too. 0: nodes and blocks run in recorded order. */
    uint64_t shuffle;
    /* CUDA. 1: no kernel starts before the kernels that it depends on have ended. */
    int32_t plain_edges;
    /* CUDA: the routes that messages of collectives may take, the same on all ranks. 0: all. */
    uint32_t routes;
    /* CUDA. 1: a segment that is appended to a capture becomes one child node, not kernel nodes. */
    int32_t child_nodes;
} fig_test_options;

/* ---- Checks ---------------------------------------------------------------------------------- */
/* Checks a spec as fig_program_create() does, for a caller that records no program. FIG_INVALID:
 * the sentence names the field, its value and the limit. */
FIG_API fig_status fig_spec_check(const fig_spec *spec);

/* ---- Which kernels serve --------------------------------------------------------------------- */
/* The family of kernels that serves a launch, and the families before it that refused. */
typedef struct fig_launch_info {
    uint32_t size; /* sizeof(fig_launch_info) */
    /* The first node that the launch serves, from 0. */
    int32_t node;
    /* The number of nodes that the launch serves. The launch that fetches the plan serves none. */
    int32_t node_count;
    /* The operation, such as "attention". */
    const char *operation;
    /* The family, such as "scalar". NULL: the launch is a call, which has no family; or the launch
     * is not made, because the next launch also does its work. */
    const char *family;
    /* The number of families that come before this family and refused the launch. */
    int32_t refusal_count;
    /* [refusal_count] The names of those families, such as "bulk". */
    const char *refused[7];
    /* [refusal_count] For each of those families, the need that the launch does not meet, such as
     * "compute capability 9.0". */
    const char *needs[7];
} fig_launch_info;
/* Describes a launch of a bucket. launch: the number of the launch, from 0, as in
 * figraph_inspect.h. The texts outlive the engine. FIG_INVALID: there is no such launch or bucket.
 * FIG_ORDER: the bucket is not prepared with the current bindings. */
FIG_API fig_status fig_engine_launch_info(fig_engine *engine, int32_t bucket, int32_t launch,
                                          fig_launch_info *info);

/* ---- How well graphs fit a machine ----------------------------------------------------------- */
typedef uint32_t fig_fit;
enum {
    FIG_FIT_FINE = 0,
    FIG_FIT_WARNING,
    FIG_FIT_ANEW, /* the graphs run correctly, but a capture for that machine would be faster */
    FIG_FIT_REFUSED
};
/* Receives one reason, which is a sentence. */
typedef void (*fig_fit_callback)(void *user, fig_fit fit, const char *reason);
/* Computes how well graphs fit a machine, which need not be present. `find` receives each reason
 * with its fit; it may be NULL. *fit is the worst of these fits. */
FIG_API fig_status fig_graphs_fit(const fig_graphs *graphs, const fig_traits *traits, fig_fit *fit,
                                  fig_fit_callback find, void *user);

/* ---- What a step costs, part by part --------------------------------------------------------- */
typedef struct fig_measure_options {
    uint32_t size; /* sizeof(fig_measure_options) */
    /* The number of steps. 0: 10000. */
    int32_t steps;
    /* The step to run. From step to step each row grows by a token, up to 64 tokens in all. So all
     * lengths must be below kv_limit, and the caller must have set the pages for the new tokens. */
    const fig_step *step;
} fig_measure_options;

/* The parts of a step: medians in nanoseconds. */
typedef struct fig_measured {
    uint32_t size; /* sizeof(fig_measured) */
    /* The number of the bucket that the steps took. */
    int32_t bucket;
    /* The number of launches of that bucket, including the launch that fetches the plan. */
    int32_t launches;
    /* Host: checking the step. */
    double check_ns;
    /* Host: finding rows that share pages, and choosing the bucket. */
    double choose_ns;
    /* Host: writing the plan. */
    double plan_ns;
    /* Host: fig_engine_launch(), while the host runs ahead of the device. */
    double launch_ns;
    /* Host: fig_engine_stage() and fig_engine_launch() together, while the host runs ahead of the
     * device. */
    double step_ns;
    /* Host: the driver's launch of the same graph alone, while the host runs ahead. */
    double bare_launch_ns;
    /* Host: fig_engine_stage() and fig_engine_launch() together, when the host waits for the device
     * before each step. */
    double idle_step_ns;
    /* Host: the driver's launch alone, when the host waits for the device before each launch. */
    double idle_bare_launch_ns;
    /* Device: the time of one of many steps back to back, each of which fetches its own plan. */
    double fetched_ns;
    /* Device: the time of a single step, which fetches its own plan. */
    double waited_ns;
    /* Device: the time of one of many steps back to back, with a plan that is already on the
     * device. */
    double resident_ns;
    /* Device: the time of one of many steps back to back, without the launch that fetches the
     * plan. */
    double bare_ns;
    /* Device: the gap between two graphs of the step, without the launch that fetches the plan. */
    double gap_ns;
    /* Device: the gap between two graphs with the same number of launches that do nothing: the
     * least time that the driver needs. */
    double empty_gap_ns;
    /* Host: the time from the call of fig_engine_stage() until the host knows that the step has
     * ended. */
    double result_ns;
    /* Host: the same as result_ns, for a graph with the same number of launches that do nothing. */
    double empty_result_ns;
} fig_measured;

/* Runs a step many times and times its parts. The steps append to the caches. FIG_ORDER: the engine
 * is not idle. FIG_TOO_LARGE: a row cannot grow. The engine is idle afterwards. */
FIG_API fig_status fig_engine_measure(fig_engine *engine, const fig_measure_options *options,
                                      fig_measured *measured);

/* ---- Times of nodes and of reading memory ---------------------------------------------------- */
/* A spacer is a kernel that has nothing to do with the step: it reads memory as fast as the device
 * can. */
typedef struct fig_spacer {
    uint32_t size; /* sizeof(fig_spacer) */
    /* The number of nodes, counted from the step's first, that run with a spacer in front of them.
     * The other nodes do not run. 0: all nodes run. */
    int32_t nodes;
    /* The device memory that spacers read. */
    const void *memory;
    /* The size of that memory. */
    int64_t memory_bytes;
    /* The number of bytes that each spacer reads, a multiple of 16. Each spacer continues where the
     * previous one stopped, and starts again at the beginning of the memory when it reaches the
     * end. 0: spacers read nothing. */
    int64_t bytes;
    /* 1: the nodes do not run, so that only the spacers are timed. */
    int32_t only;
} fig_spacer;

/* The caller sets either `step` or `tensor`. */
typedef struct fig_timing_options {
    uint32_t size; /* sizeof(fig_timing_options) */
    /* The number of samples. 0: 15. */
    int32_t samples;
    /* The length of a sample in microseconds. A run that takes longer is one sample. 0: 1000. */
    int32_t sample_us;
    /* The step to time. The step runs once; then its nodes run again and again with that plan,
     * without fetching it. */
    const fig_step *step;
    /* The tensor to time. Its memory is read from end to end, as fast as the device can, up to
     * 64 GB. */
    const char *tensor;
    /* For a step. 1: each launch waits for the previous launch, as on a stream, even if it does not
     * depend on that launch. */
    int32_t serial;
    /* For a tensor. 1: the engine copies the tensor's first half to its second half instead of
     * reading the tensor. */
    int32_t copies;
    /* The number of replays in a sample. 0: as many as take sample_us. It must not be 0 if the step
     * has collectives, because all ranks must replay the same number of times. */
    int32_t replays;
    /* For a step. Its nodes run one after another with a spacer before each; no node and no spacer
     * begins before the preceding kernel has ended. NULL: no spacers. */
    const fig_spacer *spacer;
} fig_timing_options;

/* The time that the device takes for one of many runs back to back, in nanoseconds. */
typedef struct fig_timed {
    uint32_t size; /* sizeof(fig_timed) */
    /* The number of the bucket. 0: a tensor was timed. */
    int32_t bucket;
    /* The median of all samples. */
    double median_ns;
    /* The shortest sample. */
    double least_ns;
    /* The longest sample. */
    double most_ns;
} fig_timed;

/* Times the nodes of a step, or the memory of a tensor. FIG_ORDER: the engine is not idle. The
 * engine is idle afterwards. */
FIG_API fig_status fig_engine_time(fig_engine *engine, const fig_timing_options *options,
                                   fig_timed *timed);
/* Writes the address of a bound tensor to *address, whether the engine or the caller owns the
 * memory. FIG_UNBOUND: the tensor has no address. */
FIG_API fig_status fig_engine_address(fig_engine *engine, const char *name, void **address);

/* ---- The machine ----------------------------------------------------------------------------- */
typedef uint32_t fig_verdict;
enum { FIG_VERDICT_FINE = 0, FIG_VERDICT_ADVICE, FIG_VERDICT_FAULT };

/* One finding about the machine. Its texts are valid only during the callback. */
typedef struct fig_finding {
    uint32_t size; /* sizeof(fig_finding) */
    /* The verdict: whether the finding is good or bad. */
    fig_verdict verdict;
    /* The part of the machine, such as "gpu 0". */
    const char *subject;
    /* The finding: a sentence. */
    const char *text;
    /* Advice to the user. "": there is nothing to do. */
    const char *advice;
} fig_finding;
typedef void (*fig_find_callback)(void *user, const fig_finding *finding);

/* Examines the driver, the GPUs, the topology, NCCL and this library's kernels, and tests the
 * driver for known faults. The call passes each finding to `find`. A missing part is a finding, not
 * a failure. ordinal: the GPU to test; negative: none. */
FIG_API fig_status fig_examine(int32_t ordinal, fig_find_callback find, void *user);
/* Measures an all-reduce over `count` ranks, 2 to 8, each of which is a thread of this process. On
 * the host device they are host ranks; on CUDA they use the first `count` GPUs. The call passes
 * each finding to `find`. */
FIG_API fig_status fig_examine_ranks(fig_device device, int32_t count, fig_find_callback find,
                                     void *user);

#ifdef __cplusplus
}
#endif
#endif
