/* cuda_work.h: what one launch does on a GPU: a CUgraph, and which of its nodes are whose.
 *
 * A graph and the execs made from it share one work, since the driver takes a patch by the node of
 * the graph that an exec came from; the last user destroys it. Knows no stream but the GPU's own
 * and launches nothing: device_cuda.c does. Invariant: nodes[n] is the n-th that was added, and an
 * edge from a kernel to one of ours is programmatic where the images keep the law of such edges,
 * else full.
 *
 * All but release: the context is entered. */
#ifndef FIG_ENGINE_CUDA_WORK_H
#define FIG_ENGINE_CUDA_WORK_H

#include "engine/cuda/cuda_kernels.h"
#include "engine/cuda/cuda_lanes.h"
#include "engine/device.h"

typedef struct fig_cuda_node {
    fig_cu_node node;
    fig_cu_kernel kernel; /* NULL: a call; `node` comes after all that it captured */
    int is_kernel;        /* of a call: 1: that is the one kernel that ends it; 0: an empty node */
    int meets_plan;       /* of a call: 1: it may run while the plan is being made */
    fig_op op;            /* of a kernel, as is all below */
    uint32_t family;
    uint32_t grid[3], block[3], shared_bytes;
    size_t params_bytes;
} fig_cuda_node;

typedef struct fig_cuda_work {
    uint32_t users;
    int broken;         /* 1: a call has left it half-done; it can only be destroyed */
    int64_t last_part;  /* 1 + the node of a library that came last; 0: there is none */
    int is_ended;       /* 1: the node behind that is there, which says that it is over */
    fig_cu_graph graph; /* NULL: the driver destroyed it with the capture that broke */
    fig_cuda_node *nodes;
    fig_cuda_lane_place *places; /* [node_capacity] of the nodes in the lanes */
    fig_cuda_lanes lanes;
    fig_cu_node *before;    /* [node_capacity + 1] scratch */
    uint32_t *before_nodes; /* [node_capacity + 1] scratch */
    uint32_t node_count, node_capacity;
    size_t programmatic_count; /* edges */
} fig_cuda_work;

/* With one user. release takes NULL. */
fig_status fig_cuda_work_create(fig_cuda_work **work, fig_cuda_gpu *gpu);
void fig_cuda_work_release(fig_cuda_work *work, const fig_cuda_gpu *gpu);

/* Append a node; where a kernel fails the work is what it was. */
fig_status fig_cuda_work_kernel(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                                const fig_dev_launch *launch, fig_dev_after after);
fig_status fig_cuda_work_call(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after);
/* The same, of a library that may only be captured into a graph of its own: what it enqueues
 * becomes one node. The work is what it was where that fails. */
fig_status fig_cuda_work_part(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after);

/* FIG_INVALID: it is half-done; FIG_DRIVER: the driver holds other edges than were added. */
fig_status fig_cuda_work_check(const fig_cuda_work *work, fig_cuda_gpu *gpu);
/* The exec is one more user from its success on. */
fig_status fig_cuda_work_instantiate(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec *exec);
fig_status fig_cuda_work_patch(const fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec exec,
                               uint32_t node, const void *params, size_t params_bytes);

#endif
