/* geometry.h: computes the tile geometry of attention on tensor cores, for its kernels and for the
 * host code that launches them.
 *
 * An instance of a kernel is compiled for a cache type, a head_dim and a number of `shares`. Shares
 * are the warps that share the tokens of one head. (The copy family reads `shares` at run time.) A
 * warp has 8 vectors of one kv head, and it processes its share of each strip's tokens. The number
 * of warps of a worker is:
 *
 *     warps = shares * kv heads of a worker * groups of 8 vectors
 *
 * attention_strip.cuh holds the code of these warps. Invariant: this file holds only constants and
 * arithmetic, and gcc and nvcc compute the same values. */
#ifndef FIG_KERNELS_GEOMETRY_H
#define FIG_KERNELS_GEOMETRY_H

#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "planner/spec/head_dims.h"
#include "planner/split/bounds.h"

#ifdef __CUDACC__
#define FIG_FORM static __host__ __device__ constexpr
#else
#define FIG_FORM static inline
#endif

#ifdef __CUDACC__
/* Returns a / b, rounded down, for a below 2^21. This avoids the fifty or so instructions of an
 * exact integer division. */
static __device__ __forceinline__ int32_t fig_geometry_divide(int32_t a, int32_t b) {
    return __float2int_rd(__fdividef((float)a + 0.5f, (float)b));
}
#endif

enum {
    FIG_GEOMETRY_VECTORS = 8, /* vectors of a warp */
    FIG_GEOMETRY_WARP_LIMIT = 8,
    FIG_GEOMETRY_SHARE_LIMIT = 4,
    FIG_GEOMETRY_COPY_FILLERS = 4, /* warps that fill the ring by copies of 16 bytes */
    /* warps of a bulk feed: one announces the loads, one sends the boxes */
    FIG_GEOMETRY_BULK_FILLERS = 2,
    FIG_GEOMETRY_TOKENS = 16,      /* tokens of a block of the cache */
    FIG_GEOMETRY_SHORT_WARPS = 4,  /* warps of a block of attention_short.cuh */
    FIG_GEOMETRY_SHORT_LIMIT = 8,  /* warps of such a block if tiles are longer */
    FIG_GEOMETRY_SHORT_BLOCKS = 8, /* largest cluster that every machine grants, in blocks */
    /* largest cluster of attention_short.cuh; its blocks have 8 warps */
    FIG_GEOMETRY_SHORT_BLOCK_LIMIT = 16,
    FIG_GEOMETRY_SHORT_SMS = 128,   /* SMs of a machine that surely runs 4 such clusters at once */
    FIG_GEOMETRY_SHORT_ABREAST = 2, /* turns that such a block processes at once */
    FIG_GEOMETRY_RING_BYTES = 196608,
    FIG_GEOMETRY_SLOT_LIMIT = 32,
    FIG_GEOMETRY_STATE_BYTES = 2112, /* bytes of the ring's barriers and notes */
    /* compute capability that has tensor cores and asynchronous copies */
    FIG_GEOMETRY_CAPABILITY = 80,
    FIG_GEOMETRY_CAPABILITY_OF_BULK = 90
};

/* Returns the bytes of one head's part of a token. */
FIG_FORM int32_t fig_geometry_token_bytes(int32_t value_bytes, int32_t head_dim) {
    return value_bytes * head_dim;
}

/* Returns the bytes of a token in one column of the bulk copy engine's boxes. Columns are as wide
 * as the engine's widest swizzle, or half as wide if a token of 16-bit values needs that. */
FIG_FORM int32_t fig_geometry_column(int32_t value_bytes, int32_t head_dim) {
    return value_bytes == 2 && value_bytes * head_dim % 128 == 64 ? 64 : 128;
}

/* Returns the bytes of 16 tokens of one head, in whole columns. */
FIG_FORM int32_t fig_geometry_block_bytes(int32_t value_bytes, int32_t head_dim) {
    const int32_t column = fig_geometry_column(value_bytes, head_dim);
    return (value_bytes * head_dim + column - 1) / column * column * FIG_GEOMETRY_TOKENS;
}

/* Returns the number of 16-token blocks that a warp processes at once. They have enough bytes to
 * outweigh the fixed cost of a strip. */
FIG_FORM int32_t fig_geometry_steps(int32_t value_bytes, int32_t head_dim) {
    return value_bytes * head_dim <= 192 ? 2 : 1;
}

/* Returns the number of kv heads, of `vectors` vectors each, for which a worker has warps. Returns
 * 0 if even one head has too many vectors. */
FIG_FORM int32_t fig_geometry_heads(int32_t vectors) {
    return FIG_GEOMETRY_WARP_LIMIT / ((vectors + FIG_GEOMETRY_VECTORS - 1) / FIG_GEOMETRY_VECTORS);
}

/* Returns the number of sets of warps. Each set has 8 vectors of one kv head. */
FIG_FORM int32_t fig_geometry_sets(int32_t heads, int32_t vectors) {
    return heads * ((vectors + FIG_GEOMETRY_VECTORS - 1) / FIG_GEOMETRY_VECTORS);
}

/* Returns the number of warps of a set. A single set has 4 warps and not 8, because 4 warps finish
 * the end of a piece sooner. */
FIG_FORM int32_t fig_geometry_shares(int32_t sets) {
    return sets <= 2 ? 4 : sets <= 4 ? 2 : 1;
}

/* Returns 1 if the family `packed` has an instance for rows of single query tokens over 16-bit
 * values. It can leave results of tails (plan.h). */
FIG_FORM int32_t fig_geometry_serves_tails(int32_t value_bytes, int32_t head_dim, int32_t sets) {
    return value_bytes == 2 && (head_dim == 64 || head_dim == 128) &&
           sets <= FIG_GEOMETRY_WARP_LIMIT && fig_geometry_shares(sets) != 2;
}

/* Returns the number of tokens of a strip, the unit that a thread block reads at once. */
FIG_FORM int32_t fig_geometry_strip(int32_t value_bytes, int32_t head_dim, int32_t sets) {
    return FIG_GEOMETRY_TOKENS * fig_geometry_steps(value_bytes, head_dim) *
           fig_geometry_shares(sets);
}

/* Returns the number of floats that a vector takes in the partials. */
FIG_FORM int32_t fig_geometry_partial_dims(int32_t head_dim) {
    return (head_dim + FIG_BOUNDS_PARTIAL_DIMS - 1) / FIG_BOUNDS_PARTIAL_DIMS *
           FIG_BOUNDS_PARTIAL_DIMS;
}

/* Returns the bytes that a warp leaves for the join: its vectors and their sums. */
FIG_FORM int32_t fig_geometry_join_bytes(int32_t head_dim, int32_t vectors) {
    return vectors * fig_geometry_partial_dims(head_dim) * 4 + FIG_GEOMETRY_VECTORS * 8;
}

/* Returns the bytes that the warps of a kv head keep for a row if they apply RoPE: the vectors of
 * q, k and v of the newest tokens, and their angles. */
FIG_FORM int32_t fig_geometry_turn_bytes(int32_t head_dim, int32_t vectors, int32_t row_tokens) {
    return head_dim * (2 * (vectors + 2 * row_tokens) + 4 * row_tokens);
}

/* Returns the bytes that each warp of a kv head has beside the ring. They first hold the RoPE data
 * of a row and later the sums. row_tokens: 0 if the launch applies no RoPE. */
FIG_FORM int32_t fig_geometry_share_bytes(int32_t head_dim, int32_t vectors, int32_t row_tokens,
                                          int32_t shares) {
    const int32_t sums = fig_geometry_join_bytes(head_dim, vectors);
    const int32_t turns = fig_geometry_turn_bytes(head_dim, vectors, row_tokens) / shares;
    return row_tokens > 0 && turns > sums ? (turns + 15) / 16 * 16 : sums;
}

/* Returns the bytes of 16 tokens of all heads that a worker reads. The copy family lays them out
 * token by token, with a token's heads side by side. The distance of two tokens is an odd number of
 * 16-byte units, so 8 consecutive tokens never share a bank. */
FIG_FORM int32_t fig_geometry_tokens_bytes(int32_t value_bytes, int32_t head_dim, int32_t heads,
                                           int32_t is_bulk) {
    return is_bulk ? heads * fig_geometry_block_bytes(value_bytes, head_dim)
                   : FIG_GEOMETRY_TOKENS * 16 *
                         (heads * fig_geometry_token_bytes(value_bytes, head_dim) / 16 | 1);
}

/* Describes rows by properties that do not depend on their split. */
typedef struct fig_geometry_rows {
    int32_t dtype, kv_dtype, head_dim;
    int32_t row_tokens, ratio; /* their product is the number of vectors of a kv head */
    int32_t page_size;         /* 0: the cache has no pages */
} fig_geometry_rows;

/* Returns NULL if attention_short.cuh can serve such rows when they are short; otherwise returns
 * the requirement that the rows do not meet. */
FIG_FORM const char *fig_geometry_short_refuses(const fig_geometry_rows *rows) {
    if ((rows->dtype != FIG_F16 && rows->dtype != FIG_BF16) ||
        (rows->kv_dtype != rows->dtype && fig_numeric_bytes(rows->kv_dtype) != 1))
        return "f16 or bf16, over a cache of the same or of 8 bits";
    if (!fig_head_dims_has_short(rows->head_dim)) return "head_dim " FIG_HEAD_DIMS_SHORT_TEXT;
    if (rows->kv_dtype != rows->dtype && !fig_head_dims_has_short_codes(rows->head_dim))
        return "head_dim " FIG_HEAD_DIMS_SHORT_CODES_TEXT " over a cache of 8 bits";
    if (rows->row_tokens != 1) return "one token a row";
    if (rows->ratio > FIG_GEOMETRY_VECTORS) return "at most 8 vectors of a kv head";
    if (rows->page_size == 0 || rows->page_size % FIG_GEOMETRY_TOKENS != 0)
        return "pages of a multiple of 16 tokens";
    return NULL;
}

/* Returns the number of warps of a block of a cluster. Each warp reads 16 tokens at a time. A block
 * has 8 warps if a tile has enough tokens for them and shared memory holds two such turns.
 * Otherwise it has 4. */
FIG_FORM int32_t fig_geometry_short_warps(int32_t head_dim, int32_t tile_tokens) {
    return head_dim == 128 && tile_tokens == FIG_GEOMETRY_SHORT_LIMIT * FIG_GEOMETRY_TOKENS
               ? FIG_GEOMETRY_SHORT_LIMIT
               : FIG_GEOMETRY_SHORT_WARPS;
}

/* Returns the number of turns of a block that shared memory holds. */
FIG_FORM int32_t fig_geometry_short_stages(int32_t value_bytes) {
    return value_bytes == 1 ? 4 : 2;
}

/* Returns 1 if a machine of compute capability 9.0 with `sm_count` SMs runs clusters of `blocks`
 * blocks, each of which fills an SM. A cluster lies in one GPC. A machine has at most 8 GPCs, each
 * with at most 9 pairs of SMs. So a machine with 128 SMs has at least 4 GPCs of 16 SMs or more. */
FIG_FORM int32_t fig_geometry_short_holds(int32_t blocks, int32_t sm_count) {
    return blocks <= FIG_GEOMETRY_SHORT_BLOCKS || sm_count >= FIG_GEOMETRY_SHORT_SMS;
}

/* Returns the number of blocks of the cluster that each segment gets, or 0 if such segments are not
 * short. `tokens` is the length of the longest segment, `warps` the warps of a block, and `places`
 * the number of such blocks that the machine runs at once.
 *
 * The total number of blocks is always below `places`, because exactly `places` workers mark a
 * split of long rows. If two such blocks do not fit on one SM, the total is below half of
 * `places`, because clusters leave gaps. A cluster of two blocks uses all turns that fit if the
 * cache has 8-bit codes, and one turn if it has 16-bit values. A segment that is too long for 8
 * blocks of 8 warps gets 16, if few segments would leave most of the machine idle. These 16 blocks
 * may process two rounds of turns. The alternative, a split for long rows, would leave many
 * partials of each segment in global memory, and merging them takes longer. */
FIG_FORM int32_t fig_geometry_short_blocks(int64_t segments, int64_t tokens, int32_t warps,
                                           int32_t value_bytes, int32_t places) {
    const int32_t turn = warps * FIG_GEOMETRY_TOKENS;
    const int32_t room = warps > FIG_GEOMETRY_SHORT_WARPS ? places / 2 : places;
    int32_t blocks = FIG_GEOMETRY_SHORT_BLOCKS;
    if (warps > FIG_GEOMETRY_SHORT_WARPS && tokens > blocks * turn * FIG_GEOMETRY_SHORT_ABREAST) {
        blocks = FIG_GEOMETRY_SHORT_BLOCK_LIMIT;
        const int32_t fits =
            segments * blocks < room && tokens <= 2 * blocks * turn * FIG_GEOMETRY_SHORT_ABREAST;
        return fits && fig_geometry_short_holds(blocks, places) ? blocks : 0;
    }
    while (blocks > 1 && (segments * blocks >= room || blocks / 2 * turn >= tokens))
        blocks /= 2;
    if (blocks == 1 || segments * blocks >= room) return 0;
    int32_t turns = FIG_GEOMETRY_SHORT_ABREAST;
    if (blocks == 2) turns = value_bytes == 1 ? fig_geometry_short_stages(value_bytes) : 1;
    return tokens <= blocks * turn * turns ? blocks : 0;
}

/* Returns the bytes of the K or the V of a strip. */
FIG_FORM int32_t fig_geometry_side_bytes(int32_t value_bytes, int32_t head_dim, int32_t shares,
                                         int32_t heads, int32_t is_bulk) {
    return shares * fig_geometry_steps(value_bytes, head_dim) *
           fig_geometry_tokens_bytes(value_bytes, head_dim, heads, is_bulk);
}

#endif
