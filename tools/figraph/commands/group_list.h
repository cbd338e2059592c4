/* group_list.h: shows the groups of rows that share pages, for figraph plan.
 *
 * Owns the arrays in which a report lists groups. Invariant: text and JSON have the same
 * numbers. */
#ifndef FIG_TOOLS_GROUP_LIST_H
#define FIG_TOOLS_GROUP_LIST_H

#include <figraph.h>

#include "tools/figraph/terminal/emit.h"

typedef struct fig_group_list {
    int32_t *rows, *firsts, *ends; /* [shared_groups] */
    int32_t *prefix_tiles;         /* [strip_workers] */
} fig_group_list;

/* Makes arrays for the groups and workers that a report has counted, and names them in the report.
 * Returns FIG_EXIT_*. Call finish after a failure too. */
int fig_group_list_make(fig_group_list *list, fig_plan_report *report);
void fig_group_list_finish(fig_group_list *list);

/* Prints the groups, or why there are none. */
void fig_group_list_print(const fig_group_list *list, const fig_plan_report *report);
/* Prints an object with the key "shared". */
void fig_group_list_emit(fig_emit *emit, const fig_group_list *list, const fig_plan_report *report);

#endif
