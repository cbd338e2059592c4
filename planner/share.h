/* share.h: how much of a model one of several ranks holds.
 *
 * Owns the rule for each thing that is divided. Invariant: the shares of all ranks are equal, and
 * together they are the whole, or, of kv heads where there are fewer than ranks, each rank has the
 * one that its q heads read. */
#ifndef FIG_PLANNER_SHARE_H
#define FIG_PLANNER_SHARE_H

#include "include/figraph_parallel.h"

/* What an extent counts, and so how it is divided. */
typedef enum fig_share_rule {
    FIG_SHARE_WHOLE = 0, /* every rank has all of it */
    FIG_SHARE_Q_HEADS,
    FIG_SHARE_KV_HEADS, /* one for each rank where there are fewer than ranks */
    FIG_SHARE_COLUMNS   /* of an activation */
} fig_share_rule;

/* FIG_INVALID: there is no such number of ranks. */
fig_status fig_share_check_ranks(int32_t ranks);
/* 1: `whole` can be divided so, and *part is a rank's; 0: *part is what it must be a multiple of
 * or, where there are fewer kv heads than ranks, what the ranks must be a multiple of: `whole`. */
int fig_share_divide(fig_share_rule rule, int64_t whole, int32_t ranks, int64_t *part);

#endif
