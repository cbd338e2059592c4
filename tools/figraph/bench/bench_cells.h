/* bench_cells.h: makes the cells of a bench of attention: a shape and the rows of a step.
 *
 * A cell is written as its rows: "8x2048", or "32768,39x512" if they are ragged. A comma
 * separates the fields of a CSV, so there the cell's name has + instead of commas. Both forms
 * can be read. Rows of drafts also have a number of query tokens, as in "32x4096:16", or a range
 * from which each row's number is drawn, as in "32x4096:2-16". Invariant: a cell has a row with
 * tokens, and no row has fewer tokens than query tokens. */
#ifndef FIG_TOOLS_BENCH_CELLS_H
#define FIG_TOOLS_BENCH_CELLS_H

#include <figraph.h>

#include "tools/figraph/terminal/arguments.h"
#include "tools/figraph/terminal/lengths.h"

enum {
    FIG_BENCH_CELL_LIMIT = 2048,
    FIG_BENCH_ROW_TOKENS = 16 /* the most query tokens of a row where the device makes plans */
};

typedef struct fig_bench_shape {
    int32_t q_heads, kv_heads, head_dim, page, window; /* window 0: none */
    fig_dtype dtype, kv_dtype;
    int32_t kv_scales; /* as in fig_spec */
    fig_kv_layout layout;
    int32_t
        latent_dim; /* of a latent cache, whose tokens are one vector; 0: K and V of each head */
    float sm_scale; /* as in fig_spec */
} fig_bench_shape;

typedef struct fig_bench_cell {
    fig_bench_shape shape;
    fig_lengths lengths;
    /* 0: rows have one query token each, and the host knows their lengths. Above 0: the most query
     * tokens of a row; lengths.queries gives the number for each row, and the device reads lengths
     * and queries. */
    int32_t row_tokens;
    char *name;    /* "32768+39x512" */
    char set[16];  /* "kv", "uniform", ... */
    int has_twin;  /* 1: the preceding cell is uniform and has the same number of bytes */
    int has_plain; /* 1: the preceding cell has the same rows with one query token each */
} fig_bench_cell;

typedef struct fig_bench_cells {
    fig_bench_cell *cells; /* [count] */
    int32_t count;
} fig_bench_cells;

/* Reads "32/8", up to a comma, into the shape. Refuses another text, in the name of `command`.
 * Returns FIG_EXIT_*. */
int fig_bench_cells_heads(const char *command, const char *text, fig_bench_shape *shape);

/* The name and the shape that all cells of a set share. */
typedef struct fig_bench_set {
    const char *name;
    fig_bench_shape shape;
    uint64_t draft_seed; /* 0: rows have no drafts; otherwise decides the numbers that are drawn */
} fig_bench_set;
/* Adds one cell. If its rows have drafts, first adds a cell of the same rows with one query token
 * each. This function and the next ones return FIG_EXIT_*. */
int fig_bench_cells_add(fig_bench_cells *cells, const fig_bench_set *set, const char *text);
/* texts: NULL ends the list. */
int fig_bench_cells_list(fig_bench_cells *cells, const fig_bench_set *set,
                         const char *const *texts);
/* Adds one cell for each --kv. */
int fig_bench_cells_read(fig_bench_cells *cells, const fig_bench_set *set,
                         const fig_arguments *arguments);
/* Adds a cell for each pair of a batch and a length. 0 ends each list. */
int fig_bench_cells_grid(fig_bench_cells *cells, const fig_bench_set *set, const int32_t *batches,
                         const int32_t *lengths);
/* Adds `count` cells with random lengths up to `most`. Before each it adds a uniform cell with
 * the same number of rows and, up to the remainder of the division, the same number of tokens. */
int fig_bench_cells_random(fig_bench_cells *cells, const fig_bench_set *set, int32_t count,
                           int32_t most);
void fig_bench_cells_finish(fig_bench_cells *cells);

/* Returns the bytes of K and V that the step reads. */
double fig_bench_cell_bytes(const fig_bench_cell *cell);
/* Returns the floating-point operations of the step's products over a latent cache, where they may
 * take longer than reading does. */
double fig_bench_cell_flops(const fig_bench_cell *cell);
/* Returns the number of query tokens of the step. */
int64_t fig_bench_cell_queries(const fig_bench_cell *cell);
int32_t fig_bench_cell_longest(const fig_bench_cell *cell);
/* Returns the number of pages that the cell's rows fill. */
int64_t fig_bench_cell_pages(const fig_bench_cell *cell);
/* Returns the bytes of a page of K, or of V. */
size_t fig_bench_cell_page_bytes(const fig_bench_cell *cell);

#endif
