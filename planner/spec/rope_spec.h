/* rope_spec.h: checks a fig_rope_spec and fills in its defaults.
 *
 * Owns the limits of the spec's fields; frequencies.h computes frequencies. Invariant: a failure
 * leaves *out all zeros. */
#ifndef FIG_PLANNER_ROPE_SPEC_H
#define FIG_PLANNER_ROPE_SPEC_H

#include "include/figraph.h"

/* head_dim: the head_dim of the heads that RoPE rotates. A refusal names field, value and limit. */
fig_status fig_rope_spec_resolve(const fig_rope_spec *rope, int32_t head_dim, fig_rope_spec *out);

#endif
