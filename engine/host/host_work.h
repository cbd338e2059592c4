/* host_work.h: what one launch does on the host device: nodes, the edges between them and the bytes
 * they stand on.
 *
 * A graph is work that grows, an exec a copy of it that runs. Knows kernels by their table only and
 * no thread: device_host.c decides who runs what when. Invariant: edges point forward, so the order
 * in which nodes were added is one that they may run in. */
#ifndef FIG_ENGINE_HOST_WORK_H
#define FIG_ENGINE_HOST_WORK_H

#include "engine/device.h"

typedef struct fig_host_node {
    fig_op op; /* FIG_OP_CALL: a record of the call lies at `data`, else the kernel's params */
    uint32_t grid[3];
    size_t data;
} fig_host_node;

typedef struct fig_host_edge {
    uint32_t from, to;
} fig_host_edge;

typedef struct fig_host_work {
    fig_host_node *nodes;
    fig_host_edge *edges;
    uint8_t *data;
    size_t node_count, edge_count, data_bytes;
    size_t node_capacity, edge_capacity, data_capacity;
    /* Scratch of a shuffled run; NULL in work that runs in order only: */
    uint32_t *waiting; /* [node_count] edges into a node from nodes still to run */
    uint32_t *ready;   /* [node_count] nodes that may run */
    uint32_t *blocks;  /* [blocks of the largest grid] */
} fig_host_work;

typedef struct fig_host_fault {
    fig_status status;
    char sentence[256];
} fig_host_fault;

/* Starts as a zeroed struct; takes that and a half-made one. */
void fig_host_work_finish(fig_host_work *work);

/* Appends a node; on failure the work is what it was. */
fig_status fig_host_work_kernel(fig_host_work *work, const fig_dev_launch *launch,
                                fig_dev_after after);
fig_status fig_host_work_call(fig_host_work *work, const fig_dev_call *call, fig_dev_after after);

/* Into a zeroed *copy. */
fig_status fig_host_work_copy(fig_host_work *copy, const fig_host_work *work);
/* Makes it able to run in a random order; nothing is appended after that. */
fig_status fig_host_work_add_scratch(fig_host_work *work);
void fig_host_work_patch(fig_host_work *work, uint32_t node, const void *params,
                         size_t params_bytes);

/* Runs all nodes, as added or, where *random is not 0, in an order drawn from it; then it has
 * scratch. From the first call that fails on, nodes are skipped, and *fault says which it was. */
void fig_host_work_run(fig_host_work *work, uint64_t *random, fig_host_fault *fault);

#endif
