/* histogram.h: finds the bin of a time in a fig_histogram.
 *
 * figraph.h declares the functions that add and read times. Use this header instead if another
 * thread may read the histogram at the same time: get the bin from here, and increment it yourself.
 * Invariant: 0 <= bin < FIG_HISTOGRAM_BINS for every time; a negative time counts as 0. */
#ifndef FIG_PLANNER_HISTOGRAM_H
#define FIG_PLANNER_HISTOGRAM_H

#include "include/figraph.h"

int32_t fig_histogram_bin(int64_t ns);

#endif
