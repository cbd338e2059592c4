/* decode_attention.h: splits decode_attention's first launch into its two operations, rope and
 * append_kv, for the reference kernel and the kernel.
 *
 * Invariant: the params made here set every field that the shared code of rope and append_kv
 * reads. */
#ifndef FIG_KERNELS_DECODE_ATTENTION_H
#define FIG_KERNELS_DECODE_ATTENTION_H

#include "kernels/common/heads.h"
#include "kernels/common/params.h"

enum { FIG_DECODE_STILL_THREADS = 256, FIG_DECODE_STILL_CAPABILITY = 90 };
enum { FIG_DECODE_LONG_ABREAST = 2, FIG_DECODE_LONG_GROUPS = 512 };

FIG_BOTH int32_t fig_decode_attention_is_still(const fig_decode_attention_params *p) {
    return p->cos_sin == NULL && fig_params_is_still(&p->angles);
}

/* In a node that rotates nothing, rotary_dim becomes 0. */
FIG_BOTH fig_rope_params fig_decode_attention_rope(const fig_decode_attention_params *p) {
    fig_rope_params rope = {0};
    rope.q = p->q;
    rope.k = p->k;
    rope.q_out = p->q;
    rope.k_out = p->k;
    rope.positions = p->positions;
    rope.cos_sin = p->cos_sin;
    rope.q_norm = p->q_norm;
    rope.k_norm = p->k_norm;
    rope.plan = p->plan;
    rope.q_strides = rope.q_out_strides = p->q_strides;
    rope.k_strides = rope.k_out_strides = p->k_strides;
    rope.cos_sin_stride = p->cos_sin_stride;
    rope.rope = p->rope;
    if (fig_decode_attention_is_still(p)) rope.rope.rotary_dim = 0;
    rope.norm_epsilon = p->norm_epsilon;
    rope.positions_offset = p->positions_offset;
    rope.rows = p->rows;
    rope.cos_sin_rows = p->cos_sin_rows;
    rope.q_heads = p->q_heads;
    rope.k_heads = p->kv_heads;
    rope.head_dim = p->head_dim;
    rope.dtype = p->dtype;
    rope.positions_dtype = p->positions_dtype;
    rope.angles = p->angles;
    return rope;
}

FIG_BOTH fig_append_kv_params fig_decode_attention_append(const fig_decode_attention_params *p) {
    fig_append_kv_params append = {0};
    append.k = p->k;
    append.v = p->v;
    append.k_cache = p->k_cache;
    append.v_cache = p->v_cache;
    append.page_table = p->page_table;
    append.k_scale = p->k_scale;
    append.v_scale = p->v_scale;
    append.plan = p->plan;
    append.k_strides = p->k_strides;
    append.v_strides = p->v_strides;
    append.k_cache_strides = p->k_cache_strides;
    append.v_cache_strides = p->v_cache_strides;
    append.table_stride = p->table_stride;
    append.k_pages = p->k_pages;
    append.v_pages = p->v_pages;
    append.lengths_offset = p->lengths_offset;
    append.sequences_offset = p->sequences_offset;
    append.rows = p->rows;
    append.page_size = p->page_size;
    append.kv_heads = p->kv_heads;
    append.head_dim = p->head_dim;
    append.k_scales = p->k_scales;
    append.v_scales = p->v_scales;
    append.dtype = p->dtype;
    append.kv_dtype = p->kv_dtype;
    append.tokens_offset = p->tokens_offset;
    return append;
}

/* Returns the number of heads of q, k and v together. They are numbered in this order. */
FIG_BOTH int32_t fig_decode_attention_heads(const fig_decode_attention_params *p) {
    return p->q_heads + 2 * p->kv_heads;
}

/* Returns the number of groups of tokens that have blocks of their own in the kernel for buckets of
 * many tokens: about as many as fill a GPU. */
FIG_BOTH int32_t fig_decode_attention_groups(const fig_rows *rows) {
    return fig_size_min(fig_size_ceil_div(rows->row_limit, FIG_DECODE_LONG_ABREAST),
                        FIG_DECODE_LONG_GROUPS);
}

#endif
