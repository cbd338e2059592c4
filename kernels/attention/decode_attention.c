/* decode_attention.c: runs the first launch of decode_attention on the host: rope and append_kv
 * together, block by block as a GPU does.
 *
 * It normalises q and k of a query token and applies RoPE to them in place, then stores k and v in
 * the cache. A block processes some heads of a token. Invariant: the result equals that of rope
 * followed by append_kv, bit for bit. */
#include "kernels/attention/decode_attention.h"

#include "kernels/common/angle.h"
#include "kernels/rows/append_kv.h"
#include "kernels/rows/rope.h"
#include "kernels/table/reference_kernels.h"

void fig_decode_attention_shape(const void *params, fig_launch_shape *shape) {
    const fig_decode_attention_params *p = params;
    const int32_t blocks = fig_heads_blocks(fig_decode_attention_heads(p), p->head_dim, p->dtype);
    *shape = (fig_launch_shape){.grid = {(uint32_t)(p->rows.row_limit * blocks), 1, 1},
                                .block = {FIG_HEADS_THREADS, 1, 1}};
}

void fig_decode_attention_reference(const void *params, const uint32_t block[3]) {
    const fig_decode_attention_params *p = params;
    const fig_rope_params rope = fig_decode_attention_rope(p);
    const fig_append_kv_params append = fig_decode_attention_append(p);
    const fig_heads_part part =
        fig_heads_part_of(fig_decode_attention_heads(p), p->head_dim, p->dtype, block[0]);
    const int32_t token = part.group;
    fig_rope_turns turns;
    fig_append_kv_place place;
    if (token >= fig_params_rows(&p->rows, p->plan)) return;
    if (!fig_rope_find_turns(&rope, token, &turns)) return;
    const int stands = fig_append_kv_find(&append, token, &place);
    for (int32_t number = part.first; number < part.end; number++) {
        const int32_t k = number - p->q_heads, v = k - p->kv_heads;
        const int64_t q_at = token * p->q_strides.row + number * p->q_strides.head;
        const int64_t k_at = token * p->k_strides.row + k * p->k_strides.head;
        const int64_t v_at = token * p->v_strides.row + v * p->v_strides.head;
        if (k < 0) {
            fig_rope_turn_head(&rope, &turns, p->q_norm, p->q, q_at, p->q, q_at);
        } else if (v < 0) {
            fig_rope_turn_head(&rope, &turns, p->k_norm, p->k, k_at, p->k, k_at);
            if (stands) fig_append_kv_store(&append, &place, 0, k, p->k, k_at);
        } else if (stands) {
            fig_append_kv_store(&append, &place, 1, v, p->v, v_at);
        }
    }
}
