/* tune_lean.h: adjusts the figures of a class's variants so that the predicted choice is the
 * fastest. */
#ifndef FIG_TOOLS_TUNE_LEAN_H
#define FIG_TOOLS_TUNE_LEAN_H

#include "tools/figraph/tune/tune_fit.h"

/* A step of attention in one variant of its class. */
typedef struct fig_tune_trial {
    fig_tune_point point;
    int32_t cell, variant; /* variant: an index into the costs */
} fig_tune_trial;

typedef struct fig_tune_trials {
    fig_tune_trial *rows; /* [count], trials of one cell are adjacent */
    int32_t count;
} fig_tune_trials;

/* Returns a sum over the cells of log(t / least): t is the time of the variant that is cheapest by
 * the costs, and `least` the time of the fastest variant. */
double fig_tune_lean_lost(const fig_tune_trials *trials, const fig_tune_costs *costs);
/* Writes adjusted figures to leaned[count]; their choices lose no more time than those by
 * fitted[count]. bytes_per_us is not changed, and every other figure by at most a quarter. */
void fig_tune_lean(const fig_tune_trials *trials, const fig_tune_costs *fitted, int count,
                   fig_tune_costs *leaned);

#endif
