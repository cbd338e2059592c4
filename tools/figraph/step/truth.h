/* truth.h: the operations of a decode step in plain float64, to compare a device against.
 *
 * Written from figraph.h alone and as dumb as it goes: one element after another, nothing shared
 * with the kernels, not even how a float of 16 or 8 bits is read. Each call does one row, and one
 * head where there are heads. Invariant: nothing here writes but to its outs. */
#ifndef TRUTH_H
#define TRUTH_H

#include <figraph.h>

enum { TRUTH_HEAD_DIM_LIMIT = 256 };

/* Memory of a caller: [rows][width], or [rows][heads][head_dim]. Strides are in elements. */
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

/* `count` elements of an array of any dtype, from `first` on. */
void truth_load_row(const void *array, fig_dtype dtype, int64_t first, int32_t count, double *out);
double truth_load(const void *array, fig_dtype dtype, int64_t index);
/* Stores the number nearest to x, of two the even one; f32, f16 and bf16. x is no NaN. */
void truth_store(void *array, fig_dtype dtype, int64_t index, double x);
/* What separates neighbours of that dtype near x: its unit in the last place. */
double truth_ulp(fig_dtype dtype, double x);

typedef struct truth_gated_args {
    truth_rows in; /* [rows][2 * width] */
    fig_activation activation;
    int64_t row;
    int32_t width;
} truth_gated_args;
void truth_gated(const truth_gated_args *args, double *out); /* [width] */

/* Of a row that a residual, if there was one, is already added to. */
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
    const fig_rope_table *table; /* likewise; NULL, or without a frequency: rope says them */
    int64_t row, position;
    int32_t head, head_dim;
    const float *cos_sin; /* [rotary_dim] of this position; NULL: computed */
    const double *turns;  /* of this position, as truth_rope_turns() has them; NULL: made anew */
    const void *norm;     /* [head_dim] of x's dtype; NULL: none */
    double norm_epsilon;
} truth_rope_args;
void truth_rope(const truth_rope_args *args, double *out); /* [head_dim] */
/* Cosine and sine of each pair, which are the same for all heads of a position. */
void truth_rope_turns(const truth_rope_args *args, double *turns); /* [rotary_dim / 2][2] */

typedef struct truth_merge_args {
    truth_rows a, b;
    double lse_a, lse_b; /* base 2 */
    int64_t row;
    int32_t head, head_dim;
} truth_merge_args;

/* magnitude: what out were if every value were positive, by which its error is judged. */
typedef struct truth_merge_result {
    double out[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT]; /* [head_dim] */
    double lse;
} truth_merge_result;
void truth_merge_states(const truth_merge_args *args, truth_merge_result *result);

/* Elements from the cache's start to head 0 of a token; -1 where its page is outside the cache. */
int64_t truth_cache_offset(const truth_cache *cache, int32_t sequence, int32_t token);

#endif
