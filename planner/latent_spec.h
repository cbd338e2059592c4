/* latent_spec.h: checks the fields of a spec whose attention is latent. */
#ifndef FIG_PLANNER_LATENT_SPEC_H
#define FIG_PLANNER_LATENT_SPEC_H

#include "include/figraph.h"

enum {
    FIG_LATENT_SPEC_DIM = 512,
    FIG_LATENT_SPEC_KEY_DIM = 576,
    FIG_LATENT_SPEC_HEAD_UNIT = 8,
    FIG_LATENT_SPEC_HEAD_LIMIT = 128,
    FIG_LATENT_SPEC_ROW_TOKENS = 8 /* 8 heads of 8 query tokens fill the 64 vectors of a tile */
};

/* Checks the fields of a spec whose latent_dim is not 0. A refusal names field, value and limit. */
fig_status fig_latent_spec_check(const fig_spec *spec);
/* Checks that RoPE rotates all values behind the latent. A spec without latent_dim passes. */
fig_status fig_latent_spec_check_rope(const fig_spec *resolved);

#endif
