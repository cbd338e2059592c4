/* edges.h: the order that nodes must keep, as few edges as say it.
 *
 * Owns deriving edges from what nodes read and write, and leaving out what other edges imply;
 * lower.c reduces the edges of launches by it. Invariant: edges point forward, from < to. */
#ifndef FIG_GRAPHS_EDGES_H
#define FIG_GRAPHS_EDGES_H

#include "include/figraph.h"

typedef struct fig_edge {
    uint32_t from, to;
} fig_edge;

/* Node `node` reads or writes, FIG_ACCESS_*, tensor id `tensor`. */
typedef struct fig_edge_access {
    uint32_t node, tensor, access;
} fig_edge_access;

/* Read after write, write after read and write after write, reduced. Accesses come in the order of
 * their nodes, and are reordered. *edges is the caller's to free, NULL where there are none. */
fig_status fig_edges_derive(fig_edge **edges, uint32_t *edge_count, fig_edge_access *accesses,
                            uint32_t access_count);

/* Sorts by (to, from) and drops each edge that a path of others implies. */
fig_status fig_edges_reduce(fig_edge *edges, uint32_t *edge_count);

/* FIG_FORMAT: they do not point forward among so many nodes, or are not sorted by (to, from). */
fig_status fig_edges_check(const fig_edge *edges, uint32_t edge_count, uint32_t node_count);

#endif
