/* attention_turn.h: applies RoPE and append within attention on the host, for a launch of attention
 * that does all of decode_attention.
 *
 * Invariant: q and k are read and not changed. */
#ifndef FIG_KERNELS_ATTENTION_TURN_H
#define FIG_KERNELS_ATTENTION_TURN_H

#include "kernels/common/params.h"

/* Returns 1 if the family that serves the launch applies RoPE and appends. */
static inline int fig_attention_turn_is_on(const fig_attention_params *p) {
    return p->turn.is_on != 0;
}
/* Writes a vector of q after RoPE, rounded to q's dtype, to vector[head_dim]. token: index of a
 * query token; each row has row_tokens of them. */
void fig_attention_turn_q(const fig_attention_params *p, int32_t token, int32_t head,
                          float *vector);
/* Appends one kv head of those newest tokens of the row that lie in [first, end). */
void fig_attention_turn_append(const fig_attention_params *p, int32_t row, int32_t kv_head,
                               int32_t first, int32_t end);

#endif
