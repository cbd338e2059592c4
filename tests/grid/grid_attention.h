/* grid_attention.h: a program of one attention node, its memory, its steps and their truth.
 *
 * Invariant: what no query sees is NaN wherever each row has pages of its own. */
#ifndef FIG_TESTS_GRID_GRID_ATTENTION_H
#define FIG_TESTS_GRID_GRID_ATTENTION_H

#include "tests/grid/grid.h"

enum { GRID_STEP_LIMIT = 6 };

/* K and V: arrays of their own, or one pool [pages][2][...] or [2][pages][...]. */
enum { GRID_APART, GRID_PAIRS, GRID_HALVES };
enum { GRID_UNSCALED, GRID_PER_TENSOR, GRID_PER_HEAD };

typedef struct grid_attention {
    fig_dtype dtype, kv_dtype; /* kv_dtype 0: dtype */
    int32_t rows, row_tokens;  /* 0: 1 */
    int32_t page_size;         /* 0: dense */
    int32_t kv_heads, group, head_dim;
    fig_kv_layout layout;
    int32_t pool, packed, window, scales;
    int32_t sinks, alibi;   /* 1: there are */
    int32_t device_lengths; /* 1: the program reads them */
    int32_t uneven;         /* 1: of a row's queries only some, its last ones, are of the step */
    int32_t deterministic;
    int32_t pooled;  /* 1: rows draw their pages from one pool, however small */
    int32_t reorder; /* 1: rows are sequences in an order drawn at random */
    float soft_cap;
    float logit_offset;  /* what every logit is; 0: as drawn */
    int32_t kv_limit;    /* 0: the longest length */
    int32_t batch_limit; /* 0: rows */
    int32_t step_count;  /* 0: 1 */
    int32_t lengths[GRID_STEP_LIMIT][GRID_ROW_LIMIT];
    uint64_t seed;
} grid_attention;

/* All rows of a step alike. */
void grid_attention_uniform(grid_attention *form, int32_t step, int32_t length);
/* Multiplications of all steps. */
int64_t grid_attention_work(const grid_attention *form);
void grid_attention_run(const grid_attention *form, grid_report *report);
/* The bytes of out of the first rows of a single step, the caller's array; for comparing runs. */
void grid_attention_bits(const grid_attention *form, grid_report *report, int32_t rows,
                         uint8_t *bits);

#endif
