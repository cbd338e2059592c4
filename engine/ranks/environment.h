/* environment.h: which rank this process is, as its launcher or its caller says.
 *
 * The one place where the library reads the environment; figraph_ranks.h lists what it looks at.
 * Invariant: what comes out is whole: 0 <= rank < count, and where count is above 1 there are a
 * port, an address and something that other jobs do not know, or the caller is refused. */
#ifndef FIG_ENGINE_RANKS_ENVIRONMENT_H
#define FIG_ENGINE_RANKS_ENVIRONMENT_H

#include "include/figraph_ranks.h"

enum {
    FIG_ENVIRONMENT_TEXT_LIMIT = 256, /* bytes of an address or a secret, its end included */
    FIG_ENVIRONMENT_JOB_PORT = 20000, /* below the ports that the system hands out */
    FIG_ENVIRONMENT_JOB_PORTS = 12000
};

typedef struct fig_environment {
    int32_t count, rank, local_rank;
    int32_t port;     /* 0 where the rank is alone */
    int32_t one_host; /* 1: all ranks are known to be on this host, so that it needs no secret */
    int64_t timeout_us;
    char address[FIG_ENVIRONMENT_TEXT_LIMIT];
    char secret[FIG_ENVIRONMENT_TEXT_LIMIT]; /* or the job's name */
} fig_environment;

/* look: finds a variable as getenv does; NULL: getenv, while no other thread sets variables. */
fig_status fig_environment_read(fig_environment *environment, const fig_ranks_options *options,
                                const char *(*look)(const char *name));

/* Its timeout_us alone. */
fig_status fig_environment_read_timeout(int64_t *timeout_us, const fig_ranks_options *options,
                                        const char *(*look)(const char *name));

#endif
