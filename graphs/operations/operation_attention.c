/* operation_attention.c: checks the operations on a KV cache (append, attention, and both in one),
 * and the merge of two attention results.
 *
 * Invariant: each token that a step may have has a page, and each page lies in the cache. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>
#include <math.h>

#include "planner/spec/head_dims.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* ---- Caches ---------------------------------------------------------------------------------- */

static fig_status check_cache_head_dim(const fig_operand_node *o, uint32_t operand) {
    const int64_t head_dim = fig_operand_tensor(o, operand)->dims[2];
    if (fig_head_dims_has(head_dim)) return FIG_OK;
    return fig_operand_refuse(o, FIG_UNSUPPORTED,
                              "%s has head_dim %" PRId64 ", this library has " FIG_HEAD_DIMS_TEXT,
                              fig_operand_name(o, operand), head_dim);
}

fig_status fig_operation_attention_check_pages(const fig_operand_node *o, uint32_t table,
                                               int64_t page_size) {
    static const fig_operand_form rows = {2, {FIG_OPERAND_ANY, FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    const fig_spec *spec = &o->view->spec;
    const fig_tensor_record *tensor = fig_operand_tensor(o, table);
    const char *name = fig_operand_name(o, table);
    if (tensor == NULL) {
        if (page_size == spec->kv_limit) return FIG_OK;
        return fig_operand_refuse(o, FIG_INVALID,
                                  "%s is absent, so pages must hold kv_limit tokens, %" PRId32
                                  ", and hold %" PRId64,
                                  name, spec->kv_limit, page_size);
    }
    FIG_TRY(fig_operand_check_like(o, table, &rows, FIG_I32));
    if (page_size > FIG_PAGE_SIZE_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "a page has %" PRId64 " tokens, limit %d",
                                  page_size, FIG_PAGE_SIZE_LIMIT);
    if (tensor->dims[0] < spec->sequence_limit)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "%s has %" PRId64 " rows for %" PRId32 " sequences", name,
                                  tensor->dims[0], spec->sequence_limit);
    if (tensor->dims[1] < (spec->kv_limit + page_size - 1) / page_size)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "%s has %" PRId64 " pages of %" PRId64
                                  " tokens for a kv_limit of %" PRId32,
                                  name, tensor->dims[1], page_size, spec->kv_limit);
    return FIG_OK;
}

static int is_fp8(uint32_t dtype) {
    return dtype == FIG_E4M3 || dtype == FIG_E5M2;
}

/* Checks that the cache has the dtype of the activations, or fp8 if activations have 16 bits. */
static fig_status check_cache_dtype(const fig_operand_node *o, uint32_t cache, uint32_t dtype) {
    if (is_fp8(fig_operand_tensor(o, cache)->dtype) && dtype != FIG_F32) return FIG_OK;
    return fig_operand_check_dtype(o, cache, dtype);
}

static fig_status check_scale(const fig_operand_node *o, uint32_t scale, uint32_t cache) {
    static const fig_operand_form form = {1, {FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    const fig_tensor_record *tensor = fig_operand_tensor(o, scale);
    const fig_tensor_record *scaled = fig_operand_tensor(o, cache);
    if (tensor == NULL) return FIG_OK;
    FIG_TRY(fig_operand_check_like(o, scale, &form, FIG_F32));
    if (!is_fp8(scaled->dtype))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but %s has dtype %d and no scale",
                                  fig_operand_name(o, scale), fig_operand_name(o, cache),
                                  scaled->dtype);
    if (tensor->dims[0] == 1 || tensor->dims[0] == scaled->dims[2]) return FIG_OK;
    return fig_operand_refuse(
        o, FIG_INVALID, "%s: dims[0] is %" PRId64 ", it must be 1 or the %" PRId64 " heads of %s",
        fig_operand_name(o, scale), tensor->dims[0], scaled->dims[2], fig_operand_name(o, cache));
}

/* Two caches of the same form, with their table and scales. */
typedef struct cache_operands {
    uint32_t k, v, table, k_scale, v_scale;
    int64_t head_dim;
    uint32_t dtype; /* the dtype of the activations */
} cache_operands;

static fig_status check_cache(const fig_operand_node *o, const cache_operands *cache) {
    const fig_operand_form pages = {
        4, {FIG_DIM_PAGES, FIG_OPERAND_ANY, FIG_OPERAND_ANY, cache->head_dim}, 1};
    FIG_TRY(fig_operand_check_form(o, cache->k, &pages));
    const fig_tensor_record *k = fig_operand_tensor(o, cache->k);
    const fig_operand_form same = {4, {FIG_DIM_PAGES, k->dims[1], k->dims[2], cache->head_dim}, 1};
    FIG_TRY(check_cache_dtype(o, cache->k, cache->dtype));
    FIG_TRY(fig_operand_check_like(o, cache->v, &same, k->dtype));
    FIG_TRY(check_scale(o, cache->k_scale, cache->k));
    FIG_TRY(check_scale(o, cache->v_scale, cache->v));
    return fig_operation_attention_check_pages(o, cache->table, k->dims[1]);
}

/* ---- Operations ------------------------------------------------------------------------------ */

fig_status fig_operation_attention_check_append(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_APPEND_K));
    FIG_TRY(check_cache_head_dim(o, FIG_APPEND_K));
    FIG_TRY(fig_operand_check_activation(o, FIG_APPEND_K));
    FIG_TRY(fig_operand_check_row_tokens(o, FIG_APPEND_K));
    const fig_tensor_record *k = fig_operand_tensor(o, FIG_APPEND_K);
    const fig_operand_form rows = {3, {fig_operand_rows(k), k->dims[1], k->dims[2]}, k->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_APPEND_V, &rows, k->dtype));
    const cache_operands cache = {
        FIG_APPEND_K_CACHE, FIG_APPEND_V_CACHE, FIG_APPEND_TABLE, FIG_APPEND_K_SCALE,
        FIG_APPEND_V_SCALE, k->dims[2],         k->dtype};
    FIG_TRY(check_cache(o, &cache));
    const int64_t cache_heads = fig_operand_tensor(o, FIG_APPEND_K_CACHE)->dims[2];
    if (cache_heads == k->dims[1]) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "k has %" PRId64 " heads and k_cache %" PRId64,
                              k->dims[1], cache_heads);
}

fig_status fig_operation_attention_check_window(const fig_operand_node *o, int32_t window) {
    if (window >= 0 && window <= FIG_KV_LIMIT) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "window is %" PRId32 ", limits 0 to %d", window,
                              FIG_KV_LIMIT);
}

static fig_status check_logits(const fig_operand_node *o) {
    fig_attention_attributes attributes;
    FIG_OPERAND_ATTRIBUTES(o, 0, &attributes);
    FIG_TRY(fig_operand_check_positive(o, "sm_scale", attributes.sm_scale));
    if (!isfinite(attributes.soft_cap) || attributes.soft_cap < 0.0f)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "soft_cap is %g, it must be finite and at least 0",
                                  (double)attributes.soft_cap);
    return fig_operation_attention_check_window(o, attributes.window);
}

fig_status fig_operation_attention_check(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_ATTENTION_Q));
    FIG_TRY(check_cache_head_dim(o, FIG_ATTENTION_Q));
    FIG_TRY(fig_operand_check_activation(o, FIG_ATTENTION_Q));
    FIG_TRY(fig_operand_check_row_tokens(o, FIG_ATTENTION_Q));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ATTENTION_Q);
    const fig_operand_form rows = {3, {fig_operand_rows(q), q->dims[1], q->dims[2]}, q->dims[0]};
    const fig_operand_form lse = {2, {fig_operand_rows(q), q->dims[1]}, q->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_ATTENTION_OUT, &rows, q->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_ATTENTION_LSE, &lse, FIG_F32));
    FIG_TRY(fig_operand_check_head_words(o, FIG_ATTENTION_SINKS, q->dims[1]));
    FIG_TRY(fig_operand_check_head_words(o, FIG_ATTENTION_ALIBI, q->dims[1]));
    const cache_operands cache = {FIG_ATTENTION_K_CACHE,
                                  FIG_ATTENTION_V_CACHE,
                                  FIG_ATTENTION_TABLE,
                                  FIG_ATTENTION_K_SCALE,
                                  FIG_ATTENTION_V_SCALE,
                                  q->dims[2],
                                  q->dtype};
    FIG_TRY(check_cache(o, &cache));
    const int64_t kv_heads = fig_operand_tensor(o, FIG_ATTENTION_K_CACHE)->dims[2];
    if (q->dims[1] % kv_heads != 0 || q->dims[1] / kv_heads > FIG_GROUP_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "q has %" PRId64 " heads for %" PRId64
                                  " of k_cache, it must be a multiple, limit %d",
                                  q->dims[1], kv_heads, FIG_GROUP_LIMIT);
    return check_logits(o);
}

/* Fails if an operand of attention is given to a node that computes no attention because it has no
 * `out`. */
static fig_status check_absent(const fig_operand_node *o, uint32_t operand) {
    if (fig_operand_tensor(o, operand) == NULL) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s is given without out",
                              fig_operand_name(o, operand));
}

/* Checks the operands of attention, then k, v and RoPE. */
fig_status fig_operation_attention_check_decode(const fig_operand_node *o) {
    FIG_TRY(fig_operation_attention_check(o));
    for (uint32_t i = FIG_ATTENTION_SINKS; i <= FIG_ATTENTION_LSE; i++)
        if (fig_operand_tensor(o, FIG_ATTENTION_OUT) == NULL) FIG_TRY(check_absent(o, i));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ATTENTION_Q);
    const int64_t kv_heads = fig_operand_tensor(o, FIG_ATTENTION_K_CACHE)->dims[2];
    const fig_operand_form rows = {3, {fig_operand_rows(q), kv_heads, q->dims[2]}, q->dims[0]};
    FIG_TRY(fig_operand_check_like(o, FIG_DECODE_ATTENTION_K, &rows, q->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_DECODE_ATTENTION_V, &rows, q->dtype));
    return fig_operation_rope_check_fused(o);
}

fig_status fig_operation_attention_check_merge(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_MERGE_OUT_A));
    FIG_TRY(fig_operand_check_activation(o, FIG_MERGE_OUT_A));
    const fig_tensor_record *a = fig_operand_tensor(o, FIG_MERGE_OUT_A);
    const fig_operand_form rows = {3, {fig_operand_rows(a), a->dims[1], a->dims[2]}, a->dims[0]};
    const fig_operand_form lse = {2, {fig_operand_rows(a), a->dims[1]}, a->dims[0]};
    if (a->dims[2] > FIG_OPERATION_HEAD_DIM_LIMIT)
        return fig_operand_refuse(o, FIG_UNSUPPORTED, "out_a has head_dim %" PRId64 ", limit %d",
                                  a->dims[2], FIG_OPERATION_HEAD_DIM_LIMIT);
    FIG_TRY(fig_operand_check_like(o, FIG_MERGE_OUT_B, &rows, a->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_MERGE_OUT, &rows, a->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_MERGE_LSE_A, &lse, FIG_F32));
    FIG_TRY(fig_operand_check_like(o, FIG_MERGE_LSE_B, &lse, FIG_F32));
    return fig_operand_check_like(o, FIG_MERGE_LSE, &lse, FIG_F32);
}
