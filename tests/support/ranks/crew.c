/* crew.c: runs a thread for each member. Invariant: as in crew.h. */
#include "tests/support/ranks/crew.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/hang.h"

/* A group's timeout is longer than any test may take. So if a call returns an error, another rank
 * caused it, and if no rank ends a call, it hangs until the alarm. */
static const int64_t group_us = (int64_t)2 * FIG_HANG_US;

typedef struct duty {
    fig_crew_member *member;
    fig_status (*main)(fig_crew_member *);
} duty;

/* Returns a port at which nobody listens. It is below the ports that the system assigns to
 * connecting sockets. */
int32_t fig_crew_free_port(void) {
    static int32_t drawn;
    for (int tries = 0; tries < 1000; tries++) {
        const int32_t port = 10000 + (int32_t)((getpid() * 37 + drawn++ * 101) % 10000);
        const struct sockaddr_in at = {.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)port),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(listener >= 0);
        const int error = bind(listener, (const struct sockaddr *)&at, sizeof at);
        close(listener);
        if (error == 0) return port;
    }
    fail_msg("no port is free");
    return 0;
}

void fig_crew_init(fig_crew_member *crew, int32_t count) {
    const int32_t port = fig_crew_free_port();
    assert_true(count <= FIG_CREW_LIMIT);
    alarm(FIG_HANG_S);
    for (int32_t i = 0; i < count; i++)
        crew[i] = (fig_crew_member){
            .rank = i, .count = count, .port = port, .timeout_us = group_us, .secret = "crew"};
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

void fig_crew_expect(const fig_crew_member *crew, int32_t count, fig_status status,
                     const char *words) {
    for (int32_t i = 0; i < count; i++) {
        if (crew[i].is_away) continue;
        if (crew[i].status == status && strstr(crew[i].message, words) != NULL) continue;
        fail_msg("rank %d: %s, %s", (int)i, fig_status_name(crew[i].status), crew[i].message);
    }
}

void fig_crew_pause_us(int64_t us) {
    const struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* ---- Processes ----------------------------------------------------------------------------- */

void fig_crew_at_work(const fig_crew_member *member, char words[32]) {
    snprintf(words, 32, "rank %d is gone", (int)member->victim);
    assert_int_equal(write(member->at_work, "x", 1), 1);
}

fig_status fig_crew_kill(const fig_crew_killing *killing) {
    fig_crew_member crew[FIG_CREW_LIMIT];
    pid_t children[FIG_CREW_LIMIT];
    int pipes[2], how;
    char byte;
    fig_status status = FIG_OK;
    fig_crew_init(crew, killing->count);
    assert_int_equal(pipe(pipes), 0);
    for (int32_t i = 0; i < killing->count; i++) {
        crew[i].victim = killing->victim;
        crew[i].at_work = pipes[1];
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) continue;
        alarm(FIG_HANG_S);
        _exit(killing->main(&crew[i]));
    }
    for (int32_t i = 0; i < killing->count; i++)
        assert_int_equal(read(pipes[0], &byte, 1), 1);
    fig_crew_pause_us(killing->after_us);
    assert_int_equal(kill(children[killing->victim], SIGKILL), 0);
    for (int32_t i = 0; i < killing->count; i++) {
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        if (i == killing->victim || how == 0) continue;
        print_error("rank %d ended with %d\n", (int)i, how);
        status = FIG_CALLBACK;
    }
    close(pipes[0]);
    close(pipes[1]);
    return status;
}
