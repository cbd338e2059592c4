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

#endif
