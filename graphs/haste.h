/* haste.h: what a launch may do before the launches before it have ended.
 *
 * Owns the law of programmatic edges as far as it can be told from the graph: before its wait a
 * launch may read what was written two or more edges up, never one. Beside it stands what a launch
 * may rely on of its cache. Invariant: 0 is always right. */
#ifndef FIG_GRAPHS_HASTE_H
#define FIG_GRAPHS_HASTE_H

#include "graphs/lower.h"

/* FIG_ATTENTION_* of every launch, which are the same in every bucket; 0 of what is no attention.
 * Launches and edges are there. *haste is the caller's to free, NULL on failure. */
fig_status fig_haste_find(uint32_t **haste, const fig_program_view *view,
                          const fig_lowered *lowered);

#endif
