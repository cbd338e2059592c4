/* check.h: compares a replayed step with the same step in float64.
 *
 * Each operation is checked on the inputs that it really had: rotated q and the cache are read back
 * from the device, so an error belongs to that operation. If attention does RoPE itself, it may
 * leave q and k unrotated; the check then rotates them in float64. Invariant: every element of
 * every output of the step's rows is compared, and a NaN is right only where a score makes one. */
#ifndef FIG_TOOLS_CHECK_H
#define FIG_TOOLS_CHECK_H

#include "tools/figraph/step/session.h"

typedef struct fig_check {
    double worst_ulp; /* the greatest error so far, in units in the last place of the magnitude */
    int64_t elements; /* the number of elements compared so far */
} fig_check;

/* Call it after a step has ended. Reads and compares the step's outputs and updates the mirrors.
 * Returns FIG_EXIT_*; with FIG_EXIT_FAILED the message names the step, tensor, index, both values
 * and the tolerance. */
int fig_check_step(fig_check *check, fig_session *session, const fig_schedule *schedule);
/* Call it after the last step. Checks that every byte of every cache equals its mirror. */
int fig_check_caches(fig_check *check, fig_session *session);

#endif
