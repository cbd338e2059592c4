/* member.h: opens and closes a rank's end of a group: the thread, and the state that the owner
 * shares with it.
 *
 * Invariant: fig_member_close() frees all of the rank's end. In a forked child it does nothing,
 * because the end belongs to the parent. */
#ifndef FIG_ENGINE_RANKS_MEMBER_H
#define FIG_ENGINE_RANKS_MEMBER_H

#include "engine/ranks/group.h"

/* Opens a rank's end and takes over the connections in `links`, even on failure. `links` comes from
 * fig_rendezvous_meet(). The caller sets count, rank, local_rank, process_count and timeout_us of
 * `info`. */
fig_status fig_member_open(fig_ranks **ranks, const fig_ranks_info *info, int *links);
/* Accepts NULL. */
void fig_member_close(fig_ranks *ranks);

#endif
