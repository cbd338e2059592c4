/* launch_output.h: prints the output of ranks line by line, each line after its rank's number.
 *
 * These functions never wait: they keep output that the reader does not take yet. When much is
 * kept, the ranks wait, as they would for any slow reader. Invariant: a line of one rank is never
 * cut by a line of another. A line longer than a buffer is printed in pieces. */
#ifndef FIG_TOOLS_LAUNCH_OUTPUT_H
#define FIG_TOOLS_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fig_launch_output fig_launch_output;

/* Opens the output of `count` ranks. If `plain` is 1, lines of stdout have no rank number. Returns
 * NULL if there is no memory. */
fig_launch_output *fig_launch_output_open(int32_t count, int plain);
void fig_launch_output_close(fig_launch_output *output); /* accepts NULL */

/* The reading ends of the pipes that a rank writes to. From here on the output owns them. */
typedef struct fig_launch_pipes {
    int out, err;
} fig_launch_pipes;
void fig_launch_output_take(fig_launch_output *output, int32_t rank, fig_launch_pipes pipes);
/* Prints a line of the launcher itself, on stderr. */
void fig_launch_output_say(fig_launch_output *output, const char *line);

/* Fills in the descriptors for poll(), and returns their number, at most 2 * count + 2. */
int fig_launch_output_waits(const fig_launch_output *output, struct pollfd *waits);
/* Moves as much output as it can without waiting. Returns 1 if it moved any. */
int fig_launch_output_move(fig_launch_output *output);
int fig_launch_output_is_open(const fig_launch_output *output); /* 1: a rank may still print */
int fig_launch_output_is_pending(const fig_launch_output *output);
/* Returns the errno of a write to stdout that failed, such as EPIPE if no one reads it, or 0. */
int fig_launch_output_error(const fig_launch_output *output);
/* Prints last lines that have no end of line, and reads nothing more. */
void fig_launch_output_end(fig_launch_output *output);

#endif
