/* bench_rig.h: lowers, binds and times a small program that a bench records.
 *
 * Owns the program, the graphs and the engine. Invariant: close frees everything, also after a
 * failed open. */
#ifndef FIG_TOOLS_BENCH_RIG_H
#define FIG_TOOLS_BENCH_RIG_H

#include <figraph_tune.h>
#include <figraph_unstable.h>

#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/step/ranked.h"
#include "tools/figraph/step/source.h"

/* Rows of an option table. */
#define FIG_BENCH_MACHINE_OPTIONS                                                                  \
    FIG_SOURCE_DEVICE, {"--quick", NULL, "measure fewer cells and samples"},                       \
        {"--csv", "FILE", "write all figures to FILE, a line for each row", .is_written = 1}, {    \
        "--json", NULL, "print an array"                                                           \
    }

/* The machine to measure, and the amount of measuring. */
typedef struct fig_bench_machine {
    fig_device device; /* never AUTO */
    fig_traits traits;
    int32_t samples, sample_us;
    int quick;
    int32_t ordinal;  /* the number of the GPU, with FIG_DEVICE_CUDA */
    fig_ranks *ranks; /* the group that measures together; NULL: this process alone */
} fig_bench_machine;
/* Reads the options above. Returns FIG_EXIT_*. */
int fig_bench_rig_read_machine(const fig_arguments *arguments, fig_bench_machine *machine);

/* Shows a table of results; on the host prints why there are no times. */
int fig_bench_rig_show(const fig_bench_machine *machine, const fig_bench_table *table,
                       const fig_arguments *arguments);

typedef struct fig_bench_rig {
    fig_dtype dtype;      /* as in the spec */
    int is_packed;        /* 1: tensors of rows have a row for each query token */
    fig_program *program; /* NULL once it is lowered */
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t variant; /* set before open: the only variant to lower, from 1; 0: the useful ones */
    int meets;       /* 1: the program has collectives */
    int serial;      /* 1: time the launches one after another, as recorded */
    const fig_spacer *spacer; /* work to run before each node while timing; NULL: none */
} fig_bench_rig;

/* Begins a program. Returns FIG_EXIT_*. */
int fig_bench_rig_begin(fig_bench_rig *rig, const fig_spec *spec);
/* A tensor [rows * multiple][heads][head_dim], or [rows * multiple][heads] if head_dim is 0. Where
 * the spec is packed, rows are query tokens. */
fig_tensor fig_bench_rig_rows(fig_bench_rig *rig, const char *name, int32_t heads, int32_t head_dim,
                              int32_t multiple);
/* Makes the program read lengths and query_starts on the device, from tensors of these names. */
#define FIG_BENCH_LENGTHS "lengths"
#define FIG_BENCH_STARTS "query_starts"
void fig_bench_rig_read_queries(fig_bench_rig *rig, const fig_spec *spec);
/* A page table of i32 for the spec's sequences, in the engine's memory. */
fig_tensor fig_bench_rig_table(fig_bench_rig *rig, const fig_spec *spec);
/* A cache with pages of the spec's shape. */
fig_tensor fig_bench_rig_cache(fig_bench_rig *rig, const fig_spec *spec, const char *name);
/* The tensors of an all-reduce of `width` columns with residual and norm, as after a projection
 * (which is left out). fig_all_reduce_add_rms_norm may record it any number of times. */
fig_rms_norm_op fig_bench_rig_sum(fig_bench_rig *rig, int32_t width);
/* Lowers the recorded program for one bucket, opens an engine, and binds each tensor except caches
 * to memory of the engine. */
int fig_bench_rig_open(fig_bench_rig *rig, const fig_bench_machine *machine, fig_bucket bucket);
/* Fills a tensor of `count` elements of the dtype with synthetic numbers. */
int fig_bench_rig_fill(fig_bench_rig *rig, const char *name, fig_dtype dtype, int64_t count);
int fig_bench_rig_run(fig_bench_rig *rig, const fig_step *step); /* runs one step to its end */
/* Times the program. If it has collectives, all ranks must call this together. */
int fig_bench_rig_time(fig_bench_rig *rig, const fig_bench_machine *machine, const fig_step *step,
                       fig_timed *timed);
void fig_bench_rig_close(fig_bench_rig *rig);

/* Rounds up to a power of two. */
int32_t fig_bench_rig_round(int32_t value);

#endif
