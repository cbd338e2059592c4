/* placement.h: chooses the NUMA node for the memory of an engine's ring, and for its thread.
 *
 * topology.h lists the nodes, and the device reports the node beside it. Invariant: a topology is
 * loaded only to place memory, so an engine does not wait for it if the machine has one node or if
 * no placement is needed. */
#ifndef FIG_ENGINE_PLACEMENT_H
#define FIG_ENGINE_PLACEMENT_H

#include "engine/machine/topology.h"

typedef struct fig_placement_wish {
    int32_t numa_node;   /* as in fig_engine_options */
    int32_t device_node; /* the node beside the device; -1: unknown, or all are equally near */
    const char *system;  /* the root of the system's files; NULL: "/sys" */
} fig_placement_wish;

typedef struct fig_placement {
    fig_topology *topology; /* NULL: memory may lie on any node */
    int32_t memory_node;    /* -1: any */
    int32_t thread_node;    /* -1: unknown */
} fig_placement;

/* FIG_INVALID: there is no such node; the message lists the nodes that exist. If this process may
 * not use the device's node, that node counts as unknown. */
fig_status fig_placement_open(fig_placement *placement, const fig_placement_wish *wish);
/* Accepts a zeroed struct. The caller must have released all memory allocated through
 * `placement`. */
void fig_placement_close(fig_placement *placement);

/* Allocates zeroed, page-aligned memory. Only valid if memory_node is a node. */
fig_status fig_placement_allocate(const fig_placement *placement, size_t bytes, void **address);
void fig_placement_release(const fig_placement *placement, void *address, size_t bytes);

/* Does the work of fig_engine_bind_thread(). */
fig_status fig_placement_bind_thread(const fig_placement *placement);

#endif
