/* bench_rig.h: a program of a bench's own, lowered for one bucket, bound and timed.
 *
 * Owns program, graphs and engine. Invariant: close frees what was opened, of a failed open too. */
#ifndef FIG_TOOLS_BENCH_RIG_H
#define FIG_TOOLS_BENCH_RIG_H

#include <figraph_tune.h>
#include <figraph_unstable.h>

#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/step/ranked.h"
#include "tools/figraph/step/source.h"

/* Rows of an option table. */
#define FIG_BENCH_MACHINE_OPTIONS                                                                  \
    FIG_SOURCE_DEVICE, {"--quick", NULL, "fewer cells and samples"},                               \
        {"--csv", "FILE", "write all figures there, a line for each row"}, {                       \
        "--json", NULL, "print an array"                                                           \
    }

/* The machine that is measured, and how long. */
typedef struct fig_bench_machine {
    fig_device device; /* never AUTO */
    fig_traits traits;
    int32_t samples, sample_us;
    int quick;
    int32_t ordinal;  /* cuda: which GPU */
    fig_ranks *ranks; /* that measure together; NULL: this process alone */
} fig_bench_machine;
/* From those options. Returns FIG_EXIT_*. */
int fig_bench_rig_read_machine(const fig_arguments *arguments, fig_bench_machine *machine);

/* Shows a table of what was measured there; on the host says why it has no times. */
int fig_bench_rig_show(const fig_bench_machine *machine, const fig_bench_table *table,
                       const fig_arguments *arguments);

typedef struct fig_bench_rig {
    fig_dtype dtype;      /* the spec's */
    fig_program *program; /* NULL once it is lowered */
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t variant; /* before open: the one that is lowered, from 1; 0: those worth having */
    int meets;       /* 1: the program has collectives */
    int serial;      /* of timing: launches one after another, as recorded */
    const fig_spacer *spacer; /* of timing: what stands before each node; NULL: nothing */
} fig_bench_rig;

/* Begins a program. Returns FIG_EXIT_*. */
int fig_bench_rig_begin(fig_bench_rig *rig, const fig_spec *spec);
/* [rows * multiple][heads][head_dim] or, where head_dim is 0, [rows * multiple][heads]. */
fig_tensor fig_bench_rig_rows(fig_bench_rig *rig, const char *name, int32_t heads, int32_t head_dim,
                              int32_t multiple);
/* i32, of the spec's sequences and pages; the engine's. */
fig_tensor fig_bench_rig_table(fig_bench_rig *rig, const fig_spec *spec);
/* Pages of the spec's kind. */
fig_tensor fig_bench_rig_cache(fig_bench_rig *rig, const fig_spec *spec, const char *name);
/* What ranks sum behind a projection, which is left out: rows so wide, and their norm; recorded by
 * fig_all_reduce_add_rms_norm, as often as one likes. */
fig_rms_norm_op fig_bench_rig_sum(fig_bench_rig *rig, int32_t width);
/* Lowers what was recorded for one bucket, opens an engine and binds each tensor but pages to
 * memory of the engine's. */
int fig_bench_rig_open(fig_bench_rig *rig, const fig_bench_machine *machine, fig_bucket bucket);
/* Made-up numbers in all of a tensor's memory, [count] of the dtype. */
int fig_bench_rig_fill(fig_bench_rig *rig, const char *name, fig_dtype dtype, int64_t count);
int fig_bench_rig_run(fig_bench_rig *rig, const fig_step *step); /* once, to its end */
/* A rig that meets is timed on all ranks at once. */
int fig_bench_rig_time(fig_bench_rig *rig, const fig_bench_machine *machine, const fig_step *step,
                       fig_timed *timed);
void fig_bench_rig_close(fig_bench_rig *rig);

/* The least power of two that is not below. */
int32_t fig_bench_rig_round(int32_t value);

#endif
