/* latent.h: lays out a token of a latent cache, and groups the q heads that read it.
 *
 * A token is one vector of 576 values, which all heads share: 512 values of the normalised latent,
 * then 64 values that RoPE has rotated. K is the whole vector, and V is the latent. A cache holds
 * the vector in the dtype of q, or as codes:
 *
 *     bytes     0 .. 511   512 .. 527    528 .. 655
 *     codes     latent     scales        the values under RoPE
 *               e4m3       f32, one for  bf16
 *                          128 values
 *
 * Invariant: gcc and nvcc compute the same; a token of codes has no other bytes. */
#ifndef FIG_KERNELS_LATENT_H
#define FIG_KERNELS_LATENT_H

#include "kernels/common/numeric.h"
#include "kernels/common/params.h"

enum {
    FIG_LATENT_DIM = 512,     /* dims of V and out */
    FIG_LATENT_ROPE_DIM = 64, /* dims under RoPE, behind the latent */
    FIG_LATENT_KEY_DIM = FIG_LATENT_DIM + FIG_LATENT_ROPE_DIM,
    FIG_LATENT_SCALE_DIM = 128, /* values that share a scale */
    FIG_LATENT_SCALES = FIG_LATENT_DIM / FIG_LATENT_SCALE_DIM,
    FIG_LATENT_SCALES_AT =
        FIG_LATENT_DIM, /* where the scales of a token of codes begin, in bytes */
    FIG_LATENT_ROPE_AT = FIG_LATENT_SCALES_AT + 4 * FIG_LATENT_SCALES,
    FIG_LATENT_CODES_BYTES = FIG_LATENT_ROPE_AT + 2 * FIG_LATENT_ROPE_DIM,
    FIG_LATENT_HEAD_UNIT = 8, /* q heads come in multiples of this */
    FIG_LATENT_HEAD_PART = 4, /* of a unit that has too many vectors for a group */
    FIG_LATENT_HEAD_LIMIT = 128,
    FIG_LATENT_VECTORS = 64,     /* most vectors of a group */
    FIG_LATENT_VECTORS_FEW = 16, /* most vectors of the smallest groups, if heads allow so few */
    FIG_LATENT_TILE_TOKENS = 64,
    /* shared memory of a block of latent_attention.cu: 16 vectors and 16 tokens in f32, and
     * weights */
    FIG_LATENT_PLAIN_BYTES = (2 * FIG_LATENT_KEY_DIM + 16 + 3) * 16 * 4 + 16
};
static_assert(FIG_LATENT_CODES_BYTES == 656, "the layout that other libraries have");

/* The largest number of e4m3. */
#define FIG_LATENT_CODE_MAX 448.0f

/* Returns the number of elements of a token. In a cache of codes, an element is a byte. */
FIG_BOTH int32_t fig_latent_width(int32_t kv_dtype) {
    return kv_dtype == FIG_E4M3 ? (int32_t)FIG_LATENT_CODES_BYTES : (int32_t)FIG_LATENT_KEY_DIM;
}

/* Returns the number of q heads of which the heads of a group are a multiple. */
FIG_BOTH int32_t fig_latent_head_unit(int32_t row_tokens) {
    return FIG_LATENT_HEAD_UNIT * row_tokens > FIG_LATENT_VECTORS ? FIG_LATENT_HEAD_PART
                                                                  : FIG_LATENT_HEAD_UNIT;
}

/* Returns the number of q heads of a group: the largest divisor of q_heads that is a multiple of
 * the unit and gives the group at most FIG_LATENT_VECTORS vectors. */
FIG_BOTH int32_t fig_latent_group_heads(int32_t q_heads, int32_t row_tokens) {
    const int32_t unit = fig_latent_head_unit(row_tokens);
    int32_t heads = FIG_LATENT_VECTORS / row_tokens / unit * unit;
    while (heads > unit && q_heads % heads != 0)
        heads -= unit;
    return heads;
}

/* Returns the number of q heads of a group for two blocks: twice that of the function above, or as
 * many where q_heads are no multiple of it. */
FIG_BOTH int32_t fig_latent_pair_heads(int32_t q_heads, int32_t row_tokens) {
    const int32_t heads = fig_latent_group_heads(q_heads, row_tokens);
    return q_heads % (2 * heads) == 0 ? 2 * heads : heads;
}

/* Returns 1 if a worker is two blocks, since its group of q heads has too many vectors for one. */
FIG_BOTH int32_t fig_latent_is_pair(int32_t q_heads, int32_t row_tokens, int32_t groups) {
    return q_heads * row_tokens > FIG_LATENT_VECTORS * groups;
}

/* Returns the number of q heads of the smallest groups into which a group of that function may be
 * divided: its largest divisor that is a multiple of the unit and gives a group at most
 * FIG_LATENT_VECTORS_FEW vectors, or the unit itself. */
FIG_BOTH int32_t fig_latent_least_heads(int32_t q_heads, int32_t row_tokens) {
    const int32_t whole = fig_latent_group_heads(q_heads, row_tokens);
    const int32_t unit = fig_latent_head_unit(row_tokens);
    int32_t heads = whole;
    while (heads > unit && (heads * row_tokens > FIG_LATENT_VECTORS_FEW || whole % heads != 0))
        heads -= unit;
    return heads;
}

/* Returns the scale of values whose greatest magnitude is `most`. The scale is neither 0 nor
 * infinite. */
FIG_BOTH float fig_latent_scale(float most) {
    const float largest = 3.402823466e38f, least = 1.175494351e-38f;
    const float scale = (most < largest ? most : largest) / FIG_LATENT_CODE_MAX;
    return scale > least ? scale : least;
}

/* Returns value i of a token of codes. */
FIG_BOTH float fig_latent_of_codes(const uint8_t *token, int32_t i) {
    const uint8_t *rope = token + FIG_LATENT_ROPE_AT;
    float scale;
    if (i >= FIG_LATENT_DIM) {
        const int32_t at = 2 * (i - FIG_LATENT_DIM);
        return fig_numeric_of_bf16((uint16_t)(rope[at] | rope[at + 1] << 8));
    }
    memcpy(&scale, token + FIG_LATENT_SCALES_AT + i / FIG_LATENT_SCALE_DIM * 4, sizeof scale);
    return fig_numeric_of_e4m3(token[i]) * scale;
}

/* Returns the params of a launch of attention that has the same split and results, for the code
 * that handles the results of pieces. There, a group of q heads counts as a kv head. */
FIG_BOTH fig_attention_params fig_latent_attention_pieces(const fig_latent_attention_params *p) {
    fig_attention_params of = {0};
    of.out = p->out;
    of.lse = p->lse;
    of.sinks = p->sinks;
    of.plan = p->plan;
    of.partials = p->partials;
    of.sums = p->sums;
    of.counters = p->counters;
    of.out_strides = p->out_strides;
    of.lse_stride = p->lse_stride;
    of.split = p->split;
    of.lengths_offset = p->lengths_offset;
    of.sequences_offset = p->sequences_offset;
    of.prefix_offset = p->prefix_offset;
    of.starts_offset = p->starts_offset;
    of.q_heads = p->q_heads;
    of.kv_heads = p->split.groups;
    of.head_dim = FIG_LATENT_DIM;
    of.heads_per_worker = 1;
    of.dtype = p->dtype;
    of.queries_offset = p->queries_offset;
    return of;
}

/* The place of the last 64 values of a q head: elements from `at` on. */
typedef struct fig_latent_q_rope {
    const void *array;
    int64_t at;
} fig_latent_q_rope;

/* Returns the place of these values of a row's head. */
FIG_BOTH fig_latent_q_rope fig_latent_q_rope_of(const fig_latent_attention_params *p, int64_t row,
                                                int32_t head) {
    fig_latent_q_rope rope;
    rope.array = p->q;
    rope.at = row * p->q_strides.row + head * p->q_strides.head + FIG_LATENT_DIM;
    if (p->q_rope == NULL) return rope;
    rope.array = p->q_rope;
    rope.at = row * p->q_rope_strides.row + head * p->q_rope_strides.head;
    return rope;
}

/* Returns the RoPE of the launch's q heads: each is one head of 64 dimensions. */
FIG_BOTH fig_rope_params fig_latent_decode_rope(const fig_latent_decode_params *p) {
    fig_rope_params rope = {0};
    const int32_t is_apart = p->q_rope != NULL;
    rope.q_out =
        is_apart ? p->q_rope : (uint8_t *)p->q + FIG_LATENT_DIM * fig_numeric_bytes(p->dtype);
    rope.q = rope.q_out;
    rope.positions = p->positions;
    rope.cos_sin = p->cos_sin;
    rope.plan = p->plan;
    rope.q_strides = rope.q_out_strides = is_apart ? p->q_rope_strides : p->q_strides;
    rope.cos_sin_stride = p->cos_sin_stride;
    rope.rope = p->rope;
    rope.positions_offset = p->positions_offset;
    rope.rows = p->rows;
    rope.cos_sin_rows = p->cos_sin_rows;
    rope.q_heads = p->q_heads;
    rope.head_dim = FIG_LATENT_ROPE_DIM;
    rope.dtype = p->dtype;
    rope.positions_dtype = p->positions_dtype;
    rope.angles.table = p->angles;
    return rope;
}

/* Returns the params of an append, with those fields set that finding a token's place takes. */
FIG_BOTH fig_append_kv_params fig_latent_decode_append(const fig_latent_decode_params *p) {
    fig_append_kv_params append = {0};
    append.page_table = p->page_table;
    append.plan = p->plan;
    append.table_stride = p->table_stride;
    append.lengths_offset = p->lengths_offset;
    append.sequences_offset = p->sequences_offset;
    append.rows = p->rows;
    append.page_size = p->page_size;
    append.tokens_offset = p->tokens_offset;
    return append;
}

#endif
