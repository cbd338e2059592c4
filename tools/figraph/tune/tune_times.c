/* tune_times.c: keeps the times of attention in each variant, as a list and as a CSV.
 *
 * Invariant: a list that was written reads back the same. */
#include "tools/figraph/tune/tune_times.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { ROW_LIMIT = 1 << 16, LINE_BYTES = 256 };
static const char HEADER[] =
    "chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us";

int fig_tune_times_add(fig_tune_times *times, const fig_tune_time *row) {
    if (times->count == ROW_LIMIT) return fig_report_refuse("tune: more than %d times", ROW_LIMIT);
    if (times->count == times->capacity) {
        const int32_t capacity = times->capacity == 0 ? 64 : 2 * times->capacity;
        fig_tune_time *grown = realloc(times->rows, (size_t)capacity * sizeof *grown);
        if (grown == NULL) return fig_report_refuse("tune: no memory for %d times", capacity);
        times->rows = grown;
        times->capacity = capacity;
    }
    times->rows[times->count++] = *row;
    return FIG_EXIT_FINE;
}

/* Reads the first ten columns. The others give the driver, date and commit of the measurement. */
static int parse(const char *line, fig_tune_time *row) {
    int used = 0;
    *row = (fig_tune_time){.chip = ""};
    if (sscanf(line, "%15[^,],%d/%d,%d,%d,%d,%79[^,],%11[^,],%lf,%lf%n", row->chip, &row->q_heads,
               &row->kv_heads, &row->head_dim, &row->value_bytes, &row->window, row->cell,
               row->variant, &row->chain_us, &row->alone_us, &used) != 10)
        return 0;
    return strchr(",\r\n", line[used]) != NULL && row->chain_us > 0 && row->alone_us > 0 &&
           row->chain_us < INFINITY && row->alone_us < INFINITY;
}

static int count_columns(const char *line) {
    int columns = 1;
    for (; *line != 0; line++)
        columns += *line == ',';
    return columns;
}

static int read_lines(fig_tune_times *times, const char *path, FILE *file) {
    char line[LINE_BYTES];
    int code = FIG_EXIT_FINE;
    if (fgets(line, sizeof line, file) == NULL || strncmp(line, HEADER, strlen(HEADER)) != 0)
        return fig_report_refuse("tune: %s: its first line is not \"%s\"", path, HEADER);
    const int columns = count_columns(line);
    for (int number = 2; code == FIG_EXIT_FINE && fgets(line, sizeof line, file) != NULL;
         number++) {
        fig_tune_time row;
        if (count_columns(line) != columns || !parse(line, &row))
            return fig_report_refuse("tune: %s:%d: the line has not the columns %s", path, number,
                                     HEADER);
        code = fig_tune_times_add(times, &row);
    }
    return code;
}

int fig_tune_times_read(fig_tune_times *times, const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) return fig_report_refuse("tune: --times: %s: %s", path, strerror(errno));
    const int code = read_lines(times, path, file);
    fclose(file);
    return code;
}

int fig_tune_times_write(const fig_tune_times *times, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return fig_report_refuse("tune: --csv: %s: %s", path, strerror(errno));
    fprintf(file, "%s\n", HEADER);
    for (int32_t i = 0; i < times->count; i++) {
        const fig_tune_time *row = &times->rows[i];
        fprintf(file, "%s,%d/%d,%d,%d,%d,%s,%s,%.3f,%.3f\n", row->chip, row->q_heads, row->kv_heads,
                row->head_dim, row->value_bytes, row->window, row->cell, row->variant,
                row->chain_us, row->alone_us);
    }
    const int failed = ferror(file);
    errno = 0;
    if (fclose(file) == 0 && !failed) return FIG_EXIT_FINE;
    return fig_report_refuse("tune: --csv: %s: %s", path,
                             errno != 0 ? strerror(errno) : "a write failed");
}

void fig_tune_times_finish(fig_tune_times *times) {
    free(times->rows);
    *times = (fig_tune_times){0};
}

int fig_tune_times_lengths(const char *cell, fig_lengths *lengths) {
    char list[sizeof((fig_tune_time *)0)->cell];
    snprintf(list, sizeof list, "%s", cell);
    for (char *c = list; *c != '\0'; c++)
        if (*c == '+') *c = ',';
    return fig_lengths_parse(lengths, list, "tune: cell");
}

int fig_tune_times_is_of(const fig_tune_time *row, const fig_tune_class *of) {
    return row->q_heads == of->q_heads && row->kv_heads == of->kv_heads &&
           row->head_dim == of->head_dim && row->value_bytes == of->value_bytes &&
           row->window == of->window;
}

double fig_tune_times_ns(const fig_tune_time *row) {
    return sqrt(row->chain_us * row->alone_us) * 1000;
}
