/* tune_measure.h: times every variant of a class on the machine at hand. */
#ifndef FIG_TOOLS_TUNE_MEASURE_H
#define FIG_TOOLS_TUNE_MEASURE_H

#include "tools/figraph/bench/bench_rig.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/tune/tune_times.h"

typedef struct fig_tune_subject {
    const fig_graphs *graphs;
    fig_graphs_info info;
    int32_t split_class;
    fig_tune_class of; /* with the rows that its query tokens make of its q heads */
} fig_tune_subject;

/* Rows of a class as one of one token a row: as many vectors share a kv head. 0: too many do. */
int fig_tune_measure_flatten(fig_tune_class *of);
/* Adds the times of each variant that serves, cell by cell; each is checked before it is timed.
 * Returns FIG_EXIT_*. */
int fig_tune_measure(const fig_tune_subject *subject, const fig_bench_machine *machine,
                     fig_tune_times *times);

#endif
