/* group.c: the mailbox between the owner of a group and the group's thread.
 *
 * Invariant: see group.h. The group's thread touches the memory of a request only under the mutex
 * and only while the owner waits, so a call that gives up may free that memory. */
#include "engine/ranks/group.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "planner/status.h"

/* Rank 0 gives its verdict earlier than the timeout, by 1 / AHEAD_PART of the timeout but at most
 * by AHEAD_LIMIT_US. */
enum { AHEAD_PART = 8, AHEAD_LIMIT_US = 1000000 };

static const char *const call_names[FIG_GROUP_CALLS] = {
    [FIG_GROUP_OPEN] = "fig_ranks_open",       [FIG_GROUP_GATHER] = "fig_ranks_all_gather",
    [FIG_GROUP_BARRIER] = "fig_ranks_barrier", [FIG_GROUP_AGREE] = "fig_ranks_agree",
    [FIG_GROUP_CARRIER] = "fig_engine_open",
};

const char *fig_group_call_name(uint32_t call) {
    return call < FIG_GROUP_CALLS ? call_names[call] : "an unknown call";
}

int64_t fig_group_judging_us(int64_t timeout_us) {
    const int64_t ahead_us = timeout_us / AHEAD_PART;
    return timeout_us - (ahead_us < AHEAD_LIMIT_US ? ahead_us : AHEAD_LIMIT_US);
}

void fig_group_wake(fig_ranks *ranks) {
    (void)eventfd_write(ranks->wake, 1); /* fails only if the thread is already awake */
}

/* ---- Lost ---------------------------------------------------------------------------------- */

int fig_group_is_lost(const fig_ranks *ranks) {
    return __atomic_load_n(&ranks->lost, __ATOMIC_ACQUIRE) != 0; /* partner: fig_group_lose */
}

fig_status fig_group_tell_lost(const fig_ranks *ranks) {
    return fig_status_relay(ranks->lost_status, ranks->reason);
}

void fig_group_lose(fig_ranks *ranks, fig_status status, const char *format, ...) {
    va_list arguments;
    pthread_mutex_lock(&ranks->mutex);
    if (!fig_group_is_lost(ranks)) {
        ranks->lost_status = status;
        va_start(arguments, format);
        vsnprintf(ranks->reason, sizeof ranks->reason, format, arguments);
        va_end(arguments);
        __atomic_store_n(&ranks->lost, 1, __ATOMIC_RELEASE); /* partner: fig_group_is_lost */
        for (int i = 0; i < FIG_GROUP_WATCH_LIMIT; i++)
            if (ranks->watched[i] != NULL) __atomic_store_n(ranks->watched[i], 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&ranks->done);
    }
    pthread_mutex_unlock(&ranks->mutex);
    fig_group_wake(ranks);
}

fig_status fig_group_watch(fig_ranks *ranks, volatile uint32_t *word) {
    int at = 0;
    pthread_mutex_lock(&ranks->mutex);
    while (at < FIG_GROUP_WATCH_LIMIT && ranks->watched[at] != NULL)
        at++;
    if (at < FIG_GROUP_WATCH_LIMIT) ranks->watched[at] = word;
    if (fig_group_is_lost(ranks)) __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ranks->mutex);
    if (at < FIG_GROUP_WATCH_LIMIT) return FIG_OK;
    return fig_fail(FIG_TOO_LARGE, "ranks: %d words are watched, limit %d", at + 1,
                    FIG_GROUP_WATCH_LIMIT);
}

void fig_group_unwatch(fig_ranks *ranks, volatile uint32_t *word) {
    pthread_mutex_lock(&ranks->mutex);
    for (int i = 0; i < FIG_GROUP_WATCH_LIMIT; i++)
        if (ranks->watched[i] == word) ranks->watched[i] = NULL;
    pthread_mutex_unlock(&ranks->mutex);
}

/* ---- Meet ---------------------------------------------------------------------------------- */

static struct timespec time_in(int64_t us) {
    struct timespec out;
    clock_gettime(CLOCK_MONOTONIC, &out);
    out.tv_sec += (time_t)(us / 1000000);
    out.tv_nsec += (long)(us % 1000000 * 1000);
    out.tv_sec += out.tv_nsec / 1000000000;
    out.tv_nsec %= 1000000000;
    return out;
}

/* Fails the first call on a lost group with the status of the loss, and later calls with
 * FIG_LOST. */
static fig_status tell_lost(fig_ranks *ranks) {
    const int is_told = ranks->is_told;
    ranks->is_told = 1;
    return is_told ? fig_status_relay(FIG_LOST, ranks->reason) : fig_group_tell_lost(ranks);
}

/* Returns 0 if the request is done, 1 if the group is lost, and 2 if the timeout passed before
 * either. */
static int wait_until_done(fig_ranks *ranks) {
    const struct timespec deadline = time_in(ranks->info.timeout_us);
    int error = 0, out = 2;
    pthread_mutex_lock(&ranks->mutex);
    while (ranks->request.state != FIG_GROUP_DONE && !fig_group_is_lost(ranks) && error == 0)
        error = pthread_cond_timedwait(&ranks->done, &ranks->mutex, &deadline);
    if (ranks->request.state == FIG_GROUP_DONE)
        out = 0;
    else if (fig_group_is_lost(ranks))
        out = 1;
    ranks->request = (fig_group_request){.state = FIG_GROUP_IDLE};
    pthread_mutex_unlock(&ranks->mutex);
    return out;
}

fig_status fig_group_meet(fig_ranks *ranks, fig_group_call call, const void *mine, size_t bytes,
                          void *all) {
    if (fig_fork_check_is_child(&ranks->fork))
        return fig_fail(FIG_LOST, "ranks: this process was forked from the one that opened them, "
                                  "which alone may use them");
    if (fig_group_is_lost(ranks)) return tell_lost(ranks);
    pthread_mutex_lock(&ranks->mutex);
    const int is_free = ranks->request.state == FIG_GROUP_IDLE;
    if (is_free)
        ranks->request = (fig_group_request){call, (uint32_t)bytes, mine, all, FIG_GROUP_POSTED};
    pthread_mutex_unlock(&ranks->mutex);
    if (!is_free)
        return fig_fail(FIG_ORDER,
                        "ranks: two threads are in collective calls of rank %" PRId32
                        " at once, only one may be",
                        ranks->info.rank);
    fig_group_wake(ranks);
    const int end = wait_until_done(ranks);
    if (end == 0) return FIG_OK;
    if (end == 2)
        fig_group_lose(
            ranks, FIG_TIMEOUT, "ranks: rank 0 did not answer rank %" PRId32 " in %s within %.9g s",
            ranks->info.rank, fig_group_call_name(call), (double)ranks->info.timeout_us / 1e6);
    return tell_lost(ranks);
}
