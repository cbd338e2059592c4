/* launch_start.h: what a rank finds when it starts, and starting it.
 *
 * Invariant: a rank that was started leads a process group of its own, has no signal blocked, and
 * is killed by the system should the launcher die. */
#ifndef FIG_TOOLS_LAUNCH_START_H
#define FIG_TOOLS_LAUNCH_START_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/launch/launch_output.h"
#include "tools/launch/launch_place.h"

enum { FIG_LAUNCH_START_VARIABLES = 7, FIG_LAUNCH_START_TEXT = 80 };

/* "RANK=0" and so on; the last is the secret's. */
typedef struct fig_launch_variables {
    char text[FIG_LAUNCH_START_VARIABLES][FIG_LAUNCH_START_TEXT];
} fig_launch_variables;

/* What all ranks of a job share. */
typedef struct fig_launch_job {
    int32_t count, port;
    char secret[40]; /* "": what FIG_SECRET was set to before */
} fig_launch_job;

/* 0, or an exit code where there is no port or no secret; a sentence was printed. */
int fig_launch_start_draw(fig_launch_job *job, int32_t count);
void fig_launch_start_describe(const fig_launch_job *job, int32_t rank,
                               fig_launch_variables *variables);

typedef struct fig_launch_start {
    const fig_launch_job *job;
    const fig_launch_places *places;
    char *const *program;
    const sigset_t *signals; /* the mask that the rank is to have */
    int32_t rank;
} fig_launch_start;
/* 0, or the error number for which it could not be started. */
int fig_launch_start_rank(const fig_launch_start *start, pid_t *rank, fig_launch_pipes *pipes);

#endif
