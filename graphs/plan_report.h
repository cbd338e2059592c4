/* plan_report.h: reports the plan of a step for one split class.
 *
 * The public call fig_graphs_plan() reports on the first class. An inspection shows all classes. */
#ifndef FIG_GRAPHS_PLAN_REPORT_H
#define FIG_GRAPHS_PLAN_REPORT_H

#include "graphs/graphs.h"

/* Copies the fields that are inputs of a report: the caller's arrays, their capacities and the
 * description of rows that begin with the same pages. */
void fig_plan_report_take_inputs(fig_plan_report *report, const fig_plan_report *given);
/* Reports on class `split_class`, counted from 0. The caller sets size, and the arrays and
 * capacities of *report. For a program without attention the fields that describe a split stay
 * 0. */
fig_status fig_plan_report_class(const fig_graphs *graphs, const fig_step *step,
                                 int32_t split_class, fig_plan_report *report);

#endif
