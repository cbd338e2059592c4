/* bench_compare.c: figraph bench compare, which compares the times of a run with earlier runs.
 *
 * Rows of two files belong to the same cell if they agree in all columns that describe the cell
 * and that both files have. Invariant: a time is called slower only if it differs by more than
 * repeated old runs differ from each other and by more than the samples of either run differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/bench/bench_csv.h"
#include "tools/figraph/bench/bench_parts.h"
#include "tools/figraph/bench/bench_table.h"
#include "tools/figraph/terminal/report.h"

enum { OLD_LIMIT = 16, NAME_LIMIT = FIG_BENCH_WORD, PATH_LIMIT = 4096, PERCENT_LIMIT = 100 };

/* The columns that describe a row's cell, and the columns of times. */
static const char *const names[] = {
    "chip",  "preset",   "op",        "cell",   "kv",        "heads", "head_dim", "page", "layout",
    "dtype", "kv_dtype", "kv_scales", "window", "ffn_width", "nodes", "width",    "rows"};
static const char *const times[] = {"chain_us", "alone_us", "layer_us",   "parallel_us",
                                    "us",       "step_ns",  "fetched_ns", "result_ns"};
static const double SPREAD_LIMIT = 0.05;
enum { NAME_COUNT = sizeof names / sizeof *names, TIME_COUNT = sizeof times / sizeof *times };

static const fig_bench_column columns[] = {{"cell", 34, -1}, {"time", 11, -1}, {"runs", 4, 0},
                                           {"old", 10, 2},   {"most", 10, 2},  {"new", 10, 2},
                                           {"ratio", 6, 3},  {"slower", 6, 0}, {NULL, 0, 0}};

/* One time of a cell, in all runs. */
typedef struct line {
    char cell[NAME_LIMIT];
    int time;                  /* index into times */
    int runs;                  /* the number of old runs that have this time */
    double old, most, now;     /* the geometric mean of the old times, and the greatest of them */
    double noise;              /* the expected difference, relative to `most` */
    double old_run[OLD_LIMIT]; /* NAN: the run does not have the time */
} line;

typedef struct comparison {
    fig_bench_csv now, old[OLD_LIMIT];
    int old_count;
    double margin; /* the difference that is allowed in addition to the noise: 0.02 */
    line *lines;
    double *scratch;             /* [line_count] */
    int32_t line_count, missing; /* missing: times that are in no old run */
} comparison;

/* ---- Cells --------------------------------------------------------------------------------- */

/* Returns the column of a name; -1: the file has no such column. If the file has a column "cell",
 * which gives the rows, the column "rows" counts as absent. */
static int32_t column_of(const fig_bench_csv *csv, int name) {
    if (strcmp(names[name], "rows") == 0 && fig_bench_csv_column(csv, "cell") >= 0) return -1;
    return fig_bench_csv_column(csv, names[name]);
}

static int is_same(const fig_bench_csv *a, int32_t row, const fig_bench_csv *b, int32_t other) {
    for (int i = 0; i < NAME_COUNT; i++) {
        const int32_t x = column_of(a, i), y = column_of(b, i);
        if (x < 0 || y < 0) continue;
        if (strcmp(fig_bench_csv_word(a, row, x), fig_bench_csv_word(b, other, y)) != 0) return 0;
    }
    return 1;
}

/* Returns the row of `in` that has the same cell as row `row` of `of`; -1: there is none. */
static int32_t find_row(const fig_bench_csv *in, const fig_bench_csv *of, int32_t row) {
    for (int32_t i = 0; i < in->row_count; i++)
        if (is_same(of, row, in, i)) return i;
    return -1;
}

/* Writes the values that distinguish a row from the others of its file, from columns that are not
 * the same in all rows. */
static void name_row(const fig_bench_csv *csv, int32_t row, char name[NAME_LIMIT]) {
    size_t used = 0;
    name[0] = '\0';
    for (int i = 0; i < NAME_COUNT; i++) {
        const int32_t column = column_of(csv, i);
        int32_t other = 0;
        if (column < 0) continue;
        const char *word = fig_bench_csv_word(csv, row, column);
        while (other < csv->row_count && strcmp(fig_bench_csv_word(csv, other, column), word) == 0)
            other++;
        if (other == csv->row_count || word[0] == '\0' || used + 1 >= NAME_LIMIT) continue;
        snprintf(name + used, NAME_LIMIT - used, "%s%s", used > 0 ? " " : "", word);
        used = strlen(name);
    }
}

/* Returns the spread of a row's samples; a single outlier changes it little. */
static double spread_of(const fig_bench_csv *csv, int32_t row) {
    const double spread = fig_bench_csv_number(csv, row, fig_bench_csv_column(csv, "spread"));
    return spread > 0 ? fmin(spread, SPREAD_LIMIT) : 0;
}

/* Finds one time of a row of the new run in all runs. Returns 0 if the new run or all old runs
 * lack it. */
static int read_line(comparison *c, int32_t row, int time, line *to) {
    *to = (line){.time = time, .noise = spread_of(&c->now, row)};
    to->now = fig_bench_csv_number(&c->now, row, fig_bench_csv_column(&c->now, times[time]));
    if (!(to->now > 0)) return 0;
    double sum = 0;
    for (int i = 0; i < c->old_count; i++) {
        const fig_bench_csv *old = &c->old[i];
        const int32_t same = find_row(old, &c->now, row);
        const int32_t column = fig_bench_csv_column(old, times[time]);
        to->old_run[i] = same < 0 ? (double)NAN : fig_bench_csv_number(old, same, column);
        if (!(to->old_run[i] > 0)) continue;
        to->noise = fmax(to->noise, spread_of(old, same));
        to->most = fmax(to->most, to->old_run[i]);
        sum += log(to->old_run[i]);
        to->runs++;
    }
    c->missing += to->runs == 0;
    if (to->runs == 0) return 0;
    to->old = exp(sum / to->runs);
    name_row(&c->now, row, to->cell);
    return 1;
}

static int order_lines(const void *a, const void *b) {
    const line *x = a, *y = b;
    const double first = x->now / x->old, second = y->now / y->old;
    return (first < second) - (first > second);
}

static int read_lines(comparison *c) {
    const size_t most = (size_t)c->now.row_count * TIME_COUNT;
    c->lines = calloc(most + 1, sizeof *c->lines);
    c->scratch = calloc(most + 1, sizeof *c->scratch);
    if (c->lines == NULL || c->scratch == NULL)
        return fig_report_refuse("bench compare: no memory for %zu times", most);
    for (int32_t row = 0; row < c->now.row_count; row++)
        for (int time = 0; time < TIME_COUNT; time++)
            c->line_count += read_line(c, row, time, &c->lines[c->line_count]);
    if (c->line_count == 0)
        return fig_report_refuse("bench compare: the files have no time of a cell in common");
    qsort(c->lines, (size_t)c->line_count, sizeof *c->lines, order_lines);
    return FIG_EXIT_FINE;
}

/* ---- Verdicts ------------------------------------------------------------------------------ */

static int is_slower(const comparison *c, const line *of) {
    return of->now > of->most * (1 + of->noise + c->margin);
}

/* Text shows the times that differ by more than the margin; CSV and JSON have all times. */
static int show(const comparison *c, const fig_arguments *arguments) {
    fig_bench_table table;
    const int all = fig_arguments_text(arguments, "--json") != NULL ||
                    fig_arguments_text(arguments, "--csv") != NULL;
    int code = fig_bench_table_open(&table, columns, c->line_count);
    if (code != FIG_EXIT_FINE) return code;
    for (int32_t i = 0; i < c->line_count; i++) {
        const line *of = &c->lines[i];
        if (!all && fabs(of->now / of->old - 1) <= c->margin) continue;
        fig_bench_table_add(&table);
        fig_bench_table_word(&table, "cell", "%s", of->cell);
        fig_bench_table_word(&table, "time", "%s", times[of->time]);
        fig_bench_table_number(&table, "runs", of->runs);
        fig_bench_table_number(&table, "old", of->old);
        fig_bench_table_number(&table, "most", of->most);
        fig_bench_table_number(&table, "new", of->now);
        fig_bench_table_number(&table, "ratio", of->now / of->old);
        fig_bench_table_number(&table, "slower", is_slower(c, of));
    }
    if (table.row_count > 0) code = fig_bench_table_show(&table, arguments);
    fig_bench_table_close(&table);
    return code;
}

typedef struct verdict {
    int32_t count, slower;
    double ratio; /* the geometric mean of new over old */
    /* The spread of the old runs' means or, if that is larger, the median of the cells' sample
     * spreads. */
    double scatter;
} verdict;

/* Returns the mean of an old run, only over cells that all runs have. */
static double run_over_all(const comparison *c, int time, int run) {
    double sum = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < c->line_count; i++) {
        const line *of = &c->lines[i];
        if (of->time != time || of->runs < c->old_count) continue;
        sum += log(of->old_run[run] / of->old);
        count++;
    }
    return count > 0 ? exp(sum / count) : 1;
}

static int order_numbers(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_noise(const comparison *c, int time) {
    int32_t count = 0;
    for (int32_t i = 0; i < c->line_count; i++)
        if (c->lines[i].time == time) c->scratch[count++] = c->lines[i].noise;
    qsort(c->scratch, (size_t)count, sizeof *c->scratch, order_numbers);
    return c->scratch[count / 2];
}

static verdict judge(const comparison *c, int time) {
    verdict of = {.count = 0};
    double sum = 0, least = INFINITY, most = 0;
    for (int32_t i = 0; i < c->line_count; i++) {
        if (c->lines[i].time != time) continue;
        sum += log(c->lines[i].now / c->lines[i].old);
        of.slower += is_slower(c, &c->lines[i]);
        of.count++;
    }
    if (of.count == 0) return of;
    for (int run = 0; run < c->old_count; run++) {
        const double mean = run_over_all(c, time, run);
        least = fmin(least, mean);
        most = fmax(most, mean);
    }
    of.ratio = exp(sum / of.count);
    of.scatter = fmax(median_noise(c, time), most / least - 1);
    return of;
}

/* With --json, stdout has only JSON. */
static int conclude(const comparison *c, const fig_arguments *arguments) {
    const int quiet = fig_arguments_text(arguments, "--json") != NULL;
    double scatter = 0;
    int32_t slower = 0;
    for (int time = 0; time < TIME_COUNT; time++) {
        const verdict of = judge(c, time);
        if (of.count == 0) continue;
        scatter = fmax(scatter, of.scatter);
        slower += of.slower;
        if (!quiet)
            printf("%s: new takes %.3f of old, geometric mean of %d; %d slower; scatter %.1f%%\n",
                   times[time], of.ratio, of.count, of.slower, 100 * of.scatter);
    }
    if (!quiet && c->missing > 0) printf("%d times that no old run has\n", c->missing);
    if (scatter > c->margin)
        return fig_report_failure("bench compare: the machine was too noisy to say: times of one "
                                  "commit lie %.1f%% apart, and %.1f%% are allowed",
                                  100 * scatter, 100 * c->margin);
    if (slower == 0) return FIG_EXIT_FINE;
    return fig_report_failure("bench compare: %d of %d times are slower, beyond noise and margin",
                              slower, c->line_count);
}

/* ---- Arguments ----------------------------------------------------------------------------- */

static int read_old(comparison *c, const char *paths) {
    char path[PATH_LIMIT];
    while (*paths != '\0') {
        const size_t length = strcspn(paths, ",");
        if (c->old_count == OLD_LIMIT)
            return fig_report_refuse("bench compare: --old: more than %d files", OLD_LIMIT);
        if (length == 0 || length >= sizeof path)
            return fig_report_refuse("bench compare: --old: the name of file %d has %zu bytes, "
                                     "limits 1 to %zu",
                                     c->old_count + 1, length, sizeof path - 1);
        snprintf(path, sizeof path, "%.*s", (int)length, paths);
        const int code = fig_bench_csv_read(&c->old[c->old_count], path);
        if (code != FIG_EXIT_FINE) return code;
        c->old_count++;
        paths += length + (paths[length] == ',');
    }
    return FIG_EXIT_FINE;
}

static int read_all(const fig_arguments *arguments, comparison *c) {
    const fig_integer margin = {.name = "--margin", .most = PERCENT_LIMIT, .fallback = 2};
    int64_t percent;
    int code = fig_arguments_integer(arguments, &margin, &percent);
    c->margin = (double)percent / 100;
    if (code == FIG_EXIT_FINE) code = fig_bench_csv_read(&c->now, arguments->operand);
    if (code == FIG_EXIT_FINE) code = read_old(c, fig_arguments_text(arguments, "--old"));
    return code == FIG_EXIT_FINE ? read_lines(c) : code;
}

static int run(const fig_arguments *arguments) {
    comparison c = {.old_count = 0};
    int code = read_all(arguments, &c);
    if (code == FIG_EXIT_FINE) code = show(&c, arguments);
    if (code == FIG_EXIT_FINE) code = conclude(&c, arguments);
    free(c.scratch);
    free(c.lines);
    for (int i = 0; i < c.old_count; i++)
        fig_bench_csv_finish(&c.old[i]);
    fig_bench_csv_finish(&c.now);
    return code;
}

const fig_command fig_bench_compare = {
    .name = "bench compare",
    .summary = "compare a run's times with earlier runs; slower times come first",
    .operand = "NEW.csv",
    .notes =
        "All files must come from --csv of the same part. Several old files are repeated runs: "
        "their greatest time counts, and their geometric mean is shown. A time is slower if it "
        "exceeds the greatest old time by more than the margin and more than the spread of its "
        "cell's samples. The text shows times that differ from the old by more than the margin; "
        "--csv and --json have all times.\n"
        "\n"
        "scatter: the distance between the means of the old runs, or the mean spread of a cell's "
        "samples if that is greater. If scatter exceeds the margin, the machine was too noisy for "
        "an answer.",
    .failure = "a time is slower, or the machine was too noisy to say",
    .example = "figraph bench compare --old monday.csv,tuesday.csv today.csv",
    .run = run,
    .options =
        {
            {"--old", "FILE,..", "an earlier run, or several of one commit", FIG_OPTION_REQUIRED},
            {"--margin", "PERCENT", "the allowed increase beside the noise; default 2"},
            {"--csv", "FILE", "write all times to FILE, a line for each", .is_written = 1},
            {"--json", NULL, "print an array"},
        },
};
