/* launch_options.h: the command line of figraph-launch.
 *
 * Invariant: what it does not know is refused in one sentence; from the program's name on every
 * word is the program's. */
#ifndef FIG_TOOLS_LAUNCH_OPTIONS_H
#define FIG_TOOLS_LAUNCH_OPTIONS_H

#include <stdint.h>

enum { FIG_LAUNCH_LIMIT = 256, FIG_LAUNCH_USAGE = 2 };

typedef struct fig_launch_options {
    int32_t count;     /* of ranks */
    int32_t timeout_s; /* 0: none */
    int dry_run;
    int plain;            /* 1: lines of stdout are without their rank's number */
    char *const *program; /* and its arguments; NULL at the end */
} fig_launch_options;

/* 0; FIG_LAUNCH_USAGE where it was refused; -1: help was printed, and that is all. */
int fig_launch_options_parse(fig_launch_options *options, int count, char *const *words);

/* One line on stderr; returns `code`. */
__attribute__((format(printf, 2, 3))) int fig_launch_options_refuse(int code, const char *format,
                                                                    ...);

#endif
