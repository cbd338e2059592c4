/* worst.h: keeps the worst error of each kernel in each type, as a fraction of the tolerance.
 *
 * When the program ends, it prints a line for each kernel and type. tests/gpu/run collects these
 * lines:
 *
 *     worst attention f16 0.431
 *
 * Invariant: the lines are printed whether the program has passed or not. For one thread only. */
#ifndef FIG_TESTS_SUPPORT_WORST_H
#define FIG_TESTS_SUPPORT_WORST_H

#include "include/figraph.h"

/* kernel: only the part before the first space counts. tolerance: if it is not above 0, nothing is
 * noted. */
void fig_worst_note(const char *kernel, fig_dtype dtype, double error, double tolerance);

#endif
