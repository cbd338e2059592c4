/* turns.h: RoPE's angles in a launch's params, as lowering fills them in. */
#ifndef FIG_TESTS_SUPPORT_TURNS_H
#define FIG_TESTS_SUPPORT_TURNS_H

#include "kernels/common/params.h"
#include "tests/support/random.h"

/* Returns the angles that these terms give. */
fig_rope_angles fig_turns_of(const fig_rope_terms *terms);
/* Returns those angles or, once in three times, a random table that no formula gives. The table has
 * its own frequency for each rotated pair, and a factor. *has_table becomes 1 for a table. */
fig_rope_angles fig_turns_draw(fig_random *random, const fig_rope_terms *terms, int *has_table);

#endif
