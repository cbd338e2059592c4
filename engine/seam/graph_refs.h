/* graph_refs.h: counts the pieces of callers' graphs that hold an engine's nodes.
 *
 * A piece is the set of nodes that one append adds to a capture. A caller's graph keeps these nodes
 * until the graph and every exec made from it are destroyed. The driver reports the destruction
 * some time later, on one of its threads. So the count is atomic, and it outlives the engine if a
 * graph does. Invariant: the engine and each piece hold one reference, and the drop of the last
 * reference frees the count. */
#ifndef FIG_ENGINE_GRAPH_REFS_H
#define FIG_ENGINE_GRAPH_REFS_H

#include <stdint.h>

typedef struct fig_graph_refs fig_graph_refs;

/* Returns a count with one reference, which belongs to the engine, or NULL if there is no
 * memory. */
fig_graph_refs *fig_graph_refs_create(void);
/* Adds the reference of a piece. */
void fig_graph_refs_take(fig_graph_refs *refs);
/* Drops one reference. `refs` is a fig_graph_refs or NULL. The driver calls this function as a
 * destructor, so the function takes a void pointer and makes no driver call. Any thread may call
 * it. */
void fig_graph_refs_drop(void *refs);
/* Returns the number of pieces that still exist. Only the engine's thread adds pieces. */
uint32_t fig_graph_refs_pieces(const fig_graph_refs *refs);

#endif
