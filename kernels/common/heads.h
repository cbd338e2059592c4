/* heads.h: deals the heads of tokens to blocks, for reference kernels and kernels.
 *
 * The heads of a token are those of q, then k, then v. Enough blocks share them that each thread
 * has one piece of one head. Thus even a single token keeps several SMs busy. Blocks are numbered
 * token by token, or group by group if a block processes several tokens. In a step with few tokens,
 * the blocks that get no token are the last ones. Invariant: all of this follows from heads,
 * head_dim, dtype and the bucket's rows, which are known before anything is bound. */
#ifndef FIG_KERNELS_HEADS_H
#define FIG_KERNELS_HEADS_H

#include "kernels/common/numeric.h"

enum { FIG_HEADS_THREADS = 128, FIG_HEADS_WARP = 32, FIG_HEADS_DIM_LIMIT = 256 };
enum { FIG_HEADS_ABREAST = 4, FIG_HEADS_MANY = 512 };

typedef struct fig_heads_part {
    int32_t group, first, end; /* heads [first, end) of a token or of a group of tokens */
} fig_heads_part;

/* Returns the number of tokens that a block of rope processes side by side. With few tokens, a
 * launch takes as long as one token takes in a block. With many tokens, fewer blocks are faster:
 * each block waits for the plan, and meanwhile has only the loads of its own tokens in flight. */
FIG_BOTH int32_t fig_heads_abreast(int32_t row_limit) {
    return row_limit < FIG_HEADS_MANY ? 1 : FIG_HEADS_ABREAST;
}

/* Returns the number of threads that share a head where data is loaded in vectors: each thread then
 * has at most two vectors of 16 bytes. The number is a power of two, so that butterfly shuffles
 * stay within the head. Code without vectors gives each head to a whole warp, and uses this number
 * only to divide heads among blocks. */
FIG_BOTH int32_t fig_heads_sharers(int32_t head_dim, int32_t dtype) {
    const int32_t pieces = head_dim * fig_numeric_bytes(dtype) / 32;
    int32_t sharers = 1;
    while (sharers < pieces && sharers < FIG_HEADS_WARP)
        sharers *= 2;
    return sharers;
}

/* Returns the number of blocks of a token, or of a group of tokens. */
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
