/* haste.h: what a launch may do before the launches before it have ended.
 *
 * Owns the law of programmatic edges, as block.cuh states it, as far as it can be told from the
 * graph: a launch that does not come right behind one that makes the plan may read the plan before
 * its wait, and lets the launches behind it begin at once. Beside it stands what a launch may rely
 * on of its cache. Invariant: 0 is always right. */
#ifndef FIG_GRAPHS_HASTE_H
#define FIG_GRAPHS_HASTE_H

#include "graphs/lower.h"

/* Sets common->haste: FIG_HASTE_* or FIG_ATTENTION_* of every launch. Launches and edges are there.
 */
fig_status fig_haste_find(fig_lower_common *common);
/* The same as if the plan had been there for long: haste is [count], of the view's launches. */
fig_status fig_haste_list(const fig_program_view *view, const fig_launch *launches, uint32_t count,
                          uint32_t *haste);

#endif
