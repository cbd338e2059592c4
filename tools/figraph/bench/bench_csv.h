/* bench_csv.h: reads a CSV that a bench wrote.
 *
 * Invariant: every row has a field for each column of the first line. */
#ifndef FIG_TOOLS_BENCH_CSV_H
#define FIG_TOOLS_BENCH_CSV_H

#include <stdint.h>

typedef struct fig_bench_csv {
    char *text;    /* the text of the file; a NUL ends each field */
    char **fields; /* [row_count + 1][column_count]; the first row has the names */
    int32_t column_count, row_count;
} fig_bench_csv;

/* Returns FIG_EXIT_*. finish also accepts a zeroed struct. */
int fig_bench_csv_read(fig_bench_csv *csv, const char *path);
void fig_bench_csv_finish(fig_bench_csv *csv);

/* -1: there is no such column */
int32_t fig_bench_csv_column(const fig_bench_csv *csv, const char *name);
const char *fig_bench_csv_word(const fig_bench_csv *csv, int32_t row, int32_t column);
/* Returns NAN if the field is not a number or the column is -1. */
double fig_bench_csv_number(const fig_bench_csv *csv, int32_t row, int32_t column);

#endif
