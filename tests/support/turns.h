/* turns.h: the angles of a launch's params, as lowering fills them in. */
#ifndef FIG_TESTS_SUPPORT_TURNS_H
#define FIG_TESTS_SUPPORT_TURNS_H

#include "kernels/params.h"
#include "tests/support/random.h"

/* What the terms come to. */
fig_rope_angles fig_turns_of(const fig_rope_terms *terms);
/* That or, once in three times, a table that no formula has: frequencies of its own for each pair
 * that turns, and a factor. *has_table: 1 where it is one. */
fig_rope_angles fig_turns_draw(fig_random *random, const fig_rope_terms *terms, int *has_table);

#endif
