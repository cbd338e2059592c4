/* crew.h: threads that play the ranks of a group.
 *
 * Invariant: when run returns, every member has ended and holds the result of its last call. */
#ifndef FIG_TESTS_SUPPORT_CREW_H
#define FIG_TESTS_SUPPORT_CREW_H

#include "include/figraph_ranks.h"

/* A member that stays away is reported after ABSENT_US, which is long enough for every thread of a
 * busy machine to get its turn. */
enum { FIG_CREW_LIMIT = 16, FIG_CREW_ABSENT_US = 1500000 };

typedef struct fig_crew_member {
    int32_t rank, count, port;
    int64_t timeout_us;
    const char *secret;
    fig_ranks *ranks;
    fig_status status; /* what the member's main returned */
    char message[256]; /* its message, if status is not FIG_OK */
    int32_t is_away;   /* set by the test; 1: this member never comes */
    int32_t victim;    /* for fig_crew_kill() */
    int at_work;       /* a pipe, for fig_crew_kill() */
    void *user;
} fig_crew_member;

/* Prepares members 0 to count - 1. They get a free port, a secret, and a timeout longer than any
 * test. If a member hangs, an alarm ends the test. */
void fig_crew_init(fig_crew_member *crew, int32_t count);
void fig_crew_run(fig_crew_member *crew, int32_t count, fig_status (*main)(fig_crew_member *));

/* Opens the member's group over TCP, as ranks in separate processes do. */
fig_status fig_crew_open(fig_crew_member *member);
/* Opens a group within the process, runs the members and closes the group. */
void fig_crew_run_local(fig_crew_member *crew, int32_t count,
                        fig_status (*main)(fig_crew_member *));

/* Checks that every member, except those that are away, ended with this status and a message that
 * contains the words. */
void fig_crew_expect(const fig_crew_member *crew, int32_t count, fig_status status,
                     const char *words);

/* A crew of processes, one of which is killed while all are working. */
typedef struct fig_crew_killing {
    int32_t count, victim;
    int64_t after_us; /* counted from the time when all have begun their work */
    /* Opens the member's group and calls fig_crew_at_work(). Returns 0 if it ended as it should
     * when another rank was killed. */
    int (*main)(fig_crew_member *member);
} fig_crew_killing;
/* Returns FIG_CALLBACK if a surviving rank's main did not return 0. */
fig_status fig_crew_kill(const fig_crew_killing *killing);
/* Called by the member's main. Reports that the member is at work, and returns the message that it
 * must expect when the victim is gone. */
void fig_crew_at_work(const fig_crew_member *member, char words[32]);

void fig_crew_pause_us(int64_t us);
int32_t fig_crew_free_port(void);

#endif
