/* group.h: what the library asks of a group of ranks beside what callers do.
 *
 * Owns the words that are set when a group is lost, so that what spins on a device stops without
 * being told by a call. Invariant: a word that is watched turns from 0 to 1 once, at the latest
 * when fig_ranks_check answers FIG_LOST, and is not touched after unwatch has returned. */
#ifndef FIG_ENGINE_RANKS_GROUP_H
#define FIG_ENGINE_RANKS_GROUP_H

#include "include/figraph_ranks.h"

enum { FIG_GROUP_WATCH_LIMIT = 64 }; /* words at once */

/* `word` is 0, mapped and aligned; where the group is already lost it is 1 on return. A kernel that
 * waits for another rank looks at it in pinned memory. FIG_TOO_LARGE: too many are watched. */
fig_status fig_group_watch(fig_ranks *ranks, volatile uint32_t *word);
void fig_group_unwatch(fig_ranks *ranks, volatile uint32_t *word);

#endif
