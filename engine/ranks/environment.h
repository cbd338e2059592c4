/* environment.h: finds out which rank this process is, from its launcher or its caller.
 *
 * This is the only place where the library reads the environment; figraph_ranks.h lists the
 * variables. Invariant: the call fails unless the result is complete: 0 <= rank < count and, if
 * count is above 1, a port, an address and a text that other jobs do not know. */
#ifndef FIG_ENGINE_RANKS_ENVIRONMENT_H
#define FIG_ENGINE_RANKS_ENVIRONMENT_H

#include "include/figraph_ranks.h"

enum {
    FIG_ENVIRONMENT_TEXT_LIMIT = 256, /* bytes of an address or a secret, with the final 0 */
    /* the first port for jobs; the system's ephemeral ports are higher */
    FIG_ENVIRONMENT_JOB_PORT = 20000,
    FIG_ENVIRONMENT_JOB_PORTS = 12000
};

typedef struct fig_environment {
    int32_t count, rank, local_rank;
    int32_t port;     /* 0 if there is only one rank */
    int32_t one_host; /* 1: all ranks are known to be on this host, so no secret is needed */
    int32_t own_user; /* 1: there is no secret, so all ranks must belong to this user */
    int64_t timeout_us;
    char address[FIG_ENVIRONMENT_TEXT_LIMIT];
    char secret
        /* if there is no secret: the job's name, which distinguishes the user's jobs */
        [FIG_ENVIRONMENT_TEXT_LIMIT];
} fig_environment;

/* Finds this process's rank and its job. `look` looks up a variable like getenv(). If it is NULL,
 * the call uses getenv(), and no other thread may set variables meanwhile. */
fig_status fig_environment_read(fig_environment *environment, const fig_ranks_options *options,
                                const char *(*look)(const char *name));

/* Reads only timeout_us. */
fig_status fig_environment_read_timeout(int64_t *timeout_us, const fig_ranks_options *options,
                                        const char *(*look)(const char *name));

#endif
