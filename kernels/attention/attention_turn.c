/* attention_turn.c: applies RoPE and append within attention on the host; see attention_turn.h.
 *
 * It calls the functions of the reference kernels of rope and append_kv, with the params that
 * separate launches of the two would have. */
#include "kernels/attention/attention_turn.h"

#include "kernels/rows/append_kv.h"
#include "kernels/rows/rope.h"

enum { HEAD_BYTES_LIMIT = FIG_HEADS_DIM_LIMIT * sizeof(float) };

static fig_rows rows_of(const fig_attention_params *p) {
    return (fig_rows){p->split.row_limit * p->split.row_tokens, p->split.row_tokens, 0, 0};
}

static fig_rope_params rope_of(const fig_attention_params *p) {
    fig_rope_params rope = {.rope = p->turn.rope,
                            .angles = p->turn.angles,
                            .norm_epsilon = p->turn.norm_epsilon,
                            .plan = p->plan,
                            .positions_offset = p->turn.positions_offset,
                            .rows = rows_of(p),
                            .head_dim = p->head_dim,
                            .dtype = p->dtype};
    if (fig_params_is_still(&p->turn.angles)) rope.rope.rotary_dim = 0;
    return rope;
}

static fig_append_kv_params append_of(const fig_attention_params *p) {
    return (fig_append_kv_params){.k_cache = (void *)(uintptr_t)p->k_cache,
                                  .v_cache = (void *)(uintptr_t)p->v_cache,
                                  .page_table = p->page_table,
                                  .k_scale = p->k_scale,
                                  .v_scale = p->v_scale,
                                  .plan = p->plan,
                                  .k_cache_strides = p->k_cache_strides,
                                  .v_cache_strides = p->v_cache_strides,
                                  .table_stride = p->table_stride,
                                  .k_pages = p->k_pages,
                                  .v_pages = p->v_pages,
                                  .lengths_offset = p->lengths_offset,
                                  .sequences_offset = p->sequences_offset,
                                  .tokens_offset = p->turn.tokens_offset,
                                  .rows = rows_of(p),
                                  .page_size = p->page_size,
                                  .head_dim = p->head_dim,
                                  .k_scales = p->k_scales,
                                  .v_scales = p->v_scales,
                                  .dtype = p->dtype,
                                  .kv_dtype = p->kv_dtype};
}

void fig_attention_turn_q(const fig_attention_params *p, int32_t token, int32_t head,
                          float *vector) {
    const fig_rope_params rope = rope_of(p);
    uint8_t turned[HEAD_BYTES_LIMIT];
    fig_rope_turns turns;
    fig_rope_find_turns(&rope, token, &turns);
    fig_rope_turn_head(&rope, &turns, p->turn.q_norm, p->q,
                       token * p->q_strides.row + head * p->q_strides.head, turned, 0);
    fig_numeric_load_row(vector, p->head_dim, turned, p->dtype, 0);
}

void fig_attention_turn_append(const fig_attention_params *p, int32_t row, int32_t kv_head,
                               int32_t first, int32_t end) {
    const fig_rope_params rope = rope_of(p);
    const fig_append_kv_params append = append_of(p);
    const fig_attention_turn *turn = &p->turn;
    for (int32_t query = 0; query < p->split.row_tokens; query++) {
        const int32_t token = row * p->split.row_tokens + query;
        uint8_t turned[HEAD_BYTES_LIMIT];
        fig_rope_turns turns;
        fig_append_kv_place place;
        if (!fig_append_kv_find(&append, token, &place)) continue;
        if (place.token < first || place.token >= end) continue;
        fig_rope_find_turns(&rope, token, &turns);
        fig_rope_turn_head(&rope, &turns, turn->k_norm, turn->k,
                           token * turn->k_strides.row + kv_head * turn->k_strides.head, turned, 0);
        fig_append_kv_store(&append, &place, 0, kv_head, turned, 0);
        fig_append_kv_store(&append, &place, 1, kv_head, turn->v,
                            token * turn->v_strides.row + kv_head * turn->v_strides.head);
    }
}
