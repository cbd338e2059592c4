/* prefix_groups.h: what shared prefixes cost strips, and the groups as strips take them.
 *
 * prefixes.c chooses groups by costs in any unit, and counts in pages; strips count in kv tokens.
 * Invariant: the groups that are taken have no more query tokens than the limit. */
#ifndef FIG_PLANNER_PREFIX_GROUPS_H
#define FIG_PLANNER_PREFIX_GROUPS_H

#include "planner/prefixes/prefixes.h"
#include "planner/strip_groups.h"

/* Returns the costs of strips of this shape. Only rows whose queries fit half a strip take part:
 * the strips of longer rows are as full without others. */
fig_prefixes_costs fig_prefix_groups_costs(const fig_strips_shape *shape, int32_t page_tokens);

/* Writes the groups to `groups` [prefixes->group_count] and returns their number. Takes a group
 * with all groups inside it as long as the query tokens of all its rows are within `limit`. The
 * rows of a group are entries of prefixes->members. */
int32_t fig_prefix_groups_take(const fig_prefixes *prefixes, int32_t limit,
                               fig_strip_group *groups);

#endif
