/* run_shape.h: how a run without an engine is cut, and what of its scratch lies where.
 *
 *     [plan][counters, partials and sums of class 0, 1, ..][temps]
 *
 * A run is a bucket of its own: as many rows as it has, and sequences as long as they may be.
 * Pure: it follows from graphs, traits and the run's size alone, so that whoever asks again, on
 * whatever machine, hears the same, and nothing is allocated. Invariant: a shape that was made fits
 * the scratch that it was made for. */
#ifndef FIG_GRAPHS_RUN_SHAPE_H
#define FIG_GRAPHS_RUN_SHAPE_H

#include "graphs/graphs.h"
#include "include/figraph_runner.h"

/* Of all scratch that there may be. */
#define FIG_RUN_SHAPE_BEST UINT64_MAX

typedef struct fig_run_size {
    int32_t rows;           /* 1 at least */
    int32_t kv_limit;       /* tokens of a sequence at most; 1 at least */
    uint64_t scratch_bytes; /* what there is; FIG_RUN_SHAPE_BEST */
} fig_run_size;

typedef struct fig_run_shape {
    fig_bucket_shape bucket;
    fig_workspace workspace; /* offsets in scratch; temps: NULL */
    uint64_t plan_bytes;     /* 0: nothing is planned */
    uint64_t zeros, temps;   /* what a run puts to zeros first is [zeros, temps) */
    uint64_t bytes;          /* of scratch in all */
} fig_run_shape;

/* FIG_TOO_LARGE: more rows or tokens than the spec allows, or than can be counted. FIG_INVALID: no
 * cut is small enough for the scratch. */
fig_status fig_run_shape_make(const fig_graphs *graphs, const fig_traits *traits,
                              const fig_run_size *size, fig_run_shape *shape);
/* The same in a variant that is given, for all scratch that there may be. */
fig_status fig_run_shape_of_variant(const fig_graphs *graphs, const fig_traits *traits,
                                    const fig_run_size *size, int32_t variant,
                                    fig_run_shape *shape);

/* 1: the node reads a plan. */
int fig_run_shape_is_planned(const fig_program_view *view, const fig_node *node);

/* What the temps before one take, in order of their ids: a temp's place, once the rows are known.
 * It begins as zeros. */
typedef struct fig_run_temp {
    uint64_t row_bytes, fixed_bytes; /* of each row of the batch; of all rows */
    uint32_t count;
} fig_run_temp;
/* Moves behind a tensor, which may be no temp. */
void fig_run_shape_pass_temp(const fig_program_view *view, uint32_t tensor, fig_run_temp *temp);
/* From where the temps begin. */
uint64_t fig_run_shape_temp_offset(const fig_run_temp *temp, int32_t rows);

#endif
