/* check.h: a replayed step against the same step in float64.
 *
 * Each operation is judged on the inputs that it really had, rotated q and cache read back from the
 * device, so that an error is the operation's own. Where attention turns q and k by itself they may
 * stand as they were; it is then judged on them as float64 turns them. Invariant: every element of
 * every output of the step's rows is compared, and a NaN is never within tolerance. */
#ifndef FIG_TOOLS_CHECK_H
#define FIG_TOOLS_CHECK_H

#include "tools/figraph/step/session.h"

typedef struct fig_check {
    double worst_ulp; /* greatest error so far, in units in the last place of the magnitude */
    int64_t elements; /* compared so far */
} fig_check;

/* After a step has ended: reads its outputs, compares, brings mirrors up to date. Returns
 * FIG_EXIT_*; FIG_EXIT_FAILED with a sentence naming step, tensor, index, both values and
 * tolerance. */
int fig_check_step(fig_check *check, fig_session *session, const fig_schedule *schedule);
/* After the last step: no byte of any cache may differ from what was appended to it. */
int fig_check_caches(fig_check *check, fig_session *session);

#endif
