/* haste.h: what a launch may do before the launches before it have ended.
 *
 * Owns the law of programmatic edges as far as it can be told from the graph: before its wait a
 * launch may read what was written two or more edges up, never one. Invariant: 0 is always right. */
#ifndef FIG_GRAPHS_HASTE_H
#define FIG_GRAPHS_HASTE_H

#include "graphs/lower.h"

/* FIG_ATTENTION_* of a launch whose edges are there. */
uint32_t fig_haste_of(const fig_program_view *view, const fig_lowered *lowered, uint32_t launch);

#endif
