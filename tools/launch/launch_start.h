/* launch_start.h: sets the environment of a rank, and starts the rank.
 *
 * Invariant: a started rank leads a process group of its own and has no signal blocked. If the
 * launcher dies, the system kills the rank, and the keeper kills its group. */
#ifndef FIG_TOOLS_LAUNCH_START_H
#define FIG_TOOLS_LAUNCH_START_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/launch/launch_keep.h"
#include "tools/launch/launch_output.h"
#include "tools/launch/launch_place.h"

enum { FIG_LAUNCH_START_VARIABLES = 7, FIG_LAUNCH_START_TEXT = 80 };

/* A rank's variables as text, "RANK=0" and so on; the last is FIG_SECRET. */
typedef struct fig_launch_variables {
    char text[FIG_LAUNCH_START_VARIABLES][FIG_LAUNCH_START_TEXT];
} fig_launch_variables;

/* The values that all ranks of a job share. */
typedef struct fig_launch_job {
    int32_t count, port;
    char secret[40]; /* "": keep the value that FIG_SECRET was set to */
} fig_launch_job;

/* Draws port and secret. Returns 0. If there is no port or no secret, prints a sentence and returns
 * an exit code. */
int fig_launch_start_draw(fig_launch_job *job, int32_t count);
void fig_launch_start_describe(const fig_launch_job *job, int32_t rank,
                               fig_launch_variables *variables);

typedef struct fig_launch_start {
    const fig_launch_job *job;
    const fig_launch_places *places;
    char *const *program;
    const sigset_t *signals; /* the signal mask that the rank gets */
    const fig_launch_keep *keep;
    int32_t rank;
} fig_launch_start;
/* Starts the rank. Returns 0, or the error number that says why it could not start. */
int fig_launch_start_rank(const fig_launch_start *start, pid_t *rank, fig_launch_pipes *pipes);

#endif
