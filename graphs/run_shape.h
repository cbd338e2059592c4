/* run_shape.h: chooses the split of a run without an engine, and lays out its scratch.
 *
 *     [plan][counters, partials and sums of class 0, 1, ..][partials and sums of strips][temps]
 *
 * Each run gets its own bucket, with the run's number of rows and with sequences of the longest
 * allowed length. The functions are pure: the shape depends only on the graphs, the traits and the
 * run's size, so every call on any machine gives the same shape. No function allocates. Invariant:
 * a shape fits the scratch size for which it was made. */
#ifndef FIG_GRAPHS_RUN_SHAPE_H
#define FIG_GRAPHS_RUN_SHAPE_H

#include "graphs/graphs.h"
#include "include/figraph_runner.h"

/* A value of scratch_bytes that sets no limit, which gives the best shape. */
#define FIG_RUN_SHAPE_BEST UINT64_MAX

typedef struct fig_run_size {
    int32_t rows;           /* at least 1 */
    int32_t kv_limit;       /* the longest sequence in tokens, at least 1 */
    uint64_t scratch_bytes; /* the available scratch, or FIG_RUN_SHAPE_BEST */
    int32_t queries;        /* most query tokens, at least 1; 0: the program is not packed */
} fig_run_size;

typedef struct fig_run_shape {
    fig_bucket_shape bucket;
    fig_workspace workspace; /* offsets in scratch; temps: NULL */
    uint64_t plan_bytes;     /* 0: no node reads a plan */
    uint64_t zeros, zeros_end; /* a run first sets [zeros, zeros_end) to zeros */
    uint64_t temps;
    uint64_t bytes;          /* bytes of the whole scratch */
} fig_run_shape;

/* Makes the shape of a run. FIG_TOO_LARGE: the run has more rows or tokens than the spec allows, or
 * too many to count. FIG_INVALID: even the smallest shape does not fit the scratch. */
fig_status fig_run_shape_make(const fig_graphs *graphs, const fig_traits *traits,
                              const fig_run_size *size, fig_run_shape *shape);
/* Makes the shape of a given variant, without a limit on scratch. */
fig_status fig_run_shape_of_variant(const fig_graphs *graphs, const fig_traits *traits,
                                    const fig_run_size *size, int32_t variant,
                                    fig_run_shape *shape);

/* Returns 1 if the node reads a plan. */
int fig_run_shape_is_planned(const fig_program_view *view, const fig_node *node);

/* The total size of all temps whose ids are lower than that of a given temp. When the size of the
 * run is known, it gives the offset of that temp. A caller begins with a zeroed struct. */
typedef struct fig_run_temp {
    /* bytes per row of the batch; bytes per query token; bytes for all rows together */
    uint64_t row_bytes, query_bytes, fixed_bytes;
    uint32_t count;
} fig_run_temp;
/* Adds a tensor's size if the tensor is a temp; ignores other tensors. */
void fig_run_shape_pass_temp(const fig_program_view *view, uint32_t tensor, fig_run_temp *temp);
/* Returns the temp's offset from the beginning of the temps. */
uint64_t fig_run_shape_temp_offset(const fig_run_temp *temp, const fig_run_size *size);

/* Finds the most query tokens of a run, from its rows and query_tokens; 0 if the program is not
 * packed. FIG_INVALID, FIG_TOO_LARGE: query_tokens is wrong. */
fig_status fig_run_shape_queries(const fig_program_view *view, const fig_run *run,
                                 int32_t *queries);

#endif
