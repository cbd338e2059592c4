/* heads.h: which heads of which token one block does, for twins and kernels alike.
 *
 * The heads of a token, q's, then k's and v's, are dealt to as many blocks as it takes for each
 * thread to have one piece of one head, so that a single token keeps several processors busy.
 * Blocks are numbered token by token, or group by group where a block does several tokens: those
 * that a step does not have are the last ones. Invariant: all of it follows from heads, head_dim,
 * dtype and the bucket's rows, which are there before anything is bound. */
#ifndef FIG_KERNELS_HEADS_H
#define FIG_KERNELS_HEADS_H

#include "kernels/numeric.h"

enum { FIG_HEADS_THREADS = 128, FIG_HEADS_WARP = 32, FIG_HEADS_DIM_LIMIT = 256 };
enum { FIG_HEADS_ABREAST = 4, FIG_HEADS_MANY = 512 };

typedef struct fig_heads_part {
    int32_t group, first, end; /* heads [first, end) of a token, or of a group of them */
} fig_heads_part;

/* Tokens that a block of rope does side by side. A launch of few is as short as the way of one
 * through a block; one of many is as short as its blocks are few, since each waits for the plan and
 * has nothing under way meanwhile but its own tokens. */
FIG_BOTH int32_t fig_heads_abreast(int32_t row_limit) {
    return row_limit < FIG_HEADS_MANY ? 1 : FIG_HEADS_ABREAST;
}

/* A power of two, so that butterflies of shuffles stay among them: threads that share a head where
 * each has two vectors of 16 bytes, or a whole warp. */
FIG_BOTH int32_t fig_heads_sharers(int32_t head_dim, int32_t dtype) {
    const int32_t pieces = head_dim * fig_numeric_bytes(dtype) / 32;
    int32_t sharers = 1;
    while (sharers < pieces && sharers < FIG_HEADS_WARP)
        sharers *= 2;
    return sharers;
}

/* Blocks of a token, or of a group. */
FIG_BOTH int32_t fig_heads_blocks(int32_t heads, int32_t head_dim, int32_t dtype) {
    return fig_size_ceil_div(heads * fig_heads_sharers(head_dim, dtype), FIG_HEADS_THREADS);
}

FIG_BOTH fig_heads_part fig_heads_part_of(int32_t heads, int32_t head_dim, int32_t dtype,
                                          uint32_t block) {
    const uint32_t blocks = (uint32_t)fig_heads_blocks(heads, head_dim, dtype);
    const int32_t each = FIG_HEADS_THREADS / fig_heads_sharers(head_dim, dtype);
    fig_heads_part part;
    part.group = (int32_t)(block / blocks);
    part.first = (int32_t)(block % blocks) * each;
    part.end = fig_size_min(part.first + each, heads);
    return part;
}

#endif
