/* post.h: the thread of a group, which alone touches its connections.
 *
 * Rank 0's collects what all give to a call and sends it to all; the others' send and receive. Each
 * notices when a connection ends without a word of parting, and loses the group. Invariant: the
 * thread waits for a peer to take bytes no longer than the group's timeout, and otherwise waits for
 * all connections and its owner at once. */
#ifndef FIG_ENGINE_RANKS_POST_H
#define FIG_ENGINE_RANKS_POST_H

#include "engine/ranks/group.h"

typedef struct fig_post fig_post;

/* links: [count], as of fig_rendezvous_meet; the post's from here on, on failure too. */
fig_status fig_post_open(fig_post **post, const fig_ranks_info *info, int *links);
void fig_post_close(fig_post *post); /* takes NULL; the thread has ended */
void *fig_post_main(void *ranks);    /* a fig_ranks */
/* Closes connections that no post took over. */
void fig_post_drop_links(int *links, int32_t count);

#endif
