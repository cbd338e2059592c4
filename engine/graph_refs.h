/* graph_refs.h: how many pieces of callers' graphs hold nodes of an engine.
 *
 * A graph keeps what was appended to it until it and every exec made of it are destroyed, and the
 * driver says so on a thread of its own, some time later; so the count is atomic, and outlives
 * the engine where a graph does. Invariant: the engine and each piece hold one reference, and
 * whoever drops the last one frees it. */
#ifndef FIG_ENGINE_GRAPH_REFS_H
#define FIG_ENGINE_GRAPH_REFS_H

#include <stdint.h>

typedef struct fig_graph_refs fig_graph_refs;

/* Holds one reference, the engine's own. NULL: no memory. */
fig_graph_refs *fig_graph_refs_create(void);
/* One reference more: a piece's. */
void fig_graph_refs_take(fig_graph_refs *refs);
/* Drops one reference; `refs` is a fig_graph_refs, and NULL is allowed. The driver calls it as a
 * destructor, so it takes a void pointer and calls no driver. Any thread may call. */
void fig_graph_refs_drop(void *refs);
/* Pieces that live; the engine's thread alone makes more. */
uint32_t fig_graph_refs_pieces(const fig_graph_refs *refs);

#endif
