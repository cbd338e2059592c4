/* frequencies.h: computes the RoPE frequency, in radians per position, of each pair of a head.
 *
 * Owns the formulas that figraph.h and figraph_rope.h describe, and checks tables. Invariant:
 * frequencies are computed in long double and rounded once, so every machine gets the same bits. */
#ifndef FIG_PLANNER_FREQUENCIES_H
#define FIG_PLANNER_FREQUENCIES_H

#include <assert.h>

#include "include/figraph.h"

enum { FIG_FREQUENCY_LIMIT = 128 }; /* pairs of a head that RoPE rotates */
static_assert(sizeof(((fig_rope_table *)0)->frequencies) == FIG_FREQUENCY_LIMIT * sizeof(double),
              "a frequency for each pair");

/* Returns 1 if the table holds frequencies. */
int fig_frequencies_has_table(const fig_rope_table *table);
/* Returns a table that rotates nothing: it has no frequencies and a factor of 1. Only nodes may
 * hold such a table; in a table from a caller it is more likely a mistake. */
fig_rope_table fig_frequencies_still(void);
/* Returns 1 if the table rotates nothing. */
int fig_frequencies_is_still(const fig_rope_table *table);
/* Checks a table and fills in its default factor. An error message begins with `name` and names
 * field and value. `rope` is resolved. */
fig_status fig_frequencies_resolve(const char *name, const fig_rope_spec *rope,
                                   fig_rope_table *table);
/* Computes the table of `rope` from its terms. `rope` is resolved, and its rotary_dim is at most 2
 * * FIG_FREQUENCY_LIMIT. */
fig_rope_table fig_frequencies_of(const fig_rope_spec *rope);

#endif
