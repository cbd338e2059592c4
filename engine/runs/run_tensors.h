/* run_tensors.h: finds the memory of the tensors of one run.
 *
 * Every function reads the run's bindings again and keeps no state of the run. Only the kinds of a
 * program's tensors are found once, when the runner opens. Invariant: a returned place covers all
 * memory of the tensor that the run may touch. */
#ifndef FIG_ENGINE_RUN_TENSORS_H
#define FIG_ENGINE_RUN_TENSORS_H

#include "engine/bind/places.h"
#include "graphs/run_shape.h"

typedef struct fig_run_tensor {
    int32_t binding;     /* index among the tensors that a caller binds; -1: a temp */
    fig_run_temp before; /* for a temp: the scratch that the temps before it take */
    int32_t page_tokens; /* for a page table: tokens of a page; 0: any other tensor */
    int is_dense;        /* 1: a cache without a page table */
    int is_starts;       /* 1: query_starts, which has one element more than the run has rows */
    /* For arrays of packed RoPE: 1 for offsets, which has one element per segment, and 2 for
     * indptr, which also has the end of the last segment. For any other tensor: 0. */
    int32_t ends;
} fig_run_tensor;

typedef struct fig_run_tensors {
    const fig_program_view *view;
    fig_run_tensor *of;  /* [tensor_count] tensor id t is of[t - 1] */
    int32_t bound_count; /* number of tensors that a caller binds */
} fig_run_tensors;

/* fig_run_tensors_finish() accepts a zeroed struct. */
fig_status fig_run_tensors_init(fig_run_tensors *tensors, const fig_program_view *view);
void fig_run_tensors_finish(fig_run_tensors *tensors);

/* The nodes of one run: [first, first + count). */
typedef struct fig_run_nodes {
    uint32_t first, count;
} fig_run_nodes;
typedef struct fig_run_bound {
    const fig_run_tensors *tensors;
    const fig_run *run;
    uint8_t *temps; /* start of the temps in scratch */
    fig_run_nodes nodes;
    fig_run_size size; /* rows and query tokens of the run, which give the extents of tensors */
} fig_run_bound;

/* Finds the place of a tensor. FIG_UNBOUND: the caller gave the tensor no address. */
fig_status fig_run_tensors_place(const fig_run_bound *bound, uint32_t tensor,
                                 fig_bound_place *place);
/* The number of tokens of each sequence for which the nodes' caches and page tables have room. */
typedef struct fig_run_room {
    /* dense_tokens: the room in the shortest dense cache. tokens: the least room of all caches. */
    int64_t dense_tokens, tokens;
    uint32_t shortest; /* the tensor with the least room; 0: no tensor bounds the tokens */
} fig_run_room;
fig_status fig_run_tensors_room(const fig_run_bound *bound, fig_run_room *room);
/* Checks that every operand of a node has memory, and that no operand that the node writes overlaps
 * another operand. */
fig_status fig_run_tensors_check(const fig_run_bound *bound, const fig_node *node);

#endif
