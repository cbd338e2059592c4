/* share.h: computes the part of a model that one of several ranks holds.
 *
 * Owns the rules by which extents are divided. Invariant: the shares of all ranks are equal, and
 * together they are the whole. The exception is a model with fewer kv heads than ranks: each rank
 * then holds the kv head that its q heads read. */
#ifndef FIG_PLANNER_SHARE_H
#define FIG_PLANNER_SHARE_H

#include "include/figraph_parallel.h"

/* How an extent is divided. The rule depends on what the extent counts. */
typedef enum fig_share_rule {
    FIG_SHARE_WHOLE = 0, /* every rank has all of it */
    FIG_SHARE_Q_HEADS,
    FIG_SHARE_KV_HEADS, /* if there are fewer kv heads than ranks, each rank has one */
    FIG_SHARE_COLUMNS   /* columns of an activation */
} fig_share_rule;

/* Fails with FIG_INVALID if the number of ranks is out of range. */
fig_status fig_share_check_ranks(int32_t ranks);
/* Returns 1 if the rule can divide `whole`; *part is then a rank's part. Otherwise returns 0 and
 * sets *part to the divisor for the error message. The divisor is `ranks`, because `whole` must be
 * a multiple of it; or, if there are fewer kv heads than ranks, it is `whole`, because `ranks` must
 * be a multiple of it. */
int fig_share_divide(fig_share_rule rule, int64_t whole, int32_t ranks, int64_t *part);

#endif
