/* shared_rows.h: tells which graphs have steps with groups of rows that share pages, and how large
 * the groups may be.
 *
 * engine/plans/sharing.h finds the groups. Invariant: what the functions return does not depend on
 * who owns the page table. */
#ifndef FIG_GRAPHS_SHARED_ROWS_H
#define FIG_GRAPHS_SHARED_ROWS_H

#include "graphs/graphs.h"
#include "planner/prefixes/prefix_groups.h"

/* Returns the reason why steps of these graphs never have groups, whoever owns the page table, or
 * NULL if they may. */
const char *fig_shared_rows_refuse(const fig_graphs *graphs);
/* Returns 1 if groups are made even if their step takes longer. share: fig_engine_options.share. */
int fig_shared_rows_always(const fig_graphs *graphs, int32_t share);
/* Returns the most query tokens that the rows of all groups may have together, for a step that
 * takes a bucket of this shape or, if its plans have no strips, one with strips. */
int32_t fig_shared_rows_limit(const fig_plan_shape *shape);

#endif
