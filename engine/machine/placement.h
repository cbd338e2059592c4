/* placement.h: where an engine's ring lies, and beside what its thread runs.
 *
 * Owns the choice among the NUMA nodes; what there are topology.h tells, and which is a device's
 * the device itself. Invariant: a topology is held only where memory is to be placed, so a machine
 * of one node, or a caller who asks for nothing, never waits for one. */
#ifndef FIG_ENGINE_PLACEMENT_H
#define FIG_ENGINE_PLACEMENT_H

#include "engine/machine/topology.h"

typedef struct fig_placement_wish {
    int32_t numa_node;   /* of fig_engine_options */
    int32_t device_node; /* beside the device; -1: unknown, or all are */
    const char *system;  /* where the system tells of itself; NULL: "/sys" */
} fig_placement_wish;

typedef struct fig_placement {
    fig_topology *topology; /* NULL: memory lies anywhere */
    int32_t memory_node;    /* -1: anywhere */
    int32_t thread_node;    /* -1: unknown */
} fig_placement;

/* FIG_INVALID: there is no such node; the sentence names those that there are. A device's node that
 * this process may not use is as good as unknown. */
fig_status fig_placement_open(fig_placement *placement, const fig_placement_wish *wish);
/* Takes a zeroed struct; what was allocated has been released. */
void fig_placement_close(fig_placement *placement);

/* Zeroed and page-aligned; only where memory_node is one. */
fig_status fig_placement_allocate(const fig_placement *placement, size_t bytes, void **address);
void fig_placement_release(const fig_placement *placement, void *address, size_t bytes);

/* As fig_engine_bind_thread. */
fig_status fig_placement_bind_thread(const fig_placement *placement);

#endif
