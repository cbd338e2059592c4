/* bench_table.h: prints the results of a bench as text, CSV and JSON from one table of columns.
 *
 * Invariant: a row has a value for every column, and all three forms show the same values. */
#ifndef FIG_TOOLS_BENCH_TABLE_H
#define FIG_TOOLS_BENCH_TABLE_H

#include <stdint.h>

#include "tools/figraph/terminal/arguments.h"

/* FIG_BENCH_WORD: the largest number of bytes of a word in text. */
enum { FIG_BENCH_WORD = 96, FIG_BENCH_COLUMN_LIMIT = 40 };

typedef struct fig_bench_column {
    const char *name;  /* NULL in the row after the last */
    int width, digits; /* for text; width 0: not in text; digits below 0: a word */
} fig_bench_column;

typedef struct fig_bench_value {
    char *word;    /* NULL: no word */
    double number; /* NAN: not measured */
} fig_bench_value;

typedef struct fig_bench_table {
    const fig_bench_column *columns;
    int column_count;
    int32_t row_count, row_limit;
    fig_bench_value *values; /* [row_limit][column_count] */
} fig_bench_table;

/* Returns FIG_EXIT_*. */
int fig_bench_table_open(fig_bench_table *table, const fig_bench_column *columns,
                         int32_t row_limit);
void fig_bench_table_close(fig_bench_table *table);
/* Adds a row with empty words and all numbers NAN. */
void fig_bench_table_add(fig_bench_table *table);
/* Sets a value in the last row. */
__attribute__((format(printf, 3, 4))) void
fig_bench_table_word(fig_bench_table *table, const char *column, const char *format, ...);
void fig_bench_table_number(fig_bench_table *table, const char *column, double number);
/* Returns the mean of a column over all rows with a number above 0; NAN if no row has one. */
double fig_bench_table_mean(const fig_bench_table *table, const char *column);
double fig_bench_table_least(const fig_bench_table *table, const char *column);

/* Prints the table as wide as its columns; uses the narrow layout if the terminal is narrower. */
void fig_bench_table_print(const fig_bench_table *table);
void fig_bench_table_emit(const fig_bench_table *table); /* an array of objects, as JSON */
int fig_bench_table_write(const fig_bench_table *table, const char *path);
/* Writes the CSV that --csv names, and prints the table as text or, with --json, as JSON. */
int fig_bench_table_show(const fig_bench_table *table, const fig_arguments *arguments);

#endif
