/* truth.h: the operations of a decode step in plain float64, to compare a device against.
 *
 * Written from figraph.h alone and as dumb as it goes: one element after another, nothing shared
 * with the kernels, not even how a 16-bit float is read. Each call does one row, and one head where
 * there are heads. Invariant: nothing here writes but to its outs. */
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

/* Element `index` of an array of any dtype. */
double truth_load(const void *array, fig_dtype dtype, int64_t index);
/* What separates neighbours of that dtype near x: its unit in the last place. */
double truth_ulp(fig_dtype dtype, double x);

/* out: [width]; the rows of `in` hold 2 * width. */
void truth_silu_and_mul(const truth_rows *in, int64_t row, int32_t width, double *out);

typedef struct truth_rope_args {
    truth_rows x;
    fig_rope_spec rope; /* defaults filled in */
    int64_t row, position;
    int32_t head, head_dim;
} truth_rope_args;
void truth_rope(const truth_rope_args *args, double *out); /* [head_dim] */

/* Elements from the cache's start to head 0 of a token; -1 where its page is outside the cache. */
int64_t truth_cache_offset(const truth_cache *cache, int32_t sequence, int32_t token);

/* One query head over tokens [0, length) of a sequence. */
typedef struct truth_attention_args {
    truth_rows q;
    truth_cache k, v;
    int64_t row;
    int32_t sequence, length;
    int32_t q_head, kv_head, head_dim;
    double sm_scale;
} truth_attention_args;

/* With p the softmax's weights: out is the sum of p * v, magnitude that of p * |v|, by which an
 * error is judged, since where v's signs cancel out is small and its error is not. lse is base 2.
 *  */
typedef struct truth_attention_result {
    double out[TRUTH_HEAD_DIM_LIMIT], magnitude[TRUTH_HEAD_DIM_LIMIT]; /* [head_dim] */
    double lse;
} truth_attention_result;
void truth_attention(const truth_attention_args *args, truth_attention_result *result);

#endif
