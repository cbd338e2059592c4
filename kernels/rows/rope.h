/* rope.h: applies RoPE to one head on the host, for every reference kernel that needs it.
 *
 * Invariant: a head is read whole before it is written, so out may be the same tensor as in. */
#ifndef FIG_KERNELS_ROPE_H
#define FIG_KERNELS_ROPE_H

#include "kernels/common/heads.h"
#include "kernels/common/params.h"

/* The cosine and sine of every pair of a head, for one token. */
typedef struct fig_rope_turns {
    float cosine[FIG_HEADS_DIM_LIMIT / 2], sine[FIG_HEADS_DIM_LIMIT / 2];
} fig_rope_turns;

/* Returns 0 if the token has no position. */
int fig_rope_find_turns(const fig_rope_params *p, int32_t token, fig_rope_turns *turns);
/* Reads a head at element `in` of one array and writes it at element `out` of another or the same
 * array. norm: NULL for none. Values that are neither rotated nor normalised keep their bits. */
void fig_rope_turn_head(const fig_rope_params *p, const fig_rope_turns *turns, const void *norm,
                        const void *from, int64_t in, void *to, int64_t out);

#endif
