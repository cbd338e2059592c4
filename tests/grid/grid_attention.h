/* grid_attention.h: runs a program of one attention node, and compares its steps with float64.
 *
 * Invariant: if each row has its own pages, every token that no query sees is NaN. */
#ifndef FIG_TESTS_GRID_GRID_ATTENTION_H
#define FIG_TESTS_GRID_GRID_ATTENTION_H

#include "tests/grid/grid.h"

enum { GRID_STEP_LIMIT = 6 };

/* K and V are separate arrays, or share a pool [pages][2][...] or [2][pages][...]. */
enum { GRID_APART, GRID_PAIRS, GRID_HALVES };
enum { GRID_UNSCALED, GRID_PER_TENSOR, GRID_PER_HEAD };

typedef struct grid_attention {
    fig_dtype dtype, kv_dtype; /* kv_dtype 0: equal to dtype */
    int32_t rows, row_tokens;  /* row_tokens 0: 1 */
    int32_t page_size;         /* 0: dense */
    int32_t kv_heads, group, head_dim;
    fig_kv_layout layout;
    int32_t pool, packed, window, scales;
    int32_t sinks, alibi;   /* 1: present */
    int32_t device_lengths; /* 1: the program reads lengths on the device */
    int32_t uneven; /* 1: only some of a row's queries, its last ones, are tokens of the step */
    int32_t deterministic;
    int32_t pooled;  /* 1: rows draw their pages from one pool, however small it is */
    int32_t reorder; /* 1: the rows are sequences in random order */
    float soft_cap;
    float logit_offset;  /* what every logit is; 0: logits are as drawn */
    int32_t kv_limit;    /* 0: the longest length */
    int32_t batch_limit; /* 0: as many as there are rows */
    int32_t step_count;  /* 0: 1 step */
    int32_t lengths[GRID_STEP_LIMIT][GRID_ROW_LIMIT];
    uint64_t seed;
} grid_attention;

/* Sets all rows of a step to one length. */
void grid_attention_uniform(grid_attention *form, int32_t step, int32_t length);
/* Returns the number of multiplications in all steps. */
int64_t grid_attention_work(const grid_attention *form);
void grid_attention_run(const grid_attention *form, grid_report *report);
/* Runs a form of a single step, and copies the bytes of `out` for the first rows to the caller's
 * array, so that runs can be compared. */
void grid_attention_bits(const grid_attention *form, grid_report *report, int32_t rows,
                         uint8_t *bits);

#endif
