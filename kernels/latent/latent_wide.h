/* latent_wide.h: defines the tiles of the warpgroup kernel over a latent cache, and its shared
 * memory.
 *
 * A tile is 64 tokens of 576 values. It lies in shared memory in chunks of 64 tokens x 64 values,
 * 128 bytes for each token, with the swizzle of the copy engine:
 *
 *     [stages of a ring][9 chunks of a tile][64 tokens][128 bytes]
 *     [9 chunks of q][64 vectors][128 bytes]
 *     [state]
 *
 * Such a chunk can be an operand of q k^T, which sums over values, and of the product of weights
 * and V, which sums over tokens. nvcc and gcc both read this file. Invariant: the file holds only
 * constants and arithmetic. */
#ifndef FIG_KERNELS_LATENT_WIDE_H
#define FIG_KERNELS_LATENT_WIDE_H

#include "kernels/attention/merges.h"
#include "kernels/latent/latent.h"

enum {
    FIG_LATENT_WIDE_GROUPS = 2, /* warpgroups that multiply; a third one loads */
    FIG_LATENT_WIDE_WARPS = 12,
    FIG_LATENT_WIDE_TILE = FIG_LATENT_TILE_TOKENS,
    FIG_LATENT_WIDE_VECTORS = FIG_LATENT_VECTORS,
    FIG_LATENT_PAIR_VECTORS = 2 * FIG_LATENT_VECTORS, /* of two blocks */
    FIG_LATENT_WIDE_COLUMN = 64,                      /* values of a chunk */
    FIG_LATENT_WIDE_CHUNKS = FIG_LATENT_KEY_DIM / FIG_LATENT_WIDE_COLUMN,
    FIG_LATENT_WIDE_CHUNK_BYTES = FIG_LATENT_WIDE_TILE * FIG_LATENT_WIDE_COLUMN * 2,
    FIG_LATENT_WIDE_SIDE_BYTES = FIG_LATENT_WIDE_CHUNKS * FIG_LATENT_WIDE_CHUNK_BYTES,
    FIG_LATENT_WIDE_STAGES = 2, /* q leaves room for no more */
    FIG_LATENT_WIDE_STATE_BYTES = 8192,
    FIG_LATENT_WIDE_BYTES =
        (FIG_LATENT_WIDE_STAGES + 1) * FIG_LATENT_WIDE_SIDE_BYTES + FIG_LATENT_WIDE_STATE_BYTES,
    FIG_LATENT_WIDE_BOX_LEAST = 16, /* the fewest tokens of a box */
    /* The largest number of blocks that share a merge. Workers are in order, so at most one block
     * less than this number waits: as many as merges.h allows for spread workers. Where two blocks
     * are a worker, half as many workers share a merge. */
    FIG_LATENT_WIDE_PARTS = FIG_MERGES_WAITING_SPREAD + 1
};
static_assert(FIG_LATENT_WIDE_TILE == FIG_LATENT_WIDE_VECTORS, "q and weights lie in such chunks");
static_assert(FIG_LATENT_WIDE_BYTES <= 227 * 1024, "a block's shared memory");

/* Returns the tokens of one box of the copy engine: the largest power of two that divides the page
 * size, but at most a tile. */
FIG_BOTH int32_t fig_latent_wide_box(int32_t page_size) {
    return fig_size_min(page_size & -page_size, FIG_LATENT_WIDE_TILE);
}

#endif
