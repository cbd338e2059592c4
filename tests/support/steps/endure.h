/* endure.h: stages and runs steps for a long time, and watches what the process holds.
 *
 * The work is divided into ten stretches. After each, a line reports the memory of the process and
 * of the GPU, the numbers of descriptors and threads, and the time of a turn. Whatever grows
 * without end has grown between the second stretch and the last. The first stretch does not count,
 * since memory that stays is first touched and loaded there. No turn may call a function that
 * allocates, opens something or starts a thread (fault.h). Invariant: between the second stretch
 * and the last, this code allocates nothing either. */
#ifndef FIG_TESTS_SUPPORT_ENDURE_H
#define FIG_TESTS_SUPPORT_ENDURE_H

#include "include/figraph.h"

typedef struct fig_endure_options {
    /* how often to stage a step and take it back; every 64th is launched instead */
    int64_t stagings;
    int64_t steps;
    /* 1: no other process uses the GPU, and this machine is almost idle otherwise. Then the GPU's
     * free memory and the times are checked too. */
    int alone;
} fig_endure_options;

/* Run on the device of FIG_DEVICE, and fail the test if something grew. */
void fig_endure_stagings(const fig_endure_options *options);
void fig_endure_steps(const fig_endure_options *options);

#endif
