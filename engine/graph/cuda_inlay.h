/* cuda_inlay.h: adds the kernels of one of our graphs to a graph that a caller captures.
 *
 * A child node could have only full edges, which make a kernel wait until the previous node has
 * ended. A programmatic edge lets a kernel begin earlier. So this file records the kernels of our
 * graph, and adds them to the caller's graph one by one, with the same code and the same edges as
 * in our graph. It owns the record and the list of a capture's nodes that are ours. Invariant: a
 * node that is not known to be ours counts as the caller's, which is always safe.
 *
 * The caller of fig_cuda_inlay_add() has entered the GPU's context. */
#ifndef FIG_ENGINE_CUDA_INLAY_H
#define FIG_ENGINE_CUDA_INLAY_H

#include "engine/graph/cuda_splice.h"
#include "engine/graph/cuda_work.h"

typedef struct fig_cuda_recorded {
    fig_dev_launch launch;
    fig_dev_after after;
    void *block; /* memory that launch.params and after.nodes point into */
} fig_cuda_recorded;

/* A zeroed record is empty. */
typedef struct fig_cuda_record {
    fig_cuda_recorded *of; /* [count] in the order in which they were added */
    uint32_t count, capacity;
    /* 1: the graph also holds nodes other than our kernels, so it is added as a child node */
    int is_mixed;
} fig_cuda_record;

fig_status fig_cuda_inlay_record(fig_cuda_record *record, const fig_dev_launch *launch,
                                 fig_dev_after after);
void fig_cuda_inlay_forget_last(fig_cuda_record *record);
void fig_cuda_inlay_finish(fig_cuda_record *record);

/* The 16 nodes of ours that most recently ended an append to a capture. A zeroed struct holds
 * none. */
enum { FIG_CUDA_INLAID_LIMIT = 16 };
typedef struct fig_cuda_inlaid {
    struct {
        uint64_t capture; /* 0: none */
        fig_cu_node node;
        int makes_plan;
    } of[FIG_CUDA_INLAID_LIMIT];
    uint32_t count; /* the number of nodes remembered so far, including overwritten ones */
} fig_cuda_inlaid;

/* Adds the recorded kernels after everything that the stream has captured; whatever the stream
 * captures next comes after the recorded kernels. Sets *taken to 0 if the driver refused the first
 * node, which leaves the caller's graph unchanged. If the call fails with *taken at 1, the caller
 * must drop the capture. */
fig_status fig_cuda_inlay_add(fig_cuda_inlaid *inlaid, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                              fig_cu_stream stream, const fig_cuda_splice *splice,
                              const fig_cuda_record *record, int *taken);

#endif
