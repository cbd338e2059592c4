/* report.h: prints refusals, results and progress.
 *
 * Results go to stdout; messages and progress go to stderr. Invariant: a refusal is one line,
 * whatever characters the quoted words hold. */
#ifndef FIG_TOOLS_REPORT_H
#define FIG_TOOLS_REPORT_H

#include <figraph.h>

enum {
    FIG_EXIT_FINE = 0,
    FIG_EXIT_FAILED = 1, /* a check failed */
    FIG_EXIT_BAD = 2     /* bad usage, bad input, or an error of a device or file */
};

/* Prints "figraph: <sentence>" and returns FIG_EXIT_BAD. */
__attribute__((format(printf, 1, 2))) int fig_report_refuse(const char *format, ...);
/* Prints like fig_report_refuse and returns FIG_EXIT_FAILED. */
__attribute__((format(printf, 1, 2))) int fig_report_failure(const char *format, ...);
/* Refuses with the library's last message. `about`, such as a path, comes before the message unless
 * the message already names it; NULL: nothing comes before it. */
int fig_report_status(const char *about);

/* Prints a name from outside, such as a path, on stdout; control characters become '?'. */
void fig_report_name(const char *name);

/* Writes a number with its thousands separated, "52 736", and returns `text`. */
enum { FIG_REPORT_NUMBER = 32 };
const char *fig_report_number(char text[FIG_REPORT_NUMBER], int64_t value);

/* Writes a number with its noun, "1 row" or "52 736 rows", and returns `text`. */
enum { FIG_REPORT_COUNT = FIG_REPORT_NUMBER + 32 };
const char *fig_report_count(char text[FIG_REPORT_COUNT], int64_t count, const char *noun);

/* "f16", "bf16", ... */
const char *fig_report_dtype(fig_dtype dtype);
const char *fig_report_activation(fig_activation activation); /* "silu", ... */

/* Returns the number of q heads of the smallest groups, if the cache is latent; 0: it is not. Over
 * a latent cache, fig_bucket_info.heads counts such groups, and otherwise KV heads. */
int32_t fig_report_group_heads(const fig_graphs *graphs);
/* Returns the number of heads that a worker of the first attention serves at a time: q heads if the
 * cache is latent, and otherwise KV heads. */
int32_t fig_report_heads(const fig_graphs *graphs, const fig_bucket_info *info);

/* 1: the locale supports more than ASCII. */
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
/* Redraws the line with a text of the command. */
__attribute__((format(printf, 2, 3))) void fig_report_draw(fig_report_progress *progress,
                                                           const char *format, ...);
void fig_report_end(fig_report_progress *progress); /* wipes the line */
/* For work in several long parts: prints a line when a part begins, if stderr is not a terminal.
 * Otherwise a pipe or a log would be silent until the end. `done`: the number of finished parts. */
void fig_report_part(const fig_report_progress *progress, int64_t done);

/* Closes stdout and refuses if a write failed. Returns `code` or FIG_EXIT_BAD. */
int fig_report_close(int code);

#endif
