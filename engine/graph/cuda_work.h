/* cuda_work.h: the CUgraph of one launch, and a record of the nodes in it.
 *
 * A graph and the execs made from it share one fig_cuda_work, because patching an exec requires the
 * node handle of the graph from which the exec was made. The last user to release the work destroys
 * it. This file uses only the GPU's own streams and launches nothing; device_cuda.c launches execs.
 * Invariant: nodes[n] is the n-th node added. An edge from a kernel to one of our kernels is
 * programmatic if the images keep the law of programmatic edges (kernels/common/block.cuh);
 * otherwise it is full.
 *
 * The caller has entered the GPU's context for every function except fig_cuda_work_release(). */
#ifndef FIG_ENGINE_CUDA_WORK_H
#define FIG_ENGINE_CUDA_WORK_H

#include "engine/graph/cuda_kernels.h"
#include "engine/graph/cuda_lanes.h"
#include "engine/seam/device.h"

typedef struct fig_cuda_node {
    fig_cu_node node;
    /* NULL: a call, and `node` comes after everything that the call captured */
    fig_cu_kernel kernel;
    /* for a call: 1: `node` is the single kernel that ends the call; 0: `node` is an empty node */
    int is_kernel;
    int meets_plan; /* for a call: 1: the call may run while the plan is being made */
    fig_op op;      /* this field and all below are set for kernels only */
    uint32_t family;
    uint32_t grid[3], block[3], shared_bytes;
    size_t params_bytes;
} fig_cuda_node;

/* A tail of a caller's capture: a node that every node added next must follow. */
typedef struct fig_cuda_tail {
    fig_cu_node node;
    int is_kernel;
    int keeps_law; /* 1: a kernel of ours that uses the same plan and does not make it */
} fig_cuda_tail;

typedef struct fig_cuda_work {
    uint32_t users;
    /* 1: a failed call left the graph half-done; the work can only be destroyed */
    int broken;
    /* 1 + the index of the last node that fig_cuda_work_part() added; 0: it has added no node */
    int64_t last_part;
    /* 1: the node that reports the end of the collectives was added behind last_part */
    int is_ended;
    fig_cu_graph graph; /* NULL: the driver destroyed it when a capture broke */
    fig_cuda_node *nodes;
    fig_cuda_lane_place *places; /* [node_capacity] the place of each node in the lanes */
    fig_cuda_lanes lanes;
    fig_cu_node *before;    /* [node_capacity + 1] scratch */
    uint32_t *before_nodes; /* [node_capacity + 1] scratch */
    uint32_t node_count, node_capacity;
    size_t programmatic_count; /* the number of programmatic edges */
    /* [tail_count] the tails of the caller's capture, while kernels are added to its graph */
    const fig_cuda_tail *tails;
    uint32_t tail_count;
    int is_callers; /* 1: a caller captures the graph, so this file never removes a node */
} fig_cuda_work;

/* The work begins with one user. fig_cuda_work_release() accepts NULL. */
fig_status fig_cuda_work_create(fig_cuda_work **work, fig_cuda_gpu *gpu);
void fig_cuda_work_release(fig_cuda_work *work, const fig_cuda_gpu *gpu);

/* Makes `work` stand for a graph that a caller captures. Only kernels may be added to such work.
 * fig_cuda_work_finish() leaves the graph as it is. tails must outlive the work. If adding a kernel
 * fails, the caller's graph may hold the node, and the work is broken. */
void fig_cuda_work_enter(fig_cuda_work *work, fig_cu_graph graph, const fig_cuda_tail *tails,
                         uint32_t tail_count);
void fig_cuda_work_finish(fig_cuda_work *work);

/* Append a node. If adding a kernel fails, the work is unchanged. */
fig_status fig_cuda_work_kernel(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                                const fig_dev_launch *launch, fig_dev_after after);
fig_status fig_cuda_work_call(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after);
/* Appends a call to a library that can be captured only into a separate graph: everything that the
 * call enqueues becomes one node. On failure the work is unchanged. */
fig_status fig_cuda_work_part(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after);

/* Returns FIG_ORDER if the graph is half-done, and FIG_DRIVER if the driver's edges differ from
 * those that were added. */
fig_status fig_cuda_work_check(const fig_cuda_work *work, fig_cuda_gpu *gpu);
/* On success the exec counts as one more user of the work. */
fig_status fig_cuda_work_instantiate(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec *exec);
fig_status fig_cuda_work_patch(const fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec exec,
                               uint32_t node, const void *params, size_t params_bytes);

#endif
