/* tune_lean.h: figures of a class's variants leaned so that the cheapest by them is the fastest. */
#ifndef FIG_TOOLS_TUNE_LEAN_H
#define FIG_TOOLS_TUNE_LEAN_H

#include "tools/figraph/tune/tune_fit.h"

/* A step of attention in one variant of its class. */
typedef struct fig_tune_trial {
    fig_tune_point point;
    int32_t cell, variant; /* variant: an index into the costs */
} fig_tune_trial;

typedef struct fig_tune_trials {
    fig_tune_trial *rows; /* [count], those of a cell beside each other */
    int32_t count;
} fig_tune_trials;

/* The sum, over the cells, of the logarithm of how much longer the variant that the costs make the
 * cheapest takes than the fastest. */
double fig_tune_lean_lost(const fig_tune_trials *trials, const fig_tune_costs *costs);
/* leaned[count] starts as fitted[count] and loses no more than it does. bytes_per_us stays, and no
 * other figure goes further than a quarter from what was fitted. */
void fig_tune_lean(const fig_tune_trials *trials, const fig_tune_costs *fitted, int count,
                   fig_tune_costs *leaned);

#endif
