/* host_work.h: holds and runs the work of one launch on the host device: nodes, edges and their
 * data.
 *
 * A graph is work that can still grow; an exec is a copy of it that can run. This file reaches
 * kernels only through the kernel table and starts no threads: device_host.c decides when and on
 * which thread work runs. Invariant: edges point forward, so nodes may run in the order in which
 * they were added. */
#ifndef FIG_ENGINE_HOST_WORK_H
#define FIG_ENGINE_HOST_WORK_H

#include "engine/seam/device.h"

typedef struct fig_host_node {
    fig_op op;
    uint32_t grid[3];
    size_t data; /* offset of the record of a call (FIG_OP_CALL), or of the kernel's params */
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
    /* Scratch for a random order; NULL if nodes run only in recorded order. */
    uint32_t *waiting; /* [node_count] number of a node's predecessors that have yet to run */
    uint32_t *ready;   /* [node_count] nodes that may run next */
    uint32_t *blocks;  /* [blocks of the largest grid] */
} fig_host_work;

typedef struct fig_host_fault {
    fig_status status;
    char sentence[256];
} fig_host_fault;

/* Frees work. Work begins as a zeroed struct, and fig_host_work_finish() accepts zeroed and
 * half-made work. */
void fig_host_work_finish(fig_host_work *work);

/* Each of these functions appends a node. A failure leaves the work unchanged. */
fig_status fig_host_work_kernel(fig_host_work *work, const fig_dev_launch *launch,
                                fig_dev_after after);
fig_status fig_host_work_call(fig_host_work *work, const fig_dev_call *call, fig_dev_after after);

/* Copies work. The caller zeroes *copy first. */
fig_status fig_host_work_copy(fig_host_work *copy, const fig_host_work *work);
/* Adds the scratch for a random order. The caller then appends no more nodes. */
fig_status fig_host_work_add_scratch(fig_host_work *work);
fig_status fig_host_work_patch(fig_host_work *work, uint32_t node, const void *params,
                               size_t params_bytes);

/* Runs all nodes in the order in which they were added. If *random is not 0, the order is random
 * instead; this needs the scratch. When a call or a collective fails, *fault describes it and the
 * remaining nodes are skipped. */
void fig_host_work_run(fig_host_work *work, uint64_t *random, fig_host_fault *fault);

#endif
