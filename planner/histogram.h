/* histogram.h: finds the bin of a time in a fig_histogram.
 *
 * figraph.h declares the functions that add and read times. A program whose histogram another
 * thread may read at the same time gets the bin from here, and increments that bin itself.
 * Invariant: 0 <= bin < FIG_HISTOGRAM_BINS for every time; a negative time counts as 0. */
#ifndef FIG_PLANNER_HISTOGRAM_H
#define FIG_PLANNER_HISTOGRAM_H

#include "include/figraph.h"

int32_t fig_histogram_bin(int64_t ns);

#endif
