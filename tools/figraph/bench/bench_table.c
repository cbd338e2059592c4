/* bench_table.c: prints the results of a bench as text, CSV and JSON from one table of columns. */
#include "tools/figraph/bench/bench_table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/terminal/columns.h"
#include "tools/figraph/terminal/emit.h"
#include "tools/figraph/terminal/report.h"

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
    for (int32_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->values[i].word);
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
    const int bytes = vsnprintf(NULL, 0, format, list) + 1;
    va_end(list);
    free(value->word);
    value->word = malloc((size_t)bytes); /* without memory the table lacks this word */
    if (value->word == NULL) return;
    va_start(list, format);
    vsnprintf(value->word, (size_t)bytes, format, list);
    va_end(list);
}

static const char *word_of(const fig_bench_value *value) {
    return value->word != NULL ? value->word : "";
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

/* The layout of the columns on a screen. In a narrow layout a heading has one line for each word
 * of the name, for example "chain" over "us". A column is as wide as its contents. A value that
 * all rows share is printed once, above the table. */
typedef struct layout {
    int widths[FIG_BENCH_COLUMN_LIMIT]; /* 0: the column is not printed */
    int lines;                          /* the lines of the heading */
    int narrow;
} layout;

static const char *text_of(const fig_bench_column *column, const fig_bench_value *value,
                           char text[FIG_BENCH_WORD]) {
    if (column->digits < 0) {
        snprintf(text, FIG_BENCH_WORD, "%s", word_of(value));
        return text;
    }
    if (isnan(value->number)) return "-";
    snprintf(text, FIG_BENCH_WORD, "%.*f", column->digits, value->number);
    return text;
}

static int words_of(const char *name) {
    int words = 1;
    for (const char *c = name; *c != '\0'; c++)
        words += *c == '_';
    return words;
}

/* Finds the part of a name that stands in a line of the heading; the last line has the last
 * word. Returns the number of bytes. */
static int heading(const layout *of, const char *name, int line, const char **part) {
    *part = name;
    if (!of->narrow) return (int)strlen(name);
    line -= of->lines - words_of(name);
    if (line < 0) return 0;
    for (; line > 0; line--)
        *part = strchr(*part, '_') + 1;
    return (int)strcspn(*part, "_");
}

static int is_alike(const fig_bench_table *table, int column) {
    char a[FIG_BENCH_WORD], b[FIG_BENCH_WORD];
    for (int32_t row = 1; row < table->row_count; row++)
        if (strcmp(text_of(&table->columns[column], &row_of(table, 0)[column], a),
                   text_of(&table->columns[column], &row_of(table, row)[column], b)) != 0)
            return 0;
    return 1;
}

static int widest(const fig_bench_table *table, const layout *of, int column) {
    char text[FIG_BENCH_WORD];
    const char *part;
    int most = 0;
    for (int line = 0; line < of->lines; line++) {
        const int bytes = heading(of, table->columns[column].name, line, &part);
        if (bytes > most) most = bytes;
    }
    for (int32_t row = 0; row < table->row_count; row++) {
        const int bytes =
            (int)strlen(text_of(&table->columns[column], &row_of(table, row)[column], text));
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Removes columns without a measured value. Prints words and whole numbers that are the same in
 * all rows once, above the table. The first column identifies the row and always stays. */
static void print_alike(const fig_bench_table *table, layout *of) {
    char text[FIG_BENCH_WORD], line[FIG_BENCH_COLUMN_LIMIT * FIG_BENCH_WORD];
    int used = 0, seen = 0;
    for (int i = 0; i < table->column_count; i++) {
        if (of->widths[i] == 0 || seen++ == 0 || !is_alike(table, i)) continue;
        const char *same = text_of(&table->columns[i], &row_of(table, 0)[i], text);
        if (table->columns[i].digits > 0 && strcmp(same, "-") != 0) continue;
        of->widths[i] = 0;
        if (strcmp(same, "-") != 0)
            used += snprintf(line + used, sizeof line - (size_t)used, "%s%s %s",
                             used > 0 ? ", " : "in all rows: ", table->columns[i].name, same);
    }
    if (used > 0) fig_columns_words(0, 0, line);
}

static int width_of(const fig_bench_table *table, const layout *of) {
    int width = 0;
    for (int i = 0; i < table->column_count; i++)
        if (of->widths[i] > 0) width += 1 + of->widths[i];
    return width;
}

/* Removes the last columns if the table is still too wide, because they matter least. The first
 * column stays, because it identifies the row. */
static void leave_out(const fig_bench_table *table, layout *of) {
    char line[FIG_BENCH_COLUMN_LIMIT * FIG_BENCH_WORD];
    int used = 0;
    for (int i = table->column_count; i > 1 && width_of(table, of) > fig_columns_of_table(); i--) {
        if (of->widths[i - 1] == 0) continue;
        of->widths[i - 1] = 0;
        used += snprintf(line + used, sizeof line - (size_t)used, "%s %s", used > 0 ? "," : "",
                         table->columns[i - 1].name);
    }
    if (used == 0) return;
    printf("left out, for want of columns:");
    fig_columns_words(30, 0, line);
}

static layout lay_out(const fig_bench_table *table) {
    layout of = {.lines = 1};
    for (int i = 0; i < table->column_count; i++)
        of.widths[i] = table->columns[i].width;
    of.narrow = width_of(table, &of) > fig_columns_of_table();
    if (!of.narrow) return of;
    print_alike(table, &of);
    for (int i = 0; i < table->column_count; i++) {
        const int words = words_of(table->columns[i].name);
        if (of.widths[i] > 0 && words > of.lines) of.lines = words;
    }
    for (int i = 0; i < table->column_count; i++)
        if (of.widths[i] > 0) of.widths[i] = widest(table, &of, i);
    leave_out(table, &of);
    return of;
}

void fig_bench_table_print(const fig_bench_table *table) {
    const layout of = lay_out(table);
    char text[FIG_BENCH_WORD];
    const char *part;
    for (int32_t row = -of.lines; row < table->row_count; row++) {
        for (int i = 0; i < table->column_count; i++) {
            const fig_bench_column *column = &table->columns[i];
            if (of.widths[i] == 0) continue;
            int bytes = FIG_BENCH_WORD;
            if (row < 0) bytes = heading(&of, column->name, row + of.lines, &part);
            if (row >= 0) part = text_of(column, &row_of(table, row)[i], text);
            printf(" %*.*s", column->digits < 0 ? -of.widths[i] : of.widths[i], bytes, part);
        }
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
                fig_emit_text(&emit, column->name, word_of(value));
            } else {
                fig_emit_number(&emit, column->name, value->number);
            }
        }
        fig_emit_close(&emit);
    }
    fig_emit_close(&emit);
}

/* Words contain no commas and no quotes, because cell names in a CSV have + instead of commas. */
static void write_row(FILE *file, const fig_bench_table *table, int32_t row) {
    for (int i = 0; i < table->column_count; i++) {
        const fig_bench_value *value = &row_of(table, row)[i];
        if (i > 0) fputc(',', file);
        if (table->columns[i].digits < 0) {
            fputs(word_of(value), file);
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
