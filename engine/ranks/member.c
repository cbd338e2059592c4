/* member.c: opens and closes a rank's end of a group, from its connections to its thread.
 *
 * Owns the order in which the parts are made and freed. post.c has the thread's code. Invariant:
 * see member.h. */
#include "engine/ranks/member.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/ranks/post.h"
#include "planner/status.h"

/* Starts the group's thread with all signals blocked. Signals are for the caller's threads, and
 * handlers may expect to run there. */
static int start_thread(fig_ranks *ranks) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&ranks->thread, NULL, fig_post_main, ranks);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Returns 0 or an error number. */
static int open_parts(fig_ranks *ranks) {
    pthread_condattr_t monotonic;
    int error = pthread_mutex_init(&ranks->mutex, NULL);
    if (error != 0) return error;
    ranks->parts = 1;
    error = pthread_condattr_init(&monotonic);
    if (error != 0) return error;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    error = pthread_cond_init(&ranks->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (error != 0) return error;
    ranks->parts = 2;
    error = start_thread(ranks);
    if (error == 0) ranks->parts = 3;
    return error;
}

fig_status fig_member_open(fig_ranks **out, const fig_ranks_info *info, int *links) {
    fig_ranks *ranks = calloc(1, sizeof *ranks);
    fig_status status = FIG_OK;
    *out = NULL;
    if (ranks == NULL) {
        fig_post_drop_links(links, info->count);
        return fig_fail(FIG_NOMEM, "ranks: %zu bytes", sizeof *ranks);
    }
    ranks->info = *info;
    ranks->wake = -1;
    status = fig_post_open(&ranks->post, info, links);
    if (status == FIG_OK) status = fig_fork_check_open(&ranks->fork);
    if (status == FIG_OK) {
        ranks->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        const int error = ranks->wake < 0 ? errno : open_parts(ranks);
        if (error != 0)
            status =
                fig_fail(FIG_NOMEM, "ranks: cannot start the group's thread: %s", strerror(error));
    }
    if (status == FIG_OK) {
        *out = ranks;
        return FIG_OK;
    }
    fig_member_close(ranks);
    return status;
}

/* Also accepts a group for which open_parts() made only some parts. */
void fig_member_close(fig_ranks *ranks) {
    if (ranks == NULL) return;
    if (ranks->fork.word != NULL && fig_fork_check_is_child(&ranks->fork)) return;
    if (ranks->parts >= 3) {
        pthread_mutex_lock(&ranks->mutex);
        ranks->is_closing = 1;
        pthread_mutex_unlock(&ranks->mutex);
        fig_group_wake(ranks);
        pthread_join(ranks->thread, NULL);
    }
    if (ranks->parts >= 2) pthread_cond_destroy(&ranks->done);
    if (ranks->parts >= 1) pthread_mutex_destroy(&ranks->mutex);
    fig_post_close(ranks->post);
    if (ranks->wake >= 0) close(ranks->wake);
    fig_fork_check_close(&ranks->fork);
    free(ranks);
}
