/* bench_csv.c: reads a CSV that a bench wrote. */
#include "tools/figraph/bench/bench_csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/report.h"

enum { BYTES_LIMIT = 16 << 20, COLUMN_LIMIT = 256 };

static int read_text(fig_bench_csv *csv, const char *path, FILE *file) {
    csv->text = malloc(BYTES_LIMIT + 1);
    if (csv->text == NULL) return fig_report_refuse("bench: no memory for %s", path);
    errno = 0;
    const size_t bytes = fread(csv->text, 1, BYTES_LIMIT, file);
    if (ferror(file)) return fig_report_refuse("bench: %s: %s", path, strerror(errno));
    if (bytes == BYTES_LIMIT)
        return fig_report_refuse("bench: %s: more than %d bytes", path, BYTES_LIMIT - 1);
    csv->text[bytes] = '\0';
    return FIG_EXIT_FINE;
}

/* Ends the field that begins at `at` and returns the start of the next field. Sets `end` to the
 * character that followed the field. Commas within quotes do not end a field. */
static char *cut_field(char *at, char **field, char *end) {
    const int quoted = *at == '"';
    char *last = at + quoted;
    *field = last;
    last += strcspn(last, quoted ? "\"\n" : ",\n");
    char *next = last + (quoted && *last == '"');
    if (*next == '\r') next++;
    *end = *next;
    if (last > *field && last[-1] == '\r') last[-1] = '\0';
    *last = '\0';
    return *end == '\0' ? next : next + 1;
}

/* Splits a line into fields, [LIMIT]; returns the number of fields. */
static int32_t cut_line(char **at, char **fields) {
    int32_t count = 0;
    char end = ',';
    while (end == ',' && count < COLUMN_LIMIT)
        *at = cut_field(*at, &fields[count++], &end);
    return end == ',' ? COLUMN_LIMIT + 1 : count;
}

static int cut_rows(fig_bench_csv *csv, const char *path) {
    char *fields[COLUMN_LIMIT], *at = csv->text;
    size_t lines = 1;
    for (const char *c = csv->text; *c != '\0'; c++)
        lines += *c == '\n';
    csv->column_count = cut_line(&at, fields);
    if (csv->column_count > COLUMN_LIMIT)
        return fig_report_refuse("bench: %s: more than %d columns", path, COLUMN_LIMIT);
    const size_t columns = (size_t)csv->column_count;
    csv->fields = calloc(lines * columns, sizeof *csv->fields);
    if (csv->fields == NULL) return fig_report_refuse("bench: no memory for %s", path);
    memcpy(csv->fields, fields, columns * sizeof *fields);
    while (*at != '\0') {
        const int32_t count = cut_line(&at, fields);
        if (count != csv->column_count)
            return fig_report_refuse("bench: %s:%d: %d fields, its first line has %d", path,
                                     csv->row_count + 2, count, csv->column_count);
        memcpy(csv->fields + (size_t)++csv->row_count * columns, fields, columns * sizeof *fields);
    }
    return FIG_EXIT_FINE;
}

int fig_bench_csv_read(fig_bench_csv *csv, const char *path) {
    *csv = (fig_bench_csv){.text = NULL};
    FILE *file = fopen(path, "r");
    if (file == NULL) return fig_report_refuse("bench: %s: %s", path, strerror(errno));
    int code = read_text(csv, path, file);
    fclose(file);
    if (code == FIG_EXIT_FINE) code = cut_rows(csv, path);
    if (code != FIG_EXIT_FINE) fig_bench_csv_finish(csv);
    return code;
}

void fig_bench_csv_finish(fig_bench_csv *csv) {
    free(csv->text);
    free(csv->fields);
    *csv = (fig_bench_csv){.text = NULL};
}

int32_t fig_bench_csv_column(const fig_bench_csv *csv, const char *name) {
    for (int32_t i = 0; i < csv->column_count; i++)
        if (strcmp(csv->fields[i], name) == 0) return i;
    return -1;
}

const char *fig_bench_csv_word(const fig_bench_csv *csv, int32_t row, int32_t column) {
    return csv->fields[((size_t)row + 1) * (size_t)csv->column_count + (size_t)column];
}

double fig_bench_csv_number(const fig_bench_csv *csv, int32_t row, int32_t column) {
    if (column < 0) return (double)NAN;
    const char *word = fig_bench_csv_word(csv, row, column);
    char *end;
    const double number = strtod(word, &end);
    return end == word || *end != '\0' ? (double)NAN : number;
}
