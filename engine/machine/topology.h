/* topology.h: which cores and which memory lie together, as hwloc sees this machine.
 *
 * Knows no device: what lies beside one is for placement.h to say. A NUMA node goes by the number
 * that the system gives it. Invariant: where there is one node nothing is ever bound, and memory
 * that the system refuses to place lies anywhere. */
#ifndef FIG_ENGINE_TOPOLOGY_H
#define FIG_ENGINE_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_TOPOLOGY_LIST_BYTES = 256 };

typedef struct fig_topology fig_topology;

/* Of what the process may use: a container often has a part of its machine. */
typedef struct fig_topology_info {
    int32_t packages, cores, threads, nodes; /* 0 packages: the system tells none */
    char node_list[FIG_TOPOLOGY_LIST_BYTES]; /* "0-1", "0,8" */
} fig_topology_info;

/* synthetic: as hwloc writes a machine, "pack:2 [numa] core:4 pu:2"; NULL: this one. */
fig_status fig_topology_open(fig_topology **topology, const char *synthetic);
void fig_topology_close(fig_topology *topology);
void fig_topology_read_info(const fig_topology *topology, fig_topology_info *info);

int fig_topology_has_node(const fig_topology *topology, int32_t node);
/* The hardware threads beside a node, "0-3,8-11"; "" of one that is not there, or has none. Cut
 * short where more do not fit. */
void fig_topology_list_threads(const fig_topology *topology, int32_t node,
                               char list[FIG_TOPOLOGY_LIST_BYTES]);

/* Binds the calling thread to those beside the node that it may run on already or, if there is
 * none, to all of them. FIG_UNSUPPORTED: there are none, or the system forbids it. */
fig_status fig_topology_bind_thread(const fig_topology *topology, int32_t node);
/* 1: the calling thread may run beside the node; also where the system does not tell. */
int fig_topology_is_beside(const fig_topology *topology, int32_t node);

/* Whole pages, zeroed, that the system takes from the node as long as it has some, and else from
 * any. */
typedef struct fig_topology_block {
    int32_t node; /* in: one that there is */
    size_t bytes; /* in */
    void *address;
    int refusal; /* 0, or the error number with which the system refused to place it */
} fig_topology_block;
fig_status fig_topology_allocate(const fig_topology *topology, fig_topology_block *block);
/* address and bytes are those of a block. */
void fig_topology_release(const fig_topology *topology, void *address, size_t bytes);

#endif
