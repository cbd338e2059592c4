/* bench_table.h: what a bench found, as text, CSV and JSON from one table of columns.
 *
 * Invariant: a row has a value for every column, and all three forms show the same ones. */
#ifndef FIG_TOOLS_BENCH_TABLE_H
#define FIG_TOOLS_BENCH_TABLE_H

#include <stdint.h>

#include "tools/figraph/terminal/arguments.h"

enum { FIG_BENCH_WORD = 96, FIG_BENCH_COLUMN_LIMIT = 40 };

typedef struct fig_bench_column {
    const char *name;  /* NULL behind the last */
    int width, digits; /* of the text; width 0: in CSV and JSON alone; digits below 0: a word */
} fig_bench_column;

typedef struct fig_bench_value {
    char word[FIG_BENCH_WORD];
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
/* The row that comes next: words empty, numbers NAN. */
void fig_bench_table_add(fig_bench_table *table);
/* Of the last row. */
__attribute__((format(printf, 3, 4))) void
fig_bench_table_word(fig_bench_table *table, const char *column, const char *format, ...);
void fig_bench_table_number(fig_bench_table *table, const char *column, double number);
/* Of every row that has a number above 0 there; NAN where none has. */
double fig_bench_table_mean(const fig_bench_table *table, const char *column);
double fig_bench_table_least(const fig_bench_table *table, const char *column);

/* As wide as its columns; narrow where the terminal has not so many. */
void fig_bench_table_print(const fig_bench_table *table);
void fig_bench_table_emit(const fig_bench_table *table); /* an array of objects, as JSON */
int fig_bench_table_write(const fig_bench_table *table, const char *path);
/* Writes what --csv asks for, and prints it as text or, with --json, as JSON. */
int fig_bench_table_show(const fig_bench_table *table, const fig_arguments *arguments);

#endif
