/* member.h: opens and closes a rank's end of a group: what its owner and its thread share, and the
 * thread. Invariant: close leaves nothing of it, but in a child that was forked, which has nothing
 * of it to close. */
#ifndef FIG_ENGINE_RANKS_MEMBER_H
#define FIG_ENGINE_RANKS_MEMBER_H

#include "engine/ranks/group.h"

/* Takes the connections over, on failure too: links are those of fig_rendezvous_meet. Of `info`
 * count, rank, local_rank, process_count and timeout_us are given. */
fig_status fig_member_open(fig_ranks **ranks, const fig_ranks_info *info, int *links);
/* Takes NULL. */
void fig_member_close(fig_ranks *ranks);

#endif
