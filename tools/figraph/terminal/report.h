/* report.h: what the program says: refusals, results, progress.
 *
 * Results go to stdout, sentences and progress to stderr. Invariant: a refusal is one line,
 * whatever the words it quotes hold. */
#ifndef FIG_TOOLS_REPORT_H
#define FIG_TOOLS_REPORT_H

#include <figraph.h>

enum {
    FIG_EXIT_FINE = 0,
    FIG_EXIT_FAILED = 1, /* a check failed */
    FIG_EXIT_BAD = 2     /* bad usage, bad input, or a device or file that refused */
};

/* Prints "figraph: <sentence>" and returns FIG_EXIT_BAD. */
__attribute__((format(printf, 1, 2))) int fig_report_refuse(const char *format, ...);
/* The same, and returns FIG_EXIT_FAILED. */
__attribute__((format(printf, 1, 2))) int fig_report_failure(const char *format, ...);
/* Refuses with the library's last sentence; `about`, a path say, comes before it unless the
 * sentence names it already. NULL: nothing does. */
int fig_report_status(const char *about);

/* Prints a name that somebody chose, a path say, on stdout; what a terminal might obey as '?'. */
void fig_report_name(const char *name);

/* A number with its thousands apart, "52 736"; `text` is returned. */
enum { FIG_REPORT_NUMBER = 32 };
const char *fig_report_number(char text[FIG_REPORT_NUMBER], int64_t value);

/* The same with what it counts, "1 row" or "52 736 rows"; `text` is returned. */
enum { FIG_REPORT_COUNT = FIG_REPORT_NUMBER + 32 };
const char *fig_report_count(char text[FIG_REPORT_COUNT], int64_t count, const char *noun);

/* "f16", "bf16", ... */
const char *fig_report_dtype(fig_dtype dtype);
const char *fig_report_activation(fig_activation activation); /* "silu", ... */

/* 1: the reader's locale takes more than ASCII. */
int fig_report_wide(void);

int64_t fig_report_now_ns(void);

/* One line on stderr, rewritten in place; only on a terminal, and only once work has lasted a
 * second. */
typedef struct fig_report_progress {
    const char *what; /* "step" */
    int64_t total;
    int64_t began_ns, drawn_ns;
    int shown, terminal;
} fig_report_progress;
void fig_report_begin(fig_report_progress *progress, const char *what, int64_t total);
void fig_report_advance(fig_report_progress *progress, int64_t done);
/* The same with words of the command's own. */
__attribute__((format(printf, 2, 3))) void fig_report_draw(fig_report_progress *progress,
                                                           const char *format, ...);
void fig_report_end(fig_report_progress *progress); /* wipes the line */

/* Closes stdout: what could not be written is a refusal. Returns `code` or FIG_EXIT_BAD. */
int fig_report_close(int code);

#endif
