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

int32_t fig_crew_free_port(void);

#endif
