/* group.h: one rank's end of a group: its mailbox, and the flag that the group is lost.
 *
 * The thread that owns a group puts its part of a collective call into the mailbox and waits. The
 * group's own thread (post.c) carries that part to the other ranks. member.c opens and closes the
 * mailbox and the thread. group.c owns the fields that both threads touch. It also owns the watched
 * words: fig_group_lose() sets them, and kernels that spin on a device then stop; this needs no
 * driver call. Invariant: `lost` changes once, from 0 to 1, after status and reason are written,
 * and they do not change afterwards. A watched word also changes only once, and is not touched
 * after unwatch has returned. */
#ifndef FIG_ENGINE_RANKS_GROUP_H
#define FIG_ENGINE_RANKS_GROUP_H

#include <pthread.h>

#include "engine/seam/fork_check.h"
#include "include/figraph_ranks.h"

enum {
    FIG_GROUP_WATCH_LIMIT = 64, /* the largest number of words watched at one time */
    FIG_GROUP_REASON_BYTES = 240
};

/* The collective calls. A call completes only if all ranks make the same one. */
typedef enum fig_group_call {
    FIG_GROUP_OPEN,
    FIG_GROUP_GATHER,
    FIG_GROUP_BARRIER,
    FIG_GROUP_AGREE,
    FIG_GROUP_CARRIER,
    FIG_GROUP_CALLS
} fig_group_call;
const char *fig_group_call_name(uint32_t call); /* "fig_ranks_barrier" */

/* One rank's part of a collective call. The owner may touch the request until it is posted, and
 * again after it is done. */
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
    struct fig_post *post; /* used by the group's thread only */
    /* an eventfd for which the group's thread waits, besides its connections */
    int wake;
    /* atomic; once it is 1, any thread may read the next two fields */
    uint32_t lost;
    fig_status lost_status;
    char reason[FIG_GROUP_REASON_BYTES];
    int is_told; /* 1: a call of the owner has returned lost_status */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    int parts; /* how many of mutex, done and thread have been made */
    /* The mutex protects the fields below. */
    fig_group_request request;
    int is_closing;
    volatile uint32_t *watched[FIG_GROUP_WATCH_LIMIT]; /* NULL: free */
};

/* Returns how long rank 0 waits in a call before it reports the missing ranks. This is less than
 * the timeout, so that rank 0's answer arrives before any rank times out. */
int64_t fig_group_judging_us(int64_t timeout_us);

/* Makes the group's thread check the mailbox, even if the thread is waiting for something else. */
void fig_group_wake(fig_ranks *ranks);

/* Makes a collective call. `all`, [count][bytes], receives the bytes of each rank. */
fig_status fig_group_meet(fig_ranks *ranks, fig_group_call call, const void *mine, size_t bytes,
                          void *all);

/* Marks the group as lost on every rank. The first reason stays. A forked child must not call this
 * function. */
__attribute__((format(printf, 3, 4))) void fig_group_lose(fig_ranks *ranks, fig_status status,
                                                          const char *format, ...);
int fig_group_is_lost(const fig_ranks *ranks);
/* Fails with the status and reason of the loss. */
fig_status fig_group_tell_lost(const fig_ranks *ranks);

/* Sets *word to 1 as soon as the group is lost, or at once if it is already lost. *word must be 0,
 * mapped and aligned. A kernel that waits for another rank checks such a word in pinned memory.
 * FIG_TOO_LARGE: too many words are watched. */
fig_status fig_group_watch(fig_ranks *ranks, volatile uint32_t *word);
void fig_group_unwatch(fig_ranks *ranks, volatile uint32_t *word);

#endif
