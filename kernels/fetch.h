/* fetch.h: what a kernel other than the fetch may tell the host by the fetch's words.
 *
 * Owned by fetch.c, so that every word that both sides see is written in one place. Invariant: a
 * replay is counted as missed at most once. */
#ifndef FIG_KERNELS_FETCH_H
#define FIG_KERNELS_FETCH_H

#include "kernels/params.h"

/* Counts a replay that became one of zero rows. */
void fig_fetch_miss(fig_fetch_words *words);

#endif
