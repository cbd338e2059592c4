/* endure.h: so many stagings and so many steps, and what the process holds meanwhile.
 *
 * The work is cut in ten stretches; after each it says on one line how much memory the process and
 * the GPU have, how many descriptors and threads, and what a turn took. What grows without end has
 * grown between the second stretch and the last: the first is left out, for in it memory is touched
 * and loaded that stays. Nor does a turn call what allocates, opens or starts a thread (fault.h).
 * Invariant: between those two stretches nothing here allocates either. */
#ifndef FIG_TESTS_SUPPORT_ENDURE_H
#define FIG_TESTS_SUPPORT_ENDURE_H

#include "include/figraph.h"

typedef struct fig_endure_options {
    int64_t stagings; /* stage and take back; one in 64 is launched instead */
    int64_t steps;
    int alone; /* 1: nobody else uses the GPU or, much, this machine, so that the memory which is
                  free there and the times are judged too */
} fig_endure_options;

/* On the device that FIG_DEVICE says; fails the test where something grew. */
void fig_endure_stagings(const fig_endure_options *options);
void fig_endure_steps(const fig_endure_options *options);

#endif
