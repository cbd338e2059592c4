/* post.h: the thread of a group, the only thread that touches the group's connections.
 *
 * Rank 0's thread collects the bytes that all ranks give to a call, and sends the result to all.
 * The threads of the other ranks send their bytes and receive the result. If a connection ends
 * without a BYE, the thread notices and loses the group. Invariant: the thread waits for all
 * connections and the owner at once, never for a single peer. If a peer does not take its bytes,
 * rank 0 reports that peer within the group's timeout. */
#ifndef FIG_ENGINE_RANKS_POST_H
#define FIG_ENGINE_RANKS_POST_H

#include "engine/ranks/group.h"

typedef struct fig_post fig_post;

/* links: [count], from fig_rendezvous_meet(). fig_post_open() takes them over, even if it fails. */
fig_status fig_post_open(fig_post **post, const fig_ranks_info *info, int *links);
void fig_post_close(fig_post *post); /* accepts NULL; the thread must have ended */
void *fig_post_main(void *ranks);    /* the argument is a fig_ranks */
/* Closes connections that no post has taken over. */
void fig_post_drop_links(int *links, int32_t count);

#endif
