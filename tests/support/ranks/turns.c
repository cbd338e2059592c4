/* turns.c: see turns.h. */
#include "tests/support/ranks/turns.h"

#include <math.h>
#include <string.h>

#include "planner/spec/frequencies.h"

fig_rope_angles fig_turns_of(const fig_rope_terms *terms) {
    fig_rope_spec rope = {0};
    memcpy(&rope, terms, sizeof *terms);
    return (fig_rope_angles){.table = fig_frequencies_of(&rope)};
}

fig_rope_angles fig_turns_draw(fig_random *random, const fig_rope_terms *terms, int *has_table) {
    fig_rope_angles angles = fig_turns_of(terms);
    *has_table = fig_random_range(random, 0, 2) == 0;
    if (!*has_table) return angles;
    angles.table.factor = 1.25 + 0.25 * (double)fig_random_float(random);
    for (int32_t i = 0; i < terms->rotary_dim / 2; i++)
        angles.table.frequencies[i] = exp(-7 - 7 * (double)fig_random_float(random));
    return angles;
}
