/* plan_report.h: what planning a step would do to one split class.
 *
 * The public call, fig_graphs_plan(), tells of the first; inspection shows them all. */
#ifndef FIG_GRAPHS_PLAN_REPORT_H
#define FIG_GRAPHS_PLAN_REPORT_H

#include "graphs/graphs.h"

/* split_class: from 0; ours, its worker_tiles and worker_capacity set. Of a program without
 * attention the parts that tell of a split stay 0. */
fig_status fig_plan_report_class(const fig_graphs *graphs, const fig_step *step,
                                 int32_t split_class, fig_plan_report *report);

#endif
