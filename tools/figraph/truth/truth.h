/* truth.h: computes the operations of a decode step in plain float64, as a reference for a device.
 *
 * The code follows only figraph.h and is as simple as possible: it computes one element after
 * another and shares nothing with the kernels, not even the conversion of 16-bit and 8-bit floats.
 * Each call computes one row, or one head of a row if the operation has heads. Invariant:
 * functions write only to their outs. */
#ifndef TRUTH_H
#define TRUTH_H

#include <figraph.h>

enum { TRUTH_HEAD_DIM_LIMIT = 256 };

/* An array of the caller: [rows][width] or [rows][heads][head_dim]. Strides are in elements. */
typedef struct truth_rows {
    const void *base;
    fig_dtype dtype;
    int64_t row_stride, head_stride;
} truth_rows;

/* [pages][page_size][kv_heads][head_dim] */
typedef struct truth_cache {
    const void *base;
    fig_dtype dtype;
    int64_t page_stride, token_stride, head_stride;
    int64_t pages;
    int32_t page_size;
    const int32_t *page_table; /* [sequences][table_stride]; NULL: page s is sequence s */
    int64_t table_stride;
} truth_cache;

/* Reads `count` elements of an array of any dtype, from element `first` on. */
void truth_load_row(const void *array, fig_dtype dtype, int64_t first, int32_t count, double *out);
double truth_load(const void *array, fig_dtype dtype, int64_t index);
/* Stores x rounded to nearest even, as f32, f16 or bf16. x must not be NaN. */
void truth_store(void *array, fig_dtype dtype, int64_t index, double x);
/* Returns the unit in the last place of the dtype near x. */
double truth_ulp(fig_dtype dtype, double x);

typedef struct truth_gated_args {
    truth_rows in; /* [rows][2 * width] */
    fig_activation activation;
    int64_t row;
    int32_t width;
} truth_gated_args;
void truth_gated(const truth_gated_args *args, double *out); /* [width] */

/* x is the row after the residual, if any, was added. */
typedef struct truth_rms_norm_args {
    truth_rows x;       /* [rows][width] */
    const void *weight; /* [width] of x's dtype */
    double epsilon, weight_offset;
    int64_t row;
    int32_t width;
} truth_rms_norm_args;
void truth_rms_norm(const truth_rms_norm_args *args, double *out); /* [width] */

typedef struct truth_rope_args {
    truth_rows x;
    fig_rope_spec rope;          /* defaults filled in */
    const fig_rope_table *table; /* NULL or without frequencies: rope gives the frequencies */
    int64_t row, position;
    int32_t head, head_dim;
    const float *cos_sin; /* [rotary_dim] of this position; NULL: compute them */
    const double *turns;  /* of this position, from truth_rope_turns(); NULL: compute them */
    const void *norm;     /* [head_dim] of x's dtype; NULL: no norm */
    double norm_epsilon;
} truth_rope_args;
void truth_rope(const truth_rope_args *args, double *out); /* [head_dim] */
/* Computes the cosine and sine of each pair; they are equal for all heads of a position. */
void truth_rope_turns(const truth_rope_args *args, double *turns); /* [rotary_dim / 2][2] */

typedef struct truth_merge_args {
    truth_rows a, b;
    double lse_a, lse_b; /* base 2 */
    int64_t row;
    int32_t head, head_dim;
} truth_merge_args;

/* magnitude: the result if every value were positive; the tolerance is relative to it. */
typedef struct truth_merge_result {
    double out[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT]; /* [head_dim] */
    double lse;
} truth_merge_result;
void truth_merge_states(const truth_merge_args *args, truth_merge_result *result);

/* Returns the offset in elements of a token's head 0 in the cache; -1: its page is outside the
 * cache. */
int64_t truth_cache_offset(const truth_cache *cache, int32_t sequence, int32_t token);

#endif
