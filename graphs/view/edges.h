/* edges.h: derives the order that nodes must keep, as the fewest edges that express it.
 *
 * Derives edges from the accesses of nodes, and removes edges that other edges imply. lower.c also
 * uses this file to reduce the edges between launches. Invariant: edges point forward, from <
 * to. */
#ifndef FIG_GRAPHS_EDGES_H
#define FIG_GRAPHS_EDGES_H

#include "include/figraph_inspect.h"

/* Node `node` accesses tensor id `tensor`; access: FIG_ACCESS_*. */
typedef struct fig_edge_access {
    uint32_t node, tensor, access;
} fig_edge_access;

/* Derives the reduced edges for read after write, write after read and write after write. The
 * accesses must be in node order; the call reorders them. The caller frees *edges, which is NULL if
 * there are none. */
fig_status fig_edges_derive(fig_edge **edges, uint32_t *edge_count, fig_edge_access *accesses,
                            uint32_t access_count);

/* Sorts by (to, from) and drops each edge that a path of other edges implies. */
fig_status fig_edges_reduce(fig_edge *edges, uint32_t *edge_count);

/* Checks edges. FIG_FORMAT: an edge does not point forward among `node_count` nodes, or the edges
 * are not sorted by (to, from). */
fig_status fig_edges_check(const fig_edge *edges, uint32_t edge_count, uint32_t node_count);

#endif
