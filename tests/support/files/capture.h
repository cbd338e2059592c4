/* capture.h: makes the graphs from which tests of files and of inspection start.
 *
 * Each call makes new graphs, which the caller destroys. Invariant: the mixed graphs have tensors
 * of every role, calls, two layers and a node without a layer. The graphs of breadth have a node of
 * every operation. */
#ifndef FIG_TESTS_SUPPORT_CAPTURE_H
#define FIG_TESTS_SUPPORT_CAPTURE_H

#include "include/figraph.h"

/* Lowers the standard step of a preset, cut to `layers` layers, in all its buckets for a
 * machine. */
fig_graphs *fig_capture_preset(const char *preset, int32_t layers, const char *traits);
/* Lowers the mixed program in buckets of 1 x 128 and 4 x 64. */
fig_graphs *fig_capture_mixed(void);
/* Lowers a program with every operation and feature. The graphs are deterministic. */
fig_graphs *fig_capture_breadth(void);
/* Lowers the tutorial for the host, and adds records of its variants' costs. */
fig_graphs *fig_capture_tuned(void);

#endif
