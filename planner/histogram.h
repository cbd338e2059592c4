/* histogram.h: which bin of a fig_histogram a time is in.
 *
 * Adding and reading are figraph.h's; who adds while others read asks for the bin and adds to it
 * himself. Invariant: 0 <= bin < FIG_HISTOGRAM_BINS for every time, which is 0 where it is less. */
#ifndef FIG_PLANNER_HISTOGRAM_H
#define FIG_PLANNER_HISTOGRAM_H

#include "include/figraph.h"

int32_t fig_histogram_bin(int64_t ns);

#endif
