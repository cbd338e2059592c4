/* bench_csv.h: a CSV that a bench wrote, read again.
 *
 * Invariant: every row has a field for each column of the first line. */
#ifndef FIG_TOOLS_BENCH_CSV_H
#define FIG_TOOLS_BENCH_CSV_H

#include <stdint.h>

typedef struct fig_bench_csv {
    char *text;    /* the file's, in which fields end with a NUL */
    char **fields; /* [row_count + 1][column_count], of which the first row has the names */
    int32_t column_count, row_count;
} fig_bench_csv;

/* Returns FIG_EXIT_*; finish takes a zeroed struct too. */
int fig_bench_csv_read(fig_bench_csv *csv, const char *path);
void fig_bench_csv_finish(fig_bench_csv *csv);

int32_t fig_bench_csv_column(const fig_bench_csv *csv, const char *name); /* -1: there is none */
const char *fig_bench_csv_word(const fig_bench_csv *csv, int32_t row, int32_t column);
/* NAN where no number stands, and in column -1. */
double fig_bench_csv_number(const fig_bench_csv *csv, int32_t row, int32_t column);

#endif
