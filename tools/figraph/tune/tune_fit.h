/* tune_fit.h: the four figures of a variant's model that come nearest to what was measured. */
#ifndef FIG_TOOLS_TUNE_FIT_H
#define FIG_TOOLS_TUNE_FIT_H

#include <figraph_tune.h>

enum { FIG_TUNE_FIT_MOST = 100000000 }; /* of a figure, as the library takes it */

/* A step: what the model knows of it, and what it took. */
typedef struct fig_tune_point {
    double bytes, pieces, segments, ns;
} fig_tune_point;

/* What the model says, in ns. */
double fig_tune_fit_predict(const fig_tune_costs *costs, const fig_tune_point *point);
/* The mean of how far the model is off, as a part of what was measured. */
double fig_tune_fit_off(const fig_tune_costs *costs, const fig_tune_point *points, int count);
/* Fills in the figures of *costs. Returns how far it is off; below 0: there is no point. */
double fig_tune_fit(const fig_tune_point *points, int count, fig_tune_costs *costs);

#endif
