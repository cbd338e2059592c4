/* launch_options.h: parses the command line of figraph-launch.
 *
 * Invariant: the launcher refuses an unknown option in one sentence. Every word after the program's
 * name belongs to the program. */
#ifndef FIG_TOOLS_LAUNCH_OPTIONS_H
#define FIG_TOOLS_LAUNCH_OPTIONS_H

#include <stdint.h>

enum { FIG_LAUNCH_LIMIT = 256, FIG_LAUNCH_USAGE = 2 };

typedef struct fig_launch_options {
    int32_t count;     /* number of ranks */
    int32_t timeout_s; /* 0: none */
    int dry_run;
    int plain;            /* 1: lines of stdout are printed without the rank's number */
    char *const *program; /* the program and its arguments; NULL at the end */
} fig_launch_options;

/* Parses the command line. Returns 0, or FIG_LAUNCH_USAGE if it refused the command line, or -1 if
 * it only printed the help. */
int fig_launch_options_parse(fig_launch_options *options, int count, char *const *words);

/* Closes stdout. Returns 0, or FIG_LAUNCH_USAGE and a line on stderr if a write failed. */
int fig_launch_options_close(void);

/* Prints one line on stderr, and returns `code`. */
__attribute__((format(printf, 2, 3))) int fig_launch_options_refuse(int code, const char *format,
                                                                    ...);

#endif
