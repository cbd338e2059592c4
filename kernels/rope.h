/* rope.h: one head turned on the host, for every twin that turns heads.
 *
 * Invariant: a head is read whole before it is written, so out may be in. */
#ifndef FIG_KERNELS_ROPE_H
#define FIG_KERNELS_ROPE_H

#include "kernels/heads.h"
#include "kernels/params.h"

/* The turn of every pair of a head, of one token. */
typedef struct fig_rope_turns {
    float cosine[FIG_HEADS_DIM_LIMIT / 2], sine[FIG_HEADS_DIM_LIMIT / 2];
} fig_rope_turns;

/* 0: the token stands nowhere. */
int fig_rope_find_turns(const fig_rope_params *p, int32_t token, fig_rope_turns *turns);
/* From element `in` of one array to element `out` of another or of the same. norm: NULL: none. What
 * neither turns nor is normalised keeps its bits. */
void fig_rope_turn_head(const fig_rope_params *p, const fig_rope_turns *turns, const void *norm,
                        const void *from, int64_t in, void *to, int64_t out);

#endif
