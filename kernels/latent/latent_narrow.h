/* latent_narrow.h: defines the shared memory of the warpgroup kernel over a latent cache whose
 * groups have few vectors.
 *
 * Tokens lie in chunks of 64 tokens x 64 values, as in latent_wide.h, but in a ring of single
 * chunks:
 *
 *     [chunks of the ring][64 tokens][128 bytes]
 *     [9 chunks of q][vectors][128 bytes]
 *     [vectors][128 bytes]    weights of a tile's tokens
 *     [2 warpgroups][vectors of half a group][64 tokens] f32    halves of logits
 *     [state]
 *     [3 stages][32 tokens][656 bytes]    halves of tiles of codes, in the kernel for such caches
 *     [vectors of the block][blocks][1088 bytes]    results, in the kernel for clusters
 *
 * nvcc and gcc both read this file. Invariant: the file holds only constants and arithmetic. */
#ifndef FIG_KERNELS_LATENT_NARROW_H
#define FIG_KERNELS_LATENT_NARROW_H

#include "kernels/attention/geometry.h"
#include "kernels/latent/latent_wide.h"

enum {
    FIG_LATENT_NARROW_VECTORS = 32, /* most vectors of a group */
    FIG_LATENT_NARROW_FEW = 16,     /* vectors up to which the smaller instance serves */
    FIG_LATENT_NARROW_WARPS = 10,   /* eight multiply, one loads, one writes idle rows */
    /* of the kernel for codes: eight multiply, nine convert, one loads, one writes idle rows */
    FIG_LATENT_NARROW_CODES_WARPS = 20,
    FIG_LATENT_NARROW_CONVERTERS = 9,
    FIG_LATENT_NARROW_STATE_BYTES = 2560,
    FIG_LATENT_NARROW_CODES_STAGES = 3,
    FIG_LATENT_NARROW_CODES_TOKENS = 32, /* of a stage */
    FIG_LATENT_NARROW_CODES_BYTES =
        FIG_LATENT_NARROW_CODES_STAGES * FIG_LATENT_NARROW_CODES_TOKENS * FIG_LATENT_CODES_BYTES,
    FIG_LATENT_NARROW_BYTES = 227 * 1024,
    /* a block's result of a vector: f16 values, and the sums of weights of eight warps */
    FIG_LATENT_NARROW_SUMS_AT = FIG_LATENT_DIM * 2,
    FIG_LATENT_NARROW_RESULT_BYTES = FIG_LATENT_NARROW_SUMS_AT + 8 * 8
};

/* Returns the bytes that a block of groups of `vectors` vectors takes beside its ring. */
#define FIG_LATENT_NARROW_REST_BYTES(vectors)                                                      \
    ((vectors) * (FIG_LATENT_KEY_DIM * 2 + FIG_LATENT_WIDE_TILE * 2 + FIG_LATENT_WIDE_TILE * 4) +  \
     FIG_LATENT_NARROW_STATE_BYTES)

/* Returns the number of chunks of the ring, if `other` bytes are needed for other things. */
#define FIG_LATENT_NARROW_CHUNKS(vectors, other)                                                   \
    ((FIG_LATENT_NARROW_BYTES - FIG_LATENT_NARROW_REST_BYTES(vectors) - (other)) /                 \
     FIG_LATENT_WIDE_CHUNK_BYTES)

/* Short rows: each group of a row has a cluster of blocks. */
enum {
    FIG_LATENT_SHORT_BLOCKS = 16, /* of the largest cluster */
    FIG_LATENT_SHORT_TILES = 4,   /* most tiles of a block */
    /* clusters of the largest size that surely run at once; see fig_geometry_short_holds() */
    FIG_LATENT_SHORT_LARGEST = 4
};

/* Returns 1 if there are kernels for clusters of that many blocks. */
FIG_BOTH int32_t fig_latent_short_has(int32_t blocks) {
    return blocks == 2 || blocks == 4 || blocks == 8 || blocks == FIG_LATENT_SHORT_BLOCKS;
}

/* Returns 1 if that many clusters run at once on a machine of `sm_count` SMs. A block fills an SM,
 * and a cluster lies in one GPC, so larger clusters leave more gaps: on 132 SMs in GPCs of 14 to 18,
 * at least 13 clusters of 8 run, 29 of 4 and 66 of 2. */
FIG_BOTH int32_t fig_latent_short_fits(int64_t segments, int32_t blocks, int32_t sm_count) {
    if (blocks == FIG_LATENT_SHORT_BLOCKS)
        return segments <= FIG_LATENT_SHORT_LARGEST && fig_geometry_short_holds(blocks, sm_count);
    if (blocks == 8) return segments * blocks <= sm_count * 3 / 4;
    return segments * blocks <= (blocks == 4 ? sm_count * 7 / 8 : sm_count);
}

/* Returns the number of blocks of the cluster of each segment, or 0 if segments of that many tiles
 * are not short: the largest cluster that fits and of which more than half of the blocks have
 * tiles. */
FIG_BOTH int32_t fig_latent_short_blocks(int64_t segments, int32_t tiles, int32_t sm_count) {
    int32_t blocks = FIG_LATENT_SHORT_BLOCKS;
    while (blocks > 1 &&
           (blocks / 2 >= tiles || !fig_latent_short_fits(segments, blocks, sm_count)))
        blocks /= 2;
    return blocks > 1 && tiles <= blocks * FIG_LATENT_SHORT_TILES ? blocks : 0;
}

#endif
