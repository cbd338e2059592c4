/* capture.h: graphs that tests of files and of inspection start from.
 *
 * Each is made anew and is the caller's to destroy. Invariant: the mixed one holds tensors of every
 * role, calls, two layers and a node of no layer; that of breadth a node of every operation. */
#ifndef FIG_TESTS_SUPPORT_CAPTURE_H
#define FIG_TESTS_SUPPORT_CAPTURE_H

#include "include/figraph.h"

/* The standard step of a preset, with `layers` of them, lowered for `traits` in all its buckets. */
fig_graphs *fig_capture_preset(const char *preset, int32_t layers, const char *traits);
/* The mixed program in buckets of 1 x 128 and 4 x 64. */
fig_graphs *fig_capture_mixed(void);
/* The sample of every operation and feature, deterministic. */
fig_graphs *fig_capture_breadth(void);
/* The tutorial for the host, with records of what its variants cost. */
fig_graphs *fig_capture_tuned(void);

#endif
