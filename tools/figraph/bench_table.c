/* bench_table.c: what a bench found, as text, CSV and JSON from one table of columns. */
#include "tools/figraph/bench_table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/emit.h"
#include "tools/figraph/report.h"

int fig_bench_table_open(fig_bench_table *table, const fig_bench_column *columns,
                         int32_t row_limit) {
    *table = (fig_bench_table){.columns = columns, .row_limit = row_limit};
    while (columns[table->column_count].name != NULL)
        table->column_count++;
    assert(table->column_count <= FIG_BENCH_COLUMN_LIMIT);
    table->values =
        calloc((size_t)row_limit * (size_t)table->column_count + 1, sizeof *table->values);
    if (table->values == NULL) return fig_report_refuse("bench: no memory for %d rows", row_limit);
    return FIG_EXIT_FINE;
}

void fig_bench_table_close(fig_bench_table *table) {
    free(table->values);
    *table = (fig_bench_table){0};
}

static fig_bench_value *row_of(const fig_bench_table *table, int32_t row) {
    return table->values + (size_t)row * (size_t)table->column_count;
}

void fig_bench_table_add(fig_bench_table *table) {
    assert(table->row_count < table->row_limit);
    fig_bench_value *row = row_of(table, table->row_count++);
    for (int i = 0; i < table->column_count; i++)
        row[i].number = (double)NAN;
}

static int column_named(const fig_bench_table *table, const char *name) {
    int column = 0;
    while (column < table->column_count && strcmp(table->columns[column].name, name) != 0)
        column++;
    assert(column < table->column_count);
    return column;
}

void fig_bench_table_word(fig_bench_table *table, const char *column, const char *format, ...) {
    fig_bench_value *value = &row_of(table, table->row_count - 1)[column_named(table, column)];
    va_list list;
    va_start(list, format);
    vsnprintf(value->word, sizeof value->word, format, list);
    va_end(list);
}

void fig_bench_table_number(fig_bench_table *table, const char *column, double number) {
    row_of(table, table->row_count - 1)[column_named(table, column)].number = number;
}

double fig_bench_table_mean(const fig_bench_table *table, const char *column) {
    const int index = column_named(table, column);
    double sum = 0;
    int count = 0;
    for (int32_t row = 0; row < table->row_count; row++) {
        const double number = row_of(table, row)[index].number;
        if (!(number > 0)) continue;
        sum += log(number);
        count++;
    }
    return count > 0 ? exp(sum / count) : (double)NAN;
}

double fig_bench_table_least(const fig_bench_table *table, const char *column) {
    const int index = column_named(table, column);
    double least = (double)NAN;
    for (int32_t row = 0; row < table->row_count; row++) {
        const double number = row_of(table, row)[index].number;
        if (number > 0 && !(number >= least)) least = number;
    }
    return least;
}

/* ---- Three forms --------------------------------------------------------------------------- */

static void print_value(const fig_bench_column *column, const fig_bench_value *value) {
    if (column->digits < 0) {
        printf(" %-*s", column->width, value->word);
    } else if (isnan(value->number)) {
        printf(" %*s", column->width, "-");
    } else {
        printf(" %*.*f", column->width, column->digits, value->number);
    }
}

void fig_bench_table_print(const fig_bench_table *table) {
    for (int i = 0; i < table->column_count; i++) {
        const fig_bench_column *column = &table->columns[i];
        if (column->width > 0)
            printf(" %*s", column->digits < 0 ? -column->width : column->width, column->name);
    }
    printf("\n");
    for (int32_t row = 0; row < table->row_count; row++) {
        for (int i = 0; i < table->column_count; i++)
            if (table->columns[i].width > 0)
                print_value(&table->columns[i], &row_of(table, row)[i]);
        printf("\n");
    }
}

void fig_bench_table_emit(const fig_bench_table *table) {
    fig_emit emit = {0};
    fig_emit_array(&emit, NULL);
    for (int32_t row = 0; row < table->row_count; row++) {
        fig_emit_object(&emit, NULL);
        for (int i = 0; i < table->column_count; i++) {
            const fig_bench_column *column = &table->columns[i];
            const fig_bench_value *value = &row_of(table, row)[i];
            if (column->digits < 0) {
                fig_emit_text(&emit, column->name, value->word);
            } else {
                fig_emit_number(&emit, column->name, value->number);
            }
        }
        fig_emit_close(&emit);
    }
    fig_emit_close(&emit);
}

/* Words hold no commas and no quotes: names of cells have a + where others have a comma. */
static void write_row(FILE *file, const fig_bench_table *table, int32_t row) {
    for (int i = 0; i < table->column_count; i++) {
        const fig_bench_value *value = &row_of(table, row)[i];
        if (i > 0) fputc(',', file);
        if (table->columns[i].digits < 0) {
            fputs(value->word, file);
        } else if (!isnan(value->number)) {
            fprintf(file, "%.*f", table->columns[i].digits, value->number);
        }
    }
    fputc('\n', file);
}

int fig_bench_table_write(const fig_bench_table *table, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return fig_report_refuse("bench: --csv: %s: %s", path, strerror(errno));
    for (int i = 0; i < table->column_count; i++)
        fprintf(file, "%s%s", i > 0 ? "," : "", table->columns[i].name);
    fputc('\n', file);
    for (int32_t row = 0; row < table->row_count; row++)
        write_row(file, table, row);
    const int failed = ferror(file);
    errno = 0;
    if (fclose(file) == 0 && !failed) return FIG_EXIT_FINE;
    return fig_report_refuse("bench: --csv: %s: %s", path,
                             errno != 0 ? strerror(errno) : "a write failed");
}

int fig_bench_table_show(const fig_bench_table *table, const fig_arguments *arguments) {
    const char *csv = fig_arguments_text(arguments, "--csv");
    const int code = csv != NULL ? fig_bench_table_write(table, csv) : FIG_EXIT_FINE;
    if (code != FIG_EXIT_FINE) return code;
    if (fig_arguments_text(arguments, "--json") != NULL) {
        fig_bench_table_emit(table);
    } else {
        fig_bench_table_print(table);
    }
    return FIG_EXIT_FINE;
}
