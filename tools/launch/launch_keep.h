/* launch_keep.h: runs a process that outlives the launcher for a moment, to end the processes that
 * the launcher leaves.
 *
 * If the launcher dies, the system kills the ranks, but not the programs that ranks have started.
 * The keeper reads from a pipe whose other end the launcher holds, so the keeper notices the
 * launcher's end in every case. It knows the numbers of the ranks' process groups. Invariant: the
 * keeper knows a group before the group's first program runs, and does not kill groups that the
 * launcher has ended itself. */
#ifndef FIG_TOOLS_LAUNCH_KEEP_H
#define FIG_TOOLS_LAUNCH_KEEP_H

#include <sys/types.h>

typedef struct fig_launch_keep {
    pid_t keeper;
    int pipe; /* closed on exec */
} fig_launch_keep;

/* Starts the keeper. Call this before starting any rank, and before opening any pipe whose reader
 * waits for its end: the keeper would keep it open. Returns 0 or an error number. */
int fig_launch_keep_open(fig_launch_keep *keep);
/* Adds the group of the calling process. A rank's process calls this before it becomes the rank's
 * program. */
void fig_launch_keep_add(const fig_launch_keep *keep);
/* Ends the keeper. Call this after killing all groups, and before reaping any of their leaders. */
void fig_launch_keep_close(fig_launch_keep *keep);

#endif
