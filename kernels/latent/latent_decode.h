/* latent_decode.h: deals the q heads and the latent of a query token to blocks, for the reference
 * kernel and the kernel of latent_decode.
 *
 * Invariant: the last block of a token has the token's latent and no q head. */
#ifndef FIG_KERNELS_LATENT_DECODE_H
#define FIG_KERNELS_LATENT_DECODE_H

#include "planner/size.h"

enum { FIG_LATENT_DECODE_THREADS = 128, FIG_LATENT_DECODE_HEADS = 16 };

typedef struct fig_latent_decode_part {
    int32_t token, first, end; /* q heads [first, end); if there are none: the token's latent */
} fig_latent_decode_part;

/* Returns the number of blocks of a token. */
FIG_BOTH int32_t fig_latent_decode_blocks(int32_t q_heads) {
    return fig_size_ceil_div(q_heads, FIG_LATENT_DECODE_HEADS) + 1;
}

FIG_BOTH fig_latent_decode_part fig_latent_decode_part_of(int32_t q_heads, uint32_t block) {
    const int32_t blocks = fig_latent_decode_blocks(q_heads);
    const int32_t number = (int32_t)block % blocks;
    fig_latent_decode_part part;
    part.token = (int32_t)block / blocks;
    part.first = fig_size_min(number * FIG_LATENT_DECODE_HEADS, q_heads);
    part.end = fig_size_min(part.first + FIG_LATENT_DECODE_HEADS, q_heads);
    if (number == blocks - 1) part.first = part.end = q_heads;
    return part;
}

#endif
