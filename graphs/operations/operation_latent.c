/* operation_latent.c: checks the operations on a latent cache: attention, and RoPE, norm, append
 * and attention in one.
 *
 * Invariant: that of operation_attention.c. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>
#include <stddef.h>

#include "kernels/latent/latent.h"
#include "planner/spec/latent_spec.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* Checks that the tensors of q together have the values of a token. */
static fig_status check_values(const fig_operand_node *o, uint32_t q_rope) {
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_LATENT_ATTENTION_Q);
    const int is_apart = fig_operand_id(o, q_rope) != 0;
    const int64_t width = is_apart ? FIG_LATENT_DIM : FIG_LATENT_KEY_DIM;
    if (q->dims[2] != width)
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "q has %" PRId64 " values a head, it must be %" PRId64 "%s",
                                  q->dims[2], width, is_apart ? " beside q_rope" : "");
    const fig_operand_form rope = {
        3, {fig_operand_rows(q), q->dims[1], FIG_LATENT_ROPE_DIM}, q->dims[0]};
    return fig_operand_check_like(o, q_rope, &rope, q->dtype);
}

static fig_status check_heads(const fig_operand_node *o, uint32_t q_rope) {
    FIG_TRY(fig_operand_check_heads(o, FIG_LATENT_ATTENTION_Q));
    FIG_TRY(fig_operand_check_activation(o, FIG_LATENT_ATTENTION_Q));
    FIG_TRY(fig_operand_check_row_tokens(o, FIG_LATENT_ATTENTION_Q));
    if (o->view->spec.row_tokens > FIG_LATENT_SPEC_ROW_TOKENS)
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "the spec's row_tokens is %" PRId32
                                  ", limit %d over a latent cache",
                                  o->view->spec.row_tokens, FIG_LATENT_SPEC_ROW_TOKENS);
    if (fig_program_view_has_chunks(o->view))
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "the spec's row_tokens is %" PRId32
                                  ", limit %d where the host gives the lengths of packed rows and "
                                  "latent_dim is 0",
                                  o->view->spec.row_tokens, FIG_NARROW_TOKENS_LIMIT);
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_LATENT_ATTENTION_Q);
    if (q->dims[1] % FIG_LATENT_HEAD_UNIT != 0 || q->dims[1] > FIG_LATENT_HEAD_LIMIT)
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "q has %" PRId64 " heads, it must be a multiple of %d, limit %d",
                                  q->dims[1], FIG_LATENT_HEAD_UNIT, FIG_LATENT_HEAD_LIMIT);
    return check_values(o, q_rope);
}

/* Checks that a token of the cache is as long as the cache's dtype demands. */
static fig_status check_cache(const fig_operand_node *o) {
    static const fig_operand_form any = {3, {FIG_DIM_PAGES, FIG_OPERAND_ANY, FIG_OPERAND_ANY}, 1};
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_LATENT_ATTENTION_Q);
    const fig_tensor_record *cache = fig_operand_tensor(o, FIG_LATENT_ATTENTION_K_CACHE);
    FIG_TRY(fig_operand_check_form(o, FIG_LATENT_ATTENTION_K_CACHE, &any));
    if (cache->dtype != FIG_E4M3 || q->dtype == FIG_F32)
        FIG_TRY(fig_operand_check_dtype(o, FIG_LATENT_ATTENTION_K_CACHE, q->dtype));
    const fig_operand_form tokens = {
        3, {FIG_DIM_PAGES, FIG_OPERAND_ANY, fig_latent_width(cache->dtype)}, 1};
    FIG_TRY(fig_operand_check_form(o, FIG_LATENT_ATTENTION_K_CACHE, &tokens));
    return fig_operation_attention_check_pages(o, FIG_LATENT_ATTENTION_TABLE, cache->dims[1]);
}

static fig_status check_attributes(const fig_operand_node *o) {
    fig_latent_attributes attributes;
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    FIG_TRY(fig_operand_check_positive(o, "sm_scale", attributes.sm_scale));
    return fig_operation_attention_check_window(o, attributes.window);
}

/* q_rope: the node's operand of this name. */
static fig_status check_attention(const fig_operand_node *o, uint32_t q_rope) {
    FIG_TRY(check_heads(o, q_rope));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_LATENT_ATTENTION_Q);
    const int64_t rows = fig_operand_rows(q);
    const fig_operand_form out = {3, {rows, q->dims[1], FIG_LATENT_DIM}, q->dims[0]};
    const fig_operand_form lse = {2, {rows, q->dims[1]}, q->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_LATENT_ATTENTION_OUT, &out, q->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_LATENT_ATTENTION_LSE, &lse, FIG_F32));
    FIG_TRY(fig_operand_check_head_words(o, FIG_LATENT_ATTENTION_SINKS, q->dims[1]));
    FIG_TRY(check_cache(o));
    return check_attributes(o);
}

fig_status fig_operation_latent_check(const fig_operand_node *o) {
    return check_attention(o, FIG_LATENT_ATTENTION_Q_ROPE);
}

static fig_status check_norm(const fig_operand_node *o, uint32_t dtype) {
    fig_latent_decode_attributes attributes;
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    const float epsilon = attributes.rope.norm_epsilon;
    if (fig_operand_id(o, FIG_LATENT_DECODE_NORM) == 0 && epsilon != 0.0f)
        return fig_operand_refuse(o, FIG_INVALID, "norm_epsilon is %g, but there is no norm",
                                  (double)epsilon);
    if (fig_operand_id(o, FIG_LATENT_DECODE_NORM) == 0) return FIG_OK;
    FIG_TRY(fig_operand_check_weight(o, FIG_LATENT_DECODE_NORM, FIG_LATENT_DIM, dtype));
    return fig_operand_check_positive(o, "norm_epsilon", epsilon);
}

/* Checks the operands of attention, then the latent and its RoPE. */
fig_status fig_operation_latent_check_decode(const fig_operand_node *o) {
    FIG_TRY(check_attention(o, FIG_LATENT_DECODE_Q_ROPE));
    for (uint32_t i = FIG_LATENT_ATTENTION_SINKS; i <= FIG_LATENT_ATTENTION_LSE; i++) {
        if (fig_operand_id(o, FIG_LATENT_ATTENTION_OUT) != 0 || fig_operand_id(o, i) == 0) continue;
        return fig_operand_refuse(o, FIG_INVALID, "%s is given without out",
                                  fig_operand_name(o, i));
    }
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_LATENT_ATTENTION_Q);
    const fig_operand_form latent = {2, {fig_operand_rows(q), FIG_LATENT_KEY_DIM}, q->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_LATENT_DECODE_LATENT, &latent, q->dtype));
    FIG_TRY(check_norm(o, q->dtype));
    return fig_operation_rope_check_latent(o);
}
