/* worst.h: the worst error of each kernel in each type, in parts of what is tolerated.
 *
 * When the program ends it prints a line for each, which tests/gpu/run gathers:
 *
 *     worst attention f16 0.431
 *
 * Invariant: a line is printed whether the program passed or not. One thread. */
#ifndef FIG_TESTS_SUPPORT_WORST_H
#define FIG_TESTS_SUPPORT_WORST_H

#include "include/figraph.h"

/* kernel: up to its first space, if any; tolerance above 0, or nothing is noted. */
void fig_worst_note(const char *kernel, fig_dtype dtype, double error, double tolerance);

#endif
