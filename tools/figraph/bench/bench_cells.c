/* bench_cells.c: makes the cells of a bench of attention: a shape and the rows of a step. */
#include "tools/figraph/bench/bench_cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/terminal/report.h"

enum { RANDOM_ROWS = 64 };

int fig_bench_cells_heads(const char *command, const char *text, fig_bench_shape *shape) {
    int used = 0;
    if (sscanf(text, "%4d/%4d%n", &shape->q_heads, &shape->kv_heads, &used) == 2 &&
        (text[used] == '\0' || text[used] == ',') && shape->kv_heads > 0 && shape->q_heads > 0 &&
        shape->q_heads % shape->kv_heads == 0)
        return FIG_EXIT_FINE;
    return fig_report_refuse(
        "%s: --heads: \"%s\" is not Q/KV with Q a multiple of KV, such as 32/8", command, text);
}

/* Adds the next cell, without rows. Returns FIG_EXIT_*. */
static int add(fig_bench_cells *cells, const fig_bench_set *set, fig_bench_cell **cell) {
    *cell = NULL;
    if (cells->count >= FIG_BENCH_CELL_LIMIT)
        return fig_report_refuse("bench attention: more than %d cells", FIG_BENCH_CELL_LIMIT);
    fig_bench_cell *grown = realloc(cells->cells, (size_t)(cells->count + 1) * sizeof *grown);
    if (grown == NULL) return fig_report_refuse("bench attention: no memory for cells");
    cells->cells = grown;
    *cell = &grown[cells->count++];
    **cell = (fig_bench_cell){.shape = set->shape};
    snprintf((*cell)->set, sizeof(*cell)->set, "%s", set->name);
    return FIG_EXIT_FINE;
}

static void replace(char *text, char from, char to) {
    for (; *text != '\0'; text++)
        if (*text == from) *text = to;
}

static int add_plain(fig_bench_cells *cells, const fig_bench_set *set, const char *text) {
    fig_bench_cell *cell;
    int code = add(cells, set, &cell);
    if (code != FIG_EXIT_FINE) return code;
    cell->name = strdup(text);
    if (cell->name == NULL) return fig_report_refuse("bench attention: no memory for a cell");
    replace(cell->name, '+', ',');
    code = fig_lengths_parse(&cell->lengths, cell->name, "bench attention: --kv");
    replace(cell->name, ',', '+');
    if (code == FIG_EXIT_FINE && fig_lengths_total(&cell->lengths) == 0)
        return fig_report_refuse("bench attention: --kv: \"%s\" has no row with tokens",
                                 cell->name);
    return code;
}

/* ---- Drafts */

/* The ends of a range of query tokens. */
typedef enum range_end { LEAST, MOST } range_end;

/* Copies the text to `to`, a buffer of the same length, and replaces each range by one of its
 * ends. */
static void cut_ranges(const char *text, range_end kept, char *to) {
    while (*text != '\0') {
        const size_t before = strcspn(text, ":");
        memcpy(to, text, before);
        to += before, text += before;
        if (*text == '\0') break;
        const size_t item = strcspn(text, ",+"), first = strcspn(text, "-,+");
        const size_t from = kept == MOST && first < item ? first + 1 : 1;
        const size_t end = kept == MOST ? item : first;
        *to++ = ':';
        memcpy(to, text + from, end - from);
        to += end - from, text += item;
    }
    *to = '\0';
}

/* Draws the number of query tokens of each row. On entry, cell->lengths has the least number of
 * each row, and `most` the largest; on return, cell->lengths has the drawn numbers. */
static int draw_queries(fig_bench_cell *cell, const fig_lengths *most, uint64_t seed) {
    fig_lengths *lengths = &cell->lengths;
    fig_synthetic synthetic;
    fig_synthetic_seed(&synthetic, seed);
    for (int32_t row = 0; row < lengths->count; row++) {
        const int32_t low = lengths->queries[row], high = most->queries[row];
        const int32_t limit = lengths->values[row] < FIG_BENCH_ROW_TOKENS ? lengths->values[row]
                                                                          : FIG_BENCH_ROW_TOKENS;
        if (low < (lengths->values[row] > 0) || high < low || high > limit)
            return fig_report_refuse("bench attention: --kv: \"%s\": a row of %d tokens has %d to "
                                     "%d query tokens, limits 1 to %d",
                                     cell->name, lengths->values[row], low, high, limit);
        if (high > cell->row_tokens) cell->row_tokens = high;
        lengths->queries[row] = low + fig_synthetic_below(&synthetic, high - low + 1);
    }
    return FIG_EXIT_FINE;
}

/* Reads a text with ranges into a cell of which only the name is set. least, most: buffers as long
 * as the text. */
static int read_drafts(fig_bench_cell *cell, uint64_t seed, char *least, char *most) {
    fig_lengths high = {0};
    cut_ranges(cell->name, LEAST, least);
    cut_ranges(cell->name, MOST, most);
    int code = fig_lengths_parse_queries(&cell->lengths, least, "bench attention: --kv");
    if (code == FIG_EXIT_FINE)
        code = fig_lengths_parse_queries(&high, most, "bench attention: --kv");
    if (code == FIG_EXIT_FINE) code = draw_queries(cell, &high, seed);
    fig_lengths_finish(&high);
    return code;
}

static int add_drafts(fig_bench_cells *cells, const fig_bench_set *set, const char *text) {
    const size_t bytes = strlen(text) + 1;
    fig_bench_cell *cell;
    char *plain = calloc(3, bytes);
    if (plain == NULL) return fig_report_refuse("bench attention: no memory for a cell");
    for (const char *from = text, *end = text + bytes; from < end;) {
        const size_t kept = strcspn(from, ":");
        strncat(plain, from, kept);
        from += kept + strcspn(from + kept, ",+");
        if (*from == '\0') break;
    }
    int code = add_plain(cells, set, plain);
    if (code == FIG_EXIT_FINE) code = add(cells, set, &cell);
    if (code == FIG_EXIT_FINE) {
        cell->has_plain = 1;
        cell->name = strdup(text);
        code = cell->name != NULL
                   ? read_drafts(cell, set->draft_seed, plain + bytes, plain + 2 * bytes)
                   : fig_report_refuse("bench attention: no memory for a cell");
    }
    if (code == FIG_EXIT_FINE) replace(cell->name, ',', '+');
    free(plain);
    return code;
}

int fig_bench_cells_add(fig_bench_cells *cells, const fig_bench_set *set, const char *text) {
    const int has_drafts = set->draft_seed != 0 && strchr(text, ':') != NULL;
    return has_drafts ? add_drafts(cells, set, text) : add_plain(cells, set, text);
}

/* ---- Sets */

int fig_bench_cells_list(fig_bench_cells *cells, const fig_bench_set *set,
                         const char *const *texts) {
    int code = FIG_EXIT_FINE;
    for (int i = 0; code == FIG_EXIT_FINE && texts[i] != NULL; i++)
        code = fig_bench_cells_add(cells, set, texts[i]);
    return code;
}

int fig_bench_cells_read(fig_bench_cells *cells, const fig_bench_set *set,
                         const fig_arguments *arguments) {
    const char *text;
    int at = 0, code = FIG_EXIT_FINE;
    while (code == FIG_EXIT_FINE && (text = fig_arguments_next(arguments, "--kv", &at)) != NULL)
        code = fig_bench_cells_add(cells, set, text);
    return code;
}

int fig_bench_cells_grid(fig_bench_cells *cells, const fig_bench_set *set, const int32_t *batches,
                         const int32_t *lengths) {
    char text[32];
    int code = FIG_EXIT_FINE;
    for (int i = 0; batches[i] > 0; i++)
        for (int j = 0; code == FIG_EXIT_FINE && lengths[j] > 0; j++) {
            snprintf(text, sizeof text, "%dx%d", batches[i], lengths[j]);
            code = fig_bench_cells_add(cells, set, text);
        }
    return code;
}

static int draw(fig_lengths *lengths, fig_synthetic *synthetic, int32_t most) {
    const int32_t rows = 1 + fig_synthetic_below(synthetic, RANDOM_ROWS);
    *lengths = (fig_lengths){.values = calloc((size_t)rows, sizeof *lengths->values)};
    if (lengths->values == NULL) return fig_report_refuse("bench attention: no memory");
    lengths->count = lengths->capacity = rows;
    for (int32_t row = 0; row < rows; row++)
        lengths->values[row] = fig_synthetic_below(synthetic, most + 1);
    lengths->values[0] += lengths->values[0] == 0;
    return FIG_EXIT_FINE;
}

static int add_random(fig_bench_cells *cells, const fig_bench_set *set, fig_synthetic *synthetic,
                      int32_t most) {
    char text[32];
    fig_lengths lengths;
    fig_bench_cell *cell;
    int code = draw(&lengths, synthetic, most);
    if (code != FIG_EXIT_FINE) return code;
    const int64_t even = fig_lengths_total(&lengths) / lengths.count;
    snprintf(text, sizeof text, "%dx%d", lengths.count, even > 0 ? (int)even : 1);
    code = fig_bench_cells_add(cells, set, text);
    if (code == FIG_EXIT_FINE) code = add(cells, set, &cell);
    if (code != FIG_EXIT_FINE) {
        fig_lengths_finish(&lengths);
        return code;
    }
    snprintf(text, sizeof text, "random%d", cells->count / 2);
    cell->lengths = lengths;
    cell->has_twin = 1;
    cell->name = strdup(text);
    return cell->name != NULL ? FIG_EXIT_FINE
                              : fig_report_refuse("bench attention: no memory for a cell");
}

int fig_bench_cells_random(fig_bench_cells *cells, const fig_bench_set *set, int32_t count,
                           int32_t most) {
    fig_synthetic synthetic;
    int code = FIG_EXIT_FINE;
    fig_synthetic_seed(&synthetic, 11);
    for (int32_t i = 0; code == FIG_EXIT_FINE && i < count; i++)
        code = add_random(cells, set, &synthetic, most);
    return code;
}

void fig_bench_cells_finish(fig_bench_cells *cells) {
    for (int32_t i = 0; i < cells->count; i++) {
        fig_lengths_finish(&cells->cells[i].lengths);
        free(cells->cells[i].name);
    }
    free(cells->cells);
    *cells = (fig_bench_cells){0};
}

/* Returns the tokens that a row's last query sees. */
static double seen_of(const fig_bench_cell *cell, int32_t row) {
    const int32_t length = cell->lengths.values[row], window = cell->shape.window;
    return window > 0 && length > window ? window : length;
}

double fig_bench_cell_bytes(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    const int32_t vectors = shape->latent_dim > 0 ? 1 : 2;
    double tokens = 0;
    for (int32_t row = 0; row < cell->lengths.count; row++)
        tokens += seen_of(cell, row);
    return tokens * vectors * shape->kv_heads * shape->head_dim *
           (double)fig_synthetic_bytes(shape->kv_dtype);
}

double fig_bench_cell_flops(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    double pairs = 0; /* of a query token and a token that it sees */
    if (shape->latent_dim == 0) return 0;
    for (int32_t row = 0; row < cell->lengths.count; row++)
        pairs += seen_of(cell, row) * (cell->row_tokens > 0 ? cell->lengths.queries[row] : 1);
    return 2 * pairs * shape->q_heads * (shape->head_dim + shape->latent_dim);
}

int64_t fig_bench_cell_queries(const fig_bench_cell *cell) {
    return cell->row_tokens > 0 ? fig_lengths_queries(&cell->lengths) : cell->lengths.count;
}

int32_t fig_bench_cell_longest(const fig_bench_cell *cell) {
    int32_t longest = 0;
    for (int32_t row = 0; row < cell->lengths.count; row++)
        if (cell->lengths.values[row] > longest) longest = cell->lengths.values[row];
    return longest;
}

int64_t fig_bench_cell_pages(const fig_bench_cell *cell) {
    int64_t pages = 0;
    for (int32_t row = 0; row < cell->lengths.count; row++)
        pages += (cell->lengths.values[row] + cell->shape.page - 1) / cell->shape.page;
    return pages;
}

size_t fig_bench_cell_page_bytes(const fig_bench_cell *cell) {
    const fig_bench_shape *shape = &cell->shape;
    return (size_t)shape->page * (size_t)shape->kv_heads * (size_t)shape->head_dim *
           fig_synthetic_bytes(shape->kv_dtype);
}
