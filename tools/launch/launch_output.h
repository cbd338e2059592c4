/* launch_output.h: what ranks print, line by line, each behind its rank's number.
 *
 * Never waits: what a reader of ours does not take yet is kept, and then the ranks wait for it as
 * they would for any reader. Invariant: a line of a rank's is never cut by another's, but one
 * longer than a buffer is told in pieces. */
#ifndef FIG_TOOLS_LAUNCH_OUTPUT_H
#define FIG_TOOLS_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fig_launch_output fig_launch_output;

/* plain: 1: lines of stdout without it. NULL: no memory. */
fig_launch_output *fig_launch_output_open(int32_t count, int plain);
void fig_launch_output_close(fig_launch_output *output); /* takes NULL */

/* Ends of pipes that rank number `rank` writes to; they are the output's from here on. */
typedef struct fig_launch_pipes {
    int out, err;
} fig_launch_pipes;
void fig_launch_output_take(fig_launch_output *output, int32_t rank, fig_launch_pipes pipes);
/* A line of the launcher's own, on stderr. */
void fig_launch_output_say(fig_launch_output *output, const char *line);

/* What to wait for; returns how many, at most 2 * count + 2. */
int fig_launch_output_waits(const fig_launch_output *output, struct pollfd *waits);
/* Moves what can be moved. 1: it moved something. */
int fig_launch_output_move(fig_launch_output *output);
int fig_launch_output_is_open(const fig_launch_output *output); /* a rank may print yet */
int fig_launch_output_is_pending(const fig_launch_output *output);
int fig_launch_output_is_broken(const fig_launch_output *output); /* nobody reads stdout */
/* What ranks left without an end of line; nothing more is read. */
void fig_launch_output_end(fig_launch_output *output);

#endif
