/* attention_turn.h: what attention does of RoPE and append on the host, where it is all of
 * decode_attention.
 *
 * Invariant: q and k are read and stay as they are. */
#ifndef FIG_KERNELS_ATTENTION_TURN_H
#define FIG_KERNELS_ATTENTION_TURN_H

#include "kernels/params.h"

/* 1: the launch is of the family that turns and appends. */
static inline int fig_attention_turn_is_on(const fig_attention_params *p) {
    return p->turn.is_on != 0;
}
/* A vector of q, turned and rounded as q is: [head_dim]. token: row_tokens for each row. */
void fig_attention_turn_q(const fig_attention_params *p, int32_t token, int32_t head,
                          float *vector);
/* Appends those of the row's newest tokens that are in [first, end), of one kv head. */
void fig_attention_turn_append(const fig_attention_params *p, int32_t row, int32_t kv_head,
                               int32_t first, int32_t end);

#endif
