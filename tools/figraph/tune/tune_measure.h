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
    fig_tune_class of; /* as fig_tune_measure_flatten() leaves it */
} fig_tune_subject;

/* Rewrites a class with several query tokens per row as a class with one token per row and more q
 * heads, so that the same number of vectors shares a kv head. Returns 0 if there are too many
 * vectors. */
int fig_tune_measure_flatten(fig_tune_class *of);
/* Adds the times of each variant that serves, cell by cell. The result of each is checked before it
 * is timed. Returns FIG_EXIT_*. */
int fig_tune_measure(const fig_tune_subject *subject, const fig_bench_machine *machine,
                     fig_tune_times *times);

#endif
