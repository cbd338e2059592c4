/* group.h: one rank's end of a group: its mailbox, and whether the group is lost.
 *
 * The owner of a group puts what it gives to a collective call into the mailbox and waits; the
 * group's thread (post.c) carries it, and member.c opens and closes both. group.c owns what both
 * touch, and the words that are set when the group is lost, so that what spins on a device stops
 * without being told by a call. Invariant:
 * `lost` turns once, from 0 to 1, when status and reason are written, which then stay; a word that
 * is watched does so too, and is not touched after unwatch has returned. */
#ifndef FIG_ENGINE_RANKS_GROUP_H
#define FIG_ENGINE_RANKS_GROUP_H

#include <pthread.h>

#include "engine/fork_check.h"
#include "include/figraph_ranks.h"

enum {
    FIG_GROUP_WATCH_LIMIT = 64, /* words at once */
    FIG_GROUP_REASON_BYTES = 240
};

/* What ranks meet for: two that meet for different things are told apart. */
typedef enum fig_group_call {
    FIG_GROUP_OPEN,
    FIG_GROUP_GATHER,
    FIG_GROUP_BARRIER,
    FIG_GROUP_AGREE,
    FIG_GROUP_CARRIER,
    FIG_GROUP_CALLS
} fig_group_call;
const char *fig_group_call_name(uint32_t call); /* "fig_ranks_barrier" */

/* One collective call, the owner's until it is posted and again when it is done. */
typedef struct fig_group_request {
    uint32_t call, bytes;
    const void *mine; /* [bytes] */
    void *all;        /* [count][bytes] */
    enum { FIG_GROUP_IDLE, FIG_GROUP_POSTED, FIG_GROUP_TAKEN, FIG_GROUP_DONE } state;
} fig_group_request;

struct fig_post;
struct fig_ranks {
    fig_fork_check fork;
    fig_ranks_info info;
    struct fig_post *post; /* the thread's own */
    int wake;              /* an eventfd that the thread waits for, beside its connections */
    uint32_t lost;         /* atomic; then the next two are read by anyone */
    fig_status lost_status;
    char reason[FIG_GROUP_REASON_BYTES];
    int is_told; /* 1: a call of the owner's has returned lost_status */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    int parts; /* of mutex, done and thread, made so far */
    /* Under the mutex: */
    fig_group_request request;
    int is_closing;
    volatile uint32_t *watched[FIG_GROUP_WATCH_LIMIT]; /* NULL: free */
};

/* Of the time that ranks have, how long rank 0 waits before it says who is missing: its word is
 * there before anyone's time is up. */
int64_t fig_group_judging_us(int64_t timeout_us);

/* The thread looks at the mailbox, whatever it waits for. */
void fig_group_wake(fig_ranks *ranks);

/* One collective call: `all` holds what each rank gave. */
fig_status fig_group_meet(fig_ranks *ranks, fig_group_call call, const void *mine, size_t bytes,
                          void *all);

/* Loses the group, on every rank; the first reason stays. Not for a child that was forked. */
__attribute__((format(printf, 3, 4))) void fig_group_lose(fig_ranks *ranks, fig_status status,
                                                          const char *format, ...);
int fig_group_is_lost(const fig_ranks *ranks);
/* The status and reason of a group that is lost, as this call's failure. */
fig_status fig_group_tell_lost(const fig_ranks *ranks);

/* `word` is 0, mapped and aligned; where the group is already lost it is 1 on return. A kernel that
 * waits for another rank looks at it in pinned memory. FIG_TOO_LARGE: too many are watched. */
fig_status fig_group_watch(fig_ranks *ranks, volatile uint32_t *word);
void fig_group_unwatch(fig_ranks *ranks, volatile uint32_t *word);

#endif
