/* crew.h: threads that play the ranks of a group.
 *
 * Invariant: run returns when every member has ended, and each holds what its last call said. */
#ifndef FIG_TESTS_SUPPORT_CREW_H
#define FIG_TESTS_SUPPORT_CREW_H

#include "include/figraph_ranks.h"

enum { FIG_CREW_LIMIT = 16 };

typedef struct fig_crew_member {
    int32_t rank, count, port;
    int64_t timeout_us;
    const char *secret;
    fig_ranks *ranks;
    fig_status status; /* what the member's main returned */
    char message[256]; /* and its sentence, where that is not FIG_OK */
    int32_t is_away;   /* in: 1: this member never comes */
    int32_t victim;    /* of a killing */
    int at_work;       /* of a killing: a pipe */
    void *user;
} fig_crew_member;

/* Members 0 to count - 1 of that many, with a port that is free, 20 s and a secret. */
void fig_crew_init(fig_crew_member *crew, int32_t count);
void fig_crew_run(fig_crew_member *crew, int32_t count, fig_status (*main)(fig_crew_member *));

/* Opens the member's group over TCP, as ranks that are processes do. */
fig_status fig_crew_open(fig_crew_member *member);
/* Opens a group within the process, runs and closes it. */
void fig_crew_run_local(fig_crew_member *crew, int32_t count,
                        fig_status (*main)(fig_crew_member *));

/* Every member that is not away ended with that status and a sentence that holds the words. */
void fig_crew_expect(const fig_crew_member *crew, int32_t count, fig_status status,
                     const char *words);

/* A crew of processes, of which one is killed at its work. */
typedef struct fig_crew_killing {
    int32_t count, victim;
    int64_t after_us; /* when all are at work */
    /* Opens the member's group, calls fig_crew_at_work, and returns 0 where it ends as a rank
     * should that outlives another. */
    int (*main)(fig_crew_member *member);
} fig_crew_killing;
/* FIG_CALLBACK: a rank that was not killed returned other than 0, or none ended within 5 s. */
fig_status fig_crew_kill(const fig_crew_killing *killing);
/* Of the member's main: says so, and the sentence to expect once the victim is gone. */
void fig_crew_at_work(const fig_crew_member *member, char words[32]);

void fig_crew_pause_us(int64_t us);
int32_t fig_crew_free_port(void);

#endif
