/* topology.h: reports which cores and which memory are near each other, according to hwloc.
 *
 * It does not handle devices; placement.h finds the node beside a device. NUMA nodes have the
 * numbers that the system gives them. Invariant: on a machine with one node, no thread and no
 * memory is ever bound. Memory that the system refuses to place may lie on any node. */
#ifndef FIG_ENGINE_TOPOLOGY_H
#define FIG_ENGINE_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_TOPOLOGY_LIST_BYTES = 256 };

typedef struct fig_topology fig_topology;

/* The part of the machine that the process may use; in a container this is often not the whole
 * machine. */
typedef struct fig_topology_info {
    int32_t packages, cores, threads, nodes; /* 0 packages: unknown */
    char node_list[FIG_TOPOLOGY_LIST_BYTES]; /* "0-1", "0,8" */
} fig_topology_info;

/* synthetic: a machine as hwloc describes it, "pack:2 [numa] core:4 pu:2"; NULL: this machine. */
fig_status fig_topology_open(fig_topology **topology, const char *synthetic);
void fig_topology_close(fig_topology *topology);
void fig_topology_read_info(const fig_topology *topology, fig_topology_info *info);

int fig_topology_has_node(const fig_topology *topology, int32_t node);
/* Lists the hardware threads beside a node, "0-3,8-11"; "": there is no such node, or it has no
 * hardware threads. The list is cut short if it does not fit. */
void fig_topology_list_threads(const fig_topology *topology, int32_t node,
                               char list[FIG_TOPOLOGY_LIST_BYTES]);

/* Binds the calling thread to those hardware threads beside the node on which it may already run.
 * If there are none, binds it to all hardware threads beside the node. FIG_UNSUPPORTED: the node
 * has no hardware threads, or the system forbids the binding. */
fig_status fig_topology_bind_thread(const fig_topology *topology, int32_t node);
/* Returns 1 if the calling thread may run beside the node, or if the system does not report
 * this. */
int fig_topology_is_beside(const fig_topology *topology, int32_t node);

/* Memory on a node: whole pages, zeroed. The system takes the pages from that node as long as it
 * has free pages, and then from any node. */
typedef struct fig_topology_block {
    int32_t node; /* in: an existing node */
    size_t bytes; /* in */
    void *address;
    /* 0, or the error number with which the system refused to place the memory */
    int refusal;
} fig_topology_block;
fig_status fig_topology_allocate(const fig_topology *topology, fig_topology_block *block);
/* Frees the memory of a block, given by its `address` and `bytes`. */
void fig_topology_release(const fig_topology *topology, void *address, size_t bytes);

#endif
