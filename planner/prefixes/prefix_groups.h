/* prefix_groups.h: connects prefixes.h with strips: gives prefixes.h the costs of strips, and
 * converts its groups.
 *
 * prefixes.c takes costs in any unit and counts pages; strips count kv tokens. Invariant: the
 * groups that are taken have no more query tokens than the limit. */
#ifndef FIG_PLANNER_PREFIX_GROUPS_H
#define FIG_PLANNER_PREFIX_GROUPS_H

#include "planner/plans/strip_groups.h"
#include "planner/prefixes/prefixes.h"

/* Returns the costs of strips of this shape. Only rows whose queries fit into half a strip may
 * share: a longer row fills its strips by itself. */
fig_prefixes_costs fig_prefix_groups_costs(const fig_strips_shape *shape, int32_t page_tokens);
/* Returns the costs for rows that are served by the split's launch, not by strips, unless they are
 * in a group. Rows that read the same pages find them in L2, and groups need a second launch. */
fig_prefixes_costs fig_prefix_groups_split_costs(const fig_strips_shape *shape,
                                                 int32_t page_tokens);

/* Writes the groups to `groups` [prefixes->group_count] and returns their number. Takes an
 * outermost group, with all groups inside it, if the query tokens of all rows taken so far stay
 * within `limit`; otherwise skips these groups. The rows of a group are entries of
 * prefixes->members. */
int32_t fig_prefix_groups_take(const fig_prefixes *prefixes, int32_t limit,
                               fig_strip_group *groups);

/* KV tokens of groups, for one kv head. */
typedef struct fig_prefix_reads {
    int64_t read;  /* what the strips of the groups read */
    int64_t saved; /* what the rows would have read in addition without groups */
} fig_prefix_reads;
/* Adds those of a group whose rows have `queries` query tokens together. */
void fig_prefix_groups_count(const fig_strips_shape *shape, const fig_strip_group *group,
                             int64_t queries, fig_prefix_reads *reads);

#endif
