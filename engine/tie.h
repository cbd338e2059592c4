/* tie.h: how many pieces of callers' graphs hold nodes of an engine.
 *
 * A graph keeps what was appended to it until it and every exec made of it are destroyed, and the
 * driver says so on a thread of its own, some time later; so the count is an atomic, and outlives
 * the engine where a graph does. Invariant: the engine and each piece hold one end, and whoever
 * lets go last frees it. */
#ifndef FIG_ENGINE_TIE_H
#define FIG_ENGINE_TIE_H

#include <stdint.h>

typedef struct fig_tie fig_tie;

/* With the engine's own end; NULL: no memory. */
fig_tie *fig_tie_create(void);
/* One end more: a piece's. */
void fig_tie_take(fig_tie *tie);
/* Lets go of one end; `tie` is a fig_tie, NULL is nothing. As a destructor that the driver calls it
 * takes what it gets, and calls no driver. Any thread may call. */
void fig_tie_drop(void *tie);
/* Pieces that live; the engine's thread alone makes more. */
uint32_t fig_tie_pieces(const fig_tie *tie);

#endif
