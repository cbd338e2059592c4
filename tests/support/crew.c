/* crew.c: a thread for each member.
 *
 * Invariant: that of crew.h. */
#include "tests/support/crew.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct duty {
    fig_crew_member *member;
    fig_status (*main)(fig_crew_member *);
} duty;

/* One that nobody listens at, nor at the one above. */
int32_t fig_crew_free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    close(listener);
    return ntohs(at.sin_port);
}

void fig_crew_init(fig_crew_member *crew, int32_t count) {
    const int32_t port = fig_crew_free_port();
    assert_true(count <= FIG_CREW_LIMIT);
    for (int32_t i = 0; i < count; i++)
        crew[i] = (fig_crew_member){
            .rank = i, .count = count, .port = port, .timeout_us = 20000000, .secret = "crew"};
}

static void *serve(void *user) {
    const duty *of = user;
    of->member->status = of->main(of->member);
    if (of->member->status != FIG_OK)
        snprintf(of->member->message, sizeof of->member->message, "%s", fig_message());
    return NULL;
}

void fig_crew_run(fig_crew_member *crew, int32_t count, fig_status (*main)(fig_crew_member *)) {
    pthread_t threads[FIG_CREW_LIMIT];
    duty duties[FIG_CREW_LIMIT];
    for (int32_t i = 0; i < count; i++) {
        duties[i] = (duty){&crew[i], main};
        if (!crew[i].is_away)
            assert_int_equal(pthread_create(&threads[i], NULL, serve, &duties[i]), 0);
    }
    for (int32_t i = 0; i < count; i++)
        if (!crew[i].is_away) pthread_join(threads[i], NULL);
}

fig_status fig_crew_open(fig_crew_member *member) {
    return fig_ranks_open(
        &member->ranks, FIG_OPTIONS(fig_ranks_options, .count = member->count, .rank = member->rank,
                                    .local_rank = member->rank, .port = member->port,
                                    .secret = member->secret, .timeout_us = member->timeout_us));
}

void fig_crew_run_local(fig_crew_member *crew, int32_t count,
                        fig_status (*main)(fig_crew_member *)) {
    fig_ranks *ranks[FIG_CREW_LIMIT];
    assert_int_equal(
        fig_ranks_open_local(ranks, count,
                             FIG_OPTIONS(fig_ranks_options, .timeout_us = crew[0].timeout_us)),
        FIG_OK);
    for (int32_t i = 0; i < count; i++)
        crew[i].ranks = ranks[i];
    fig_crew_run(crew, count, main);
    for (int32_t i = 0; i < count; i++)
        fig_ranks_close(ranks[i]);
}
