/* form.h: how attention on tensor cores lays itself out, for its kernels and for who
 * launches them.
 *
 * A form is what an instance is compiled for: what the cache holds, head_dim and, but for what is
 * copied, `shares`, the warps that share a head's tokens. A warp has 8 vectors of one kv head and,
 * of each strip, the tokens of its share:
 *
 *     warps = shares * kv heads of a worker * groups of 8 vectors
 *
 * Leaves to attention_strip.cuh what they do. Invariant: constants alone, the same for gcc and
 * nvcc. */
#ifndef FIG_KERNELS_FORM_H
#define FIG_KERNELS_FORM_H

#include "kernels/numeric.h"
#include "kernels/params.h"
#include "planner/bounds.h"

#ifdef __CUDACC__
#define FIG_FORM static __host__ __device__ constexpr
#else
#define FIG_FORM static inline
#endif

#ifdef __CUDACC__
/* a / b, rounded down, below 2^21: without the fifty instructions that know more. */
static __device__ __forceinline__ int32_t fig_form_divide(int32_t a, int32_t b) {
    return __float2int_rd(__fdividef((float)a + 0.5f, (float)b));
}
#endif

enum {
    FIG_FORM_VECTORS = 8, /* of a warp */
    FIG_FORM_WARP_LIMIT = 8,
    FIG_FORM_SHARE_LIMIT = 4,
    FIG_FORM_COPY_FILLERS = 4,  /* warps that fill the ring by copies of 16 bytes */
    FIG_FORM_BULK_FILLERS = 2,  /* one that says what comes and one that sends its boxes */
    FIG_FORM_TOKENS = 16,       /* of a block */
    FIG_FORM_SHORT_WARPS = 4,   /* of a block of attention_short.cuh */
    FIG_FORM_SHORT_LIMIT = 8,   /* of a block of longer rows */
    FIG_FORM_SHORT_BLOCKS = 8,  /* of its cluster, at most */
    FIG_FORM_SHORT_ABREAST = 2, /* turns of it that are seen at once */
    FIG_FORM_COLUMN = 128 * 16, /* bytes of 16 tokens' 128 */
    FIG_FORM_RING_BYTES = 196608,
    FIG_FORM_SLOT_LIMIT = 32,
    FIG_FORM_STATE_BYTES = 2112, /* of the ring's barriers and notes */
    FIG_FORM_CAPABILITY = 80,    /* compute capability of tensor cores and asynchronous copies */
    FIG_FORM_CAPABILITY_OF_BULK = 90
};

/* Bytes of a token of one head. */
FIG_FORM int32_t fig_form_token_bytes(int32_t value_bytes, int32_t head_dim) {
    return value_bytes * head_dim;
}

/* Of a block of one head's 16 tokens, in whole columns. */
FIG_FORM int32_t fig_form_block_bytes(int32_t value_bytes, int32_t head_dim) {
    return (value_bytes * head_dim + 127) / 128 * FIG_FORM_COLUMN;
}

/* Blocks that a warp sees at once: enough bytes for what a strip costs beside them. */
FIG_FORM int32_t fig_form_steps(int32_t value_bytes, int32_t head_dim) {
    return value_bytes * head_dim <= 192 ? 2 : 1;
}

/* Heads that a worker has warps for, of so many vectors each; 0: not even for one. */
FIG_FORM int32_t fig_form_heads(int32_t vectors) {
    return FIG_FORM_WARP_LIMIT / ((vectors + FIG_FORM_VECTORS - 1) / FIG_FORM_VECTORS);
}

/* Of warps: each has 8 vectors of one kv head. */
FIG_FORM int32_t fig_form_sets(int32_t heads, int32_t vectors) {
    return heads * ((vectors + FIG_FORM_VECTORS - 1) / FIG_FORM_VECTORS);
}

/* Warps of a set. One set alone has 4, which leaves a shorter end than 8. */
FIG_FORM int32_t fig_form_shares(int32_t sets) {
    return sets <= 2 ? 4 : sets <= 4 ? 2 : 1;
}

/* Tokens of a strip: what a block reads at once. */
FIG_FORM int32_t fig_form_strip(int32_t value_bytes, int32_t head_dim, int32_t sets) {
    return FIG_FORM_TOKENS * fig_form_steps(value_bytes, head_dim) * fig_form_shares(sets);
}

/* Floats that a vector has in partials. */
FIG_FORM int32_t fig_form_partial_dims(int32_t head_dim) {
    return (head_dim + FIG_BOUNDS_PARTIAL_DIMS - 1) / FIG_BOUNDS_PARTIAL_DIMS *
           FIG_BOUNDS_PARTIAL_DIMS;
}

/* What a warp leaves in the join: its vectors, and their sums. */
FIG_FORM int32_t fig_form_join_bytes(int32_t head_dim, int32_t vectors) {
    return vectors * fig_form_partial_dims(head_dim) * 4 + FIG_FORM_VECTORS * 8;
}

/* What the warps that share a kv head keep of a row that they turn: q's vectors, k and v of the
 * newest tokens, and their angles. */
FIG_FORM int32_t fig_form_turn_bytes(int32_t head_dim, int32_t vectors, int32_t row_tokens) {
    return head_dim * (2 * (vectors + 2 * row_tokens) + 4 * row_tokens);
}

/* A warp's part of what the warps that share a kv head have beside the ring: turns and sums lie
 * there one after the other. row_tokens: 0 where nothing is turned. */
FIG_FORM int32_t fig_form_share_bytes(int32_t head_dim, int32_t vectors, int32_t row_tokens,
                                      int32_t shares) {
    const int32_t sums = fig_form_join_bytes(head_dim, vectors);
    const int32_t turns = fig_form_turn_bytes(head_dim, vectors, row_tokens) / shares;
    return row_tokens > 0 && turns > sums ? (turns + 15) / 16 * 16 : sums;
}

/* Of 16 tokens of all heads that a worker reads. What is copied lies token by token, its heads side
 * by side, and tokens an odd number of 16 bytes apart, so that no 8 of them meet in a bank. */
FIG_FORM int32_t fig_form_tokens_bytes(int32_t value_bytes, int32_t head_dim, int32_t heads,
                                       int32_t is_bulk) {
    return is_bulk ? heads * fig_form_block_bytes(value_bytes, head_dim)
                   : FIG_FORM_TOKENS * 16 *
                         (heads * fig_form_token_bytes(value_bytes, head_dim) / 16 | 1);
}

/* What rows are, whatever their split. */
typedef struct fig_form_rows {
    int32_t dtype, kv_dtype, head_dim;
    int32_t row_tokens, ratio; /* vectors of a kv head: their product */
    int32_t page_size;         /* 0: there are no pages */
} fig_form_rows;

/* NULL: attention_short.cuh takes such rows, where they are short; else what it asks for. */
FIG_FORM const char *fig_form_short_refuses(const fig_form_rows *rows) {
    if ((rows->dtype != FIG_F16 && rows->dtype != FIG_BF16) ||
        (rows->kv_dtype != rows->dtype && fig_numeric_bytes(rows->kv_dtype) != 1))
        return "f16 or bf16, over a cache of the same or of 8 bits";
    if (rows->head_dim != 64 && rows->head_dim != 128 && rows->head_dim != 256)
        return "head_dim 64, 128 or 256";
    if (rows->row_tokens != 1) return "one token a row";
    if (rows->ratio > FIG_FORM_VECTORS) return "at most 8 vectors of a kv head";
    if (rows->page_size == 0 || rows->page_size % FIG_FORM_TOKENS != 0)
        return "pages of whole 16 tokens";
    return NULL;
}

/* Warps of a block of a cluster, of 16 tokens each at a time: 4, or 8 where tiles are so long and
 * shared memory holds two such turns. */
FIG_FORM int32_t fig_form_short_warps(int32_t head_dim, int32_t tile_tokens) {
    return head_dim == 128 && tile_tokens == FIG_FORM_SHORT_LIMIT * FIG_FORM_TOKENS
               ? FIG_FORM_SHORT_LIMIT
               : FIG_FORM_SHORT_WARPS;
}

/* Turns of a cluster that shared memory holds. */
FIG_FORM int32_t fig_form_short_stages(int32_t value_bytes) {
    return value_bytes == 1 ? 4 : 2;
}

/* Blocks of a cluster for each segment, of so many tokens at most, where blocks have so many warps
 * and the machine places for so many of them; 0: such segments are not short. All blocks are fewer
 * than the places, as other splits have that many workers, and fewer than half of them where two
 * have no room beside each other, since clusters leave gaps. Two blocks have all turns of codes
 * that are held, and one of 16 bits. */
FIG_FORM int32_t fig_form_short_blocks(int64_t segments, int64_t tokens, int32_t warps,
                                       int32_t value_bytes, int32_t places) {
    const int32_t turn = warps * FIG_FORM_TOKENS;
    const int32_t room = warps > FIG_FORM_SHORT_WARPS ? places / 2 : places;
    int32_t blocks = FIG_FORM_SHORT_BLOCKS;
    while (blocks > 1 && (segments * blocks >= room || blocks / 2 * turn >= tokens))
        blocks /= 2;
    if (blocks == 1 || segments * blocks >= room) return 0;
    int32_t turns = FIG_FORM_SHORT_ABREAST;
    if (blocks == 2) turns = value_bytes == 1 ? fig_form_short_stages(value_bytes) : 1;
    return tokens <= blocks * turn * turns ? blocks : 0;
}

/* Of K or of V of a strip. */
FIG_FORM int32_t fig_form_side_bytes(int32_t value_bytes, int32_t head_dim, int32_t shares,
                                     int32_t heads, int32_t is_bulk) {
    return shares * fig_form_steps(value_bytes, head_dim) *
           fig_form_tokens_bytes(value_bytes, head_dim, heads, is_bulk);
}

#endif
