/* bench_cells.h: what attention is timed at: shapes, and the rows of a step in each.
 *
 * A cell is written as its rows: "8x2048", or "1x32768+39x512" where they are ragged. Invariant: a
 * cell has a row with tokens. */
#ifndef FIG_TOOLS_BENCH_CELLS_H
#define FIG_TOOLS_BENCH_CELLS_H

#include <figraph.h>

#include "tools/figraph/terminal/lengths.h"

enum { FIG_BENCH_CELL_LIMIT = 2048 };

typedef struct fig_bench_shape {
    int32_t q_heads, kv_heads, head_dim, page, window; /* window 0: none */
    fig_dtype dtype, kv_dtype;
    int32_t kv_scales; /* as fig_spec has them */
    fig_kv_layout layout;
} fig_bench_shape;

typedef struct fig_bench_cell {
    fig_bench_shape shape;
    fig_lengths lengths;
    char name[80], set[16]; /* set: "kv", "uniform", ... */
    int has_twin;           /* 1: the cell before is a uniform one of as many bytes */
} fig_bench_cell;

typedef struct fig_bench_cells {
    fig_bench_cell *cells; /* [count] */
    int32_t count;
} fig_bench_cells;

/* "32/8": returns 0 where the text is none, or its heads are no group. */
int fig_bench_cells_heads(const char *text, int32_t *q_heads, int32_t *kv_heads);

/* What a cell is made from. */
typedef struct fig_bench_set {
    const char *name;
    fig_bench_shape shape;
} fig_bench_set;
/* Cells apart by commas. Each returns FIG_EXIT_*. */
int fig_bench_cells_list(fig_bench_cells *cells, const fig_bench_set *set, const char *text);
/* Every one of `batches` with every one of `lengths`, both ended by 0. */
int fig_bench_cells_grid(fig_bench_cells *cells, const fig_bench_set *set, const int32_t *batches,
                         const int32_t *lengths);
/* So many batches drawn at random, with lengths up to `most`, and before each a uniform one of
 * as many rows and, but for what does not divide, as many tokens. */
int fig_bench_cells_random(fig_bench_cells *cells, const fig_bench_set *set, int32_t count,
                           int32_t most);
void fig_bench_cells_finish(fig_bench_cells *cells);

/* K and V that the step reads. */
double fig_bench_cell_bytes(const fig_bench_cell *cell);
int32_t fig_bench_cell_longest(const fig_bench_cell *cell);
int64_t fig_bench_cell_pages(const fig_bench_cell *cell);     /* that its rows fill */
size_t fig_bench_cell_page_bytes(const fig_bench_cell *cell); /* of K, or of V */

#endif
