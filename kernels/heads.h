/* heads.h: which heads of which token one block does, for twins and kernels alike.
 *
 * The heads of a token, q's, then k's and v's, are dealt to as many blocks as it takes for each
 * thread to have one piece of one head, so that a single token keeps several processors busy.
 * Blocks are numbered token by token: tokens that a step does not have are the last ones.
 * Invariant: all of it follows from heads, head_dim and dtype, which are there before anything is
 * bound. */
#ifndef FIG_KERNELS_HEADS_H
#define FIG_KERNELS_HEADS_H

#include "kernels/numeric.h"

enum { FIG_HEADS_THREADS = 128, FIG_HEADS_WARP = 32, FIG_HEADS_DIM_LIMIT = 256 };

typedef struct fig_heads_part {
    int32_t token, first, end; /* heads [first, end) */
} fig_heads_part;

/* A power of two, so that butterflies of shuffles stay among them: threads that share a head where
 * each has two vectors of 16 bytes, or a whole warp. */
FIG_BOTH int32_t fig_heads_sharers(int32_t head_dim, int32_t dtype) {
    const int32_t pieces = head_dim * fig_numeric_bytes(dtype) / 32;
    int32_t sharers = 1;
    while (sharers < pieces && sharers < FIG_HEADS_WARP)
        sharers *= 2;
    return sharers;
}

/* Blocks of a token. */
FIG_BOTH int32_t fig_heads_blocks(int32_t heads, int32_t head_dim, int32_t dtype) {
    return fig_size_ceil_div(heads * fig_heads_sharers(head_dim, dtype), FIG_HEADS_THREADS);
}

FIG_BOTH fig_heads_part fig_heads_part_of(int32_t heads, int32_t head_dim, int32_t dtype,
                                          uint32_t block) {
    const uint32_t blocks = (uint32_t)fig_heads_blocks(heads, head_dim, dtype);
    const int32_t each = FIG_HEADS_THREADS / fig_heads_sharers(head_dim, dtype);
    fig_heads_part part;
    part.token = (int32_t)(block / blocks);
    part.first = (int32_t)(block % blocks) * each;
    part.end = fig_size_min(part.first + each, heads);
    return part;
}

#endif
