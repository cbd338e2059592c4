/* run_tensors.h: where the tensors of one run lie.
 *
 * Reads a run's bindings each time they are asked for, so that nothing is kept of a run: what a
 * program's tensors are is found once, when its runner is opened. Invariant: a place that is given
 * out holds all that the run may touch of it. */
#ifndef FIG_ENGINE_RUN_TENSORS_H
#define FIG_ENGINE_RUN_TENSORS_H

#include "engine/places.h"
#include "graphs/run_shape.h"

typedef struct fig_run_tensor {
    int32_t binding;     /* its number among those that a caller binds; -1: a temp */
    fig_run_temp before; /* of a temp: what the temps before it take */
    int32_t page_tokens; /* of a page table: tokens of a page; 0: it is none */
    int is_dense;        /* 1: a cache without a table */
} fig_run_tensor;

typedef struct fig_run_tensors {
    const fig_program_view *view;
    fig_run_tensor *of;  /* [tensor_count] tensor id t is of[t - 1] */
    int32_t bound_count; /* of them, those that a caller binds */
} fig_run_tensors;

/* finish takes a zeroed struct. */
fig_status fig_run_tensors_init(fig_run_tensors *tensors, const fig_program_view *view);
void fig_run_tensors_finish(fig_run_tensors *tensors);

/* One run: nodes [first, first + count). */
typedef struct fig_run_nodes {
    uint32_t first, count;
} fig_run_nodes;
typedef struct fig_run_bound {
    const fig_run_tensors *tensors;
    const fig_run *run;
    uint8_t *temps; /* where they begin */
    fig_run_nodes nodes;
} fig_run_bound;

/* FIG_UNBOUND: nobody gave it an address. */
fig_status fig_run_tensors_place(const fig_run_bound *bound, uint32_t tensor,
                                 fig_bound_place *place);
/* What the caches and page tables that the nodes name hold of each sequence. */
typedef struct fig_run_room {
    int64_t dense_tokens, tokens; /* in the shortest dense cache; there and in the page tables */
    uint32_t shortest;            /* tensor that holds so many; 0: nothing bounds them */
} fig_run_room;
fig_status fig_run_tensors_room(const fig_run_bound *bound, fig_run_room *room);
/* All that a node names has its place, and nothing that it writes lies on anything else of it. */
fig_status fig_run_tensors_check(const fig_run_bound *bound, const fig_node *node);

#endif
