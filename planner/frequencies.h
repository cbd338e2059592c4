/* frequencies.h: radians per position of each pair of a head, whatever says them.
 *
 * Owns the formulas of figraph.h and figraph_rope.h and what a table may hold. Invariant: they are
 * computed in long double and rounded once, so that every machine finds the same bits. */
#ifndef FIG_PLANNER_FREQUENCIES_H
#define FIG_PLANNER_FREQUENCIES_H

#include <assert.h>

#include "include/figraph.h"

enum { FIG_FREQUENCY_LIMIT = 128 }; /* pairs of a head that turn */
static_assert(sizeof(((fig_rope_table *)0)->frequencies) == FIG_FREQUENCY_LIMIT * sizeof(double),
              "a frequency for each pair");

/* 1: there are frequencies in it. */
int fig_frequencies_has_table(const fig_rope_table *table);
/* Fills in the default; the sentence begins with `name` and names field and value. rope: resolved.
 */
fig_status fig_frequencies_resolve(const char *name, const fig_rope_spec *rope,
                                   fig_rope_table *table);
/* What rope says without a table; resolved, and its rotary_dim is at most twice the limit. */
fig_rope_table fig_frequencies_of(const fig_rope_spec *rope);

#endif
