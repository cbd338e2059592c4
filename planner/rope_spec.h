/* rope_spec.h: what a fig_rope_spec may say, and its defaults filled in.
 *
 * Owns the limits of its fields; angles are frequencies.h's. Invariant: what fails leaves zeros. */
#ifndef FIG_PLANNER_ROPE_SPEC_H
#define FIG_PLANNER_ROPE_SPEC_H

#include "include/figraph.h"

/* head_dim is that of the heads to turn; the sentence names field, value and limit. */
fig_status fig_rope_spec_resolve(const fig_rope_spec *rope, int32_t head_dim, fig_rope_spec *out);

#endif
