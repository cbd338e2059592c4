/* latent_spec.h: checks the fields of a spec whose attention is latent. */
#ifndef FIG_PLANNER_LATENT_SPEC_H
#define FIG_PLANNER_LATENT_SPEC_H

#include "include/figraph.h"

enum {
    FIG_LATENT_SPEC_DIM = 512,
    FIG_LATENT_SPEC_KEY_DIM = 576,
    FIG_LATENT_SPEC_HEAD_UNIT = 8,
    FIG_LATENT_SPEC_HEAD_LIMIT = 128,
    FIG_LATENT_SPEC_ROW_TOKENS = 16,
    /* A worker reads a tile for whole units of q heads, or for a part if rows have more query
     * tokens than this. */
    FIG_LATENT_SPEC_UNIT_TOKENS = 8,
    FIG_LATENT_SPEC_HEAD_PART = 4
};

/* Checks the fields of a spec whose latent_dim is not 0. A refusal names field, value and limit. */
fig_status fig_latent_spec_check(const fig_spec *spec);
/* Returns the most groups into which the q heads of such a spec are divided. */
int32_t fig_latent_spec_groups(const fig_spec *spec);
/* Checks that RoPE, whose defaults are filled in, rotates all values behind the latent. A spec
 * without latent_dim passes. */
fig_status fig_latent_spec_check_rope(const fig_spec *resolved);

#endif
