/* operation.c: what each operation demands of its tensors and its attributes.
 *
 * The kernel table says which operands an operation has; dims and attributes are said here, so no
 * kernel checks any. Invariant: attributes that pass are resolved; no default is known later. */
#include "graphs/operation.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "graphs/operand.h"
#include "graphs/strings.h"
#include "include/figraph_parallel.h"
#include "planner/spec.h"
#include "planner/status.h"

enum { ANY = FIG_OPERAND_ANY, HEAD_DIM_LIMIT = 256 };

/* ---- What holds for every kernel ------------------------------------------------------------- */

/* A kernel's blocks run in any order, so what one writes no other may read: only those that read
 * just what they are about to write may work in place. */
int fig_operation_may_share(uint32_t op, uint32_t a, uint32_t b) {
    switch (op) {
    case FIG_OP_ROPE:
        return (a == FIG_ROPE_Q && b == FIG_ROPE_Q_OUT) || (a == FIG_ROPE_K && b == FIG_ROPE_K_OUT);
    case FIG_OP_RMS_NORM: return a == FIG_RMS_NORM_IN && b == FIG_RMS_NORM_OUT;
    case FIG_OP_ALL_REDUCE: return a == FIG_ALL_REDUCE_IN && b == FIG_ALL_REDUCE_OUT;
    }
    return 0;
}

static fig_status check_aliases(const fig_operand_node *o) {
    for (uint32_t b = 0; b < o->node->operand_count; b++) {
        const uint32_t id = fig_operand_id(o, b);
        if (id == 0) continue;
        for (uint32_t a = 0; a < b; a++) {
            const uint32_t access = o->operands[a].access | o->operands[b].access;
            if (fig_operand_id(o, a) != id || !(access & FIG_ACCESS_WRITE)) continue;
            if (fig_operation_may_share(o->node->op, a, b)) continue;
            return fig_operand_refuse(o, FIG_INVALID,
                                      "%s and %s are both %s, one of them is written",
                                      o->operands[a].name, o->operands[b].name,
                                      fig_program_view_tensor_name(o->view, id));
        }
    }
    return FIG_OK;
}

/* From `offset` of the node's on. */
static void read_attributes(const fig_operand_node *o, size_t offset, void *attributes,
                            size_t bytes) {
    assert(offset + bytes <= o->node->attribute_bytes);
    memcpy(attributes, o->view->attributes + o->node->attribute + offset, bytes);
}
#define READ_ATTRIBUTES(o, offset, attributes)                                                     \
    read_attributes(o, offset, attributes, sizeof *(attributes))

/* ---- What several share ---------------------------------------------------------------------- */

/* What is written has the form and dtype of what is read. */
static fig_status check_like(const fig_operand_node *o, uint32_t operand,
                             const fig_operand_form *form, uint32_t dtype) {
    FIG_TRY(fig_operand_check_form(o, operand, form));
    return fig_operand_check_dtype(o, operand, dtype);
}

/* f32 [heads] */
static fig_status check_head_words(const fig_operand_node *o, uint32_t operand, int64_t heads) {
    const fig_operand_form form = {1, {heads}, ANY};
    return check_like(o, operand, &form, FIG_F32);
}

/* A weight for each of `width` values. */
static fig_status check_weight(const fig_operand_node *o, uint32_t operand, int64_t width,
                               uint32_t dtype) {
    const fig_operand_form form = {1, {width}, ANY};
    return check_like(o, operand, &form, dtype);
}

static fig_status check_cache_head_dim(const fig_operand_node *o, uint32_t operand) {
    switch (fig_operand_tensor(o, operand)->dims[2]) {
    case 64:
    case 80:
    case 96:
    case 128:
    case 256: return FIG_OK;
    }
    return fig_operand_refuse(
        o, FIG_UNSUPPORTED, "%s has head_dim %" PRId64 ", this library has 64, 80, 96, 128 and 256",
        fig_operand_name(o, operand), fig_operand_tensor(o, operand)->dims[2]);
}

static fig_status check_positive(const fig_operand_node *o, const char *name, float value) {
    if (isfinite(value) && value > 0.0f) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s is %g, it must be finite and above 0", name,
                              (double)value);
}

/* A row that is not idle has row_tokens tokens, so that its first query has one to stand at. */
static fig_status check_row_tokens(const fig_operand_node *o, uint32_t operand) {
    const int64_t multiple = fig_operand_tensor(o, operand)->dims[0];
    if (multiple <= o->view->spec.row_tokens) return FIG_OK;
    return fig_operand_refuse(
        o, FIG_INVALID, "%s: multiple is %" PRId64 ", limit %" PRId32 ", the spec's row_tokens",
        fig_operand_name(o, operand), multiple, o->view->spec.row_tokens);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

/* Each sequence must find a row in the table, and each token below kv_limit a page in its row;
 * where there is no table, its own page. */
static fig_status check_pages(const fig_operand_node *o, uint32_t table, int64_t page_size) {
    static const fig_operand_form rows = {2, {ANY, ANY}, ANY};
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
    FIG_TRY(check_like(o, table, &rows, FIG_I32));
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

/* As the activations, or fp8 under those of 16 bits. */
static fig_status check_cache_dtype(const fig_operand_node *o, uint32_t cache, uint32_t dtype) {
    if (is_fp8(fig_operand_tensor(o, cache)->dtype) && dtype != FIG_F32) return FIG_OK;
    return fig_operand_check_dtype(o, cache, dtype);
}

static fig_status check_scale(const fig_operand_node *o, uint32_t scale, uint32_t cache) {
    static const fig_operand_form form = {1, {ANY}, ANY};
    const fig_tensor_record *tensor = fig_operand_tensor(o, scale);
    const fig_tensor_record *scaled = fig_operand_tensor(o, cache);
    if (tensor == NULL) return FIG_OK;
    FIG_TRY(check_like(o, scale, &form, FIG_F32));
    if (!is_fp8(scaled->dtype))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but %s has dtype %d and no scale",
                                  fig_operand_name(o, scale), fig_operand_name(o, cache),
                                  scaled->dtype);
    if (tensor->dims[0] == 1 || tensor->dims[0] == scaled->dims[2]) return FIG_OK;
    return fig_operand_refuse(
        o, FIG_INVALID, "%s: dims[0] is %" PRId64 ", it must be 1 or the %" PRId64 " heads of %s",
        fig_operand_name(o, scale), tensor->dims[0], scaled->dims[2], fig_operand_name(o, cache));
}

/* Two caches of one form, their table and scales. */
typedef struct cache_operands {
    uint32_t k, v, table, k_scale, v_scale;
    int64_t head_dim;
    uint32_t dtype; /* of the activations */
} cache_operands;

static fig_status check_cache(const fig_operand_node *o, const cache_operands *cache) {
    const fig_operand_form pages = {4, {FIG_DIM_PAGES, ANY, ANY, cache->head_dim}, 1};
    FIG_TRY(fig_operand_check_form(o, cache->k, &pages));
    const fig_tensor_record *k = fig_operand_tensor(o, cache->k);
    const fig_operand_form same = {4, {FIG_DIM_PAGES, k->dims[1], k->dims[2], cache->head_dim}, 1};
    FIG_TRY(check_cache_dtype(o, cache->k, cache->dtype));
    FIG_TRY(check_like(o, cache->v, &same, k->dtype));
    FIG_TRY(check_scale(o, cache->k_scale, cache->k));
    FIG_TRY(check_scale(o, cache->v_scale, cache->v));
    return check_pages(o, cache->table, k->dims[1]);
}

/* ---- What each demands ----------------------------------------------------------------------- */

/* A plan is made once, and before anything reads it. */
static fig_status check_plan(const fig_operand_node *o) {
    static const fig_operand_form rows = {1, {FIG_DIM_BATCH}, 1};
    if (o->index != 0)
        return fig_operand_refuse(o, FIG_INVALID, "it must be the first node, and the only one");
    FIG_TRY(check_like(o, FIG_PLAN_IN_LENGTHS, &rows, FIG_I32));
    return check_like(o, FIG_PLAN_IN_POSITIONS, &rows, FIG_I32);
}

static fig_status check_gated(const fig_operand_node *o) {
    static const fig_operand_form rows = {2, {FIG_DIM_BATCH, ANY}, ANY};
    fig_gated_attributes attributes;
    FIG_TRY(fig_operand_check_form(o, FIG_GATED_OUT, &rows));
    const fig_tensor_record *out = fig_operand_tensor(o, FIG_GATED_OUT);
    if (out->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "out has width %" PRId64 ", limit %d",
                                  out->dims[1], FIG_WIDTH_LIMIT);
    const fig_operand_form twice = {2, {FIG_DIM_BATCH, 2 * out->dims[1]}, out->dims[0]};
    FIG_TRY(fig_operand_check_activation(o, FIG_GATED_OUT));
    FIG_TRY(check_like(o, FIG_GATED_IN, &twice, out->dtype));
    READ_ATTRIBUTES(o, 0, &attributes);
    if (attributes.activation >= FIG_SILU && attributes.activation <= FIG_GELU_TANH) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "activation is %" PRId32 ", limits %d to %d",
                              attributes.activation, FIG_SILU, FIG_GELU_TANH);
}

static fig_status check_norm(const fig_operand_node *o, const fig_rms_norm_attributes *norm) {
    FIG_TRY(check_positive(o, "epsilon", norm->epsilon));
    if (isfinite(norm->weight_offset)) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "weight_offset is %g, it must be finite",
                              (double)norm->weight_offset);
}

static fig_status check_rms_norm(const fig_operand_node *o) {
    static const fig_operand_form rows = {2, {FIG_DIM_BATCH, ANY}, ANY};
    fig_rms_norm_attributes attributes;
    FIG_TRY(fig_operand_check_form(o, FIG_RMS_NORM_IN, &rows));
    FIG_TRY(fig_operand_check_activation(o, FIG_RMS_NORM_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_RMS_NORM_IN);
    const fig_operand_form same = {2, {FIG_DIM_BATCH, in->dims[1]}, in->dims[0]};
    if (in->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "in has width %" PRId64 ", limit %d", in->dims[1],
                                  FIG_WIDTH_LIMIT);
    FIG_TRY(check_weight(o, FIG_RMS_NORM_WEIGHT, in->dims[1], in->dtype));
    FIG_TRY(check_like(o, FIG_RMS_NORM_RESIDUAL, &same, in->dtype));
    FIG_TRY(check_like(o, FIG_RMS_NORM_OUT, &same, in->dtype));
    READ_ATTRIBUTES(o, 0, &attributes);
    return check_norm(o, &attributes);
}

/* Rows of a message: whole vectors, so that a GPU moves nothing smaller. */
static fig_status check_message(const fig_operand_node *o, uint32_t operand) {
    static const fig_operand_form rows = {2, {FIG_DIM_BATCH, ANY}, ANY};
    FIG_TRY(fig_operand_check_form(o, operand, &rows));
    FIG_TRY(fig_operand_check_activation(o, operand));
    const fig_tensor_record *tensor = fig_operand_tensor(o, operand);
    const char *name = fig_operand_name(o, operand);
    const int64_t unit = 16 / fig_program_view_dtype_bytes(tensor->dtype);
    if (tensor->dims[1] > FIG_WIDTH_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "%s has width %" PRId64 ", limit %d", name,
                                  tensor->dims[1], FIG_WIDTH_LIMIT);
    if (tensor->dims[1] % unit == 0) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "%s has width %" PRId64 ", it must be a multiple of %" PRId64, name,
                              tensor->dims[1], unit);
}

static fig_status check_all_reduce(const fig_operand_node *o) {
    fig_rms_norm_attributes attributes;
    FIG_TRY(check_message(o, FIG_ALL_REDUCE_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_ALL_REDUCE_IN);
    const fig_operand_form same = {2, {FIG_DIM_BATCH, in->dims[1]}, in->dims[0]};
    const int has_norm = fig_operand_tensor(o, FIG_ALL_REDUCE_WEIGHT) != NULL;
    FIG_TRY(check_like(o, FIG_ALL_REDUCE_OUT, &same, in->dtype));
    FIG_TRY(check_like(o, FIG_ALL_REDUCE_RESIDUAL, &same, in->dtype));
    FIG_TRY(check_weight(o, FIG_ALL_REDUCE_WEIGHT, in->dims[1], in->dtype));
    if (has_norm != (fig_operand_tensor(o, FIG_ALL_REDUCE_RESIDUAL) != NULL))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but not %s",
                                  has_norm ? "weight" : "residual",
                                  has_norm ? "residual" : "weight");
    READ_ATTRIBUTES(o, 0, &attributes);
    if (has_norm) return check_norm(o, &attributes);
    if (attributes.epsilon == 0.0f && attributes.weight_offset == 0.0f) return FIG_OK;
    return fig_operand_refuse(o, FIG_FORMAT, "epsilon is %g and weight_offset %g without a norm",
                              (double)attributes.epsilon, (double)attributes.weight_offset);
}

/* How often `in` goes into `out` is how many ranks there are. */
static fig_status check_all_gather(const fig_operand_node *o) {
    FIG_TRY(check_message(o, FIG_ALL_GATHER_IN));
    const fig_tensor_record *in = fig_operand_tensor(o, FIG_ALL_GATHER_IN);
    const fig_tensor_record *out = fig_operand_tensor(o, FIG_ALL_GATHER_OUT);
    const fig_operand_form rows = {2, {FIG_DIM_BATCH, out->dims[1]}, in->dims[0]};
    FIG_TRY(check_like(o, FIG_ALL_GATHER_OUT, &rows, in->dtype));
    FIG_TRY(check_message(o, FIG_ALL_GATHER_OUT));
    const int64_t ranks = out->dims[1] / in->dims[1];
    if (out->dims[1] % in->dims[1] == 0 && ranks <= FIG_PARALLEL_RANK_LIMIT) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "out has width %" PRId64 ", it must be a multiple of in's, %" PRId64
                              ", limit %d times",
                              out->dims[1], in->dims[1], FIG_PARALLEL_RANK_LIMIT);
}

/* What turns heads. */
enum { NO_OPERAND = FIG_OPERAND_LIMIT }; /* a number that no operand has */
typedef struct rope_operands {
    uint32_t q, k, positions, indptr, offsets, cos_sin, q_norm, k_norm;
    size_t attributes; /* where fig_rope_attributes begin among the node's */
} rope_operands;

static const rope_operands of_rope = {FIG_ROPE_Q,      FIG_ROPE_K,       FIG_ROPE_POSITIONS,
                                      FIG_ROPE_INDPTR, FIG_ROPE_OFFSETS, FIG_ROPE_COS_SIN,
                                      FIG_ROPE_Q_NORM, FIG_ROPE_K_NORM,  0};
static const rope_operands of_decode = {FIG_ATTENTION_Q,
                                        FIG_DECODE_ATTENTION_K,
                                        FIG_DECODE_ATTENTION_POSITIONS,
                                        NO_OPERAND,
                                        NO_OPERAND,
                                        FIG_DECODE_ATTENTION_COS_SIN,
                                        FIG_DECODE_ATTENTION_Q_NORM,
                                        FIG_DECODE_ATTENTION_K_NORM,
                                        offsetof(fig_decode_attention_attributes, rope)};

/* NULL where absent, or where the operation has no such operand. */
static const fig_tensor_record *rope_tensor(const fig_operand_node *o, uint32_t operand) {
    return operand == NO_OPERAND ? NULL : fig_operand_tensor(o, operand);
}

static fig_status check_integers(const fig_operand_node *o, uint32_t operand) {
    const uint8_t dtype = fig_operand_tensor(o, operand)->dtype;
    if (dtype == FIG_I32 || dtype == FIG_I64) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s has dtype %d, it must be FIG_I32 or FIG_I64",
                              fig_operand_name(o, operand), dtype);
}

/* One of three: a position for each row, packed segments, or the step's. */
static fig_status check_positions(const fig_operand_node *o, const rope_operands *rope,
                                  int64_t multiple) {
    const fig_operand_form rows = {1, {FIG_DIM_BATCH}, multiple};
    static const fig_operand_form any = {1, {ANY}, ANY};
    const fig_tensor_record *positions = rope_tensor(o, rope->positions);
    const fig_tensor_record *indptr = rope_tensor(o, rope->indptr);
    const fig_tensor_record *offsets = rope_tensor(o, rope->offsets);
    FIG_TRY(fig_operand_check_form(o, rope->positions, &rows));
    if (positions != NULL) FIG_TRY(check_integers(o, rope->positions));
    if ((indptr == NULL) != (offsets == NULL))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but not %s",
                                  indptr != NULL ? "indptr" : "offsets",
                                  indptr != NULL ? "offsets" : "indptr");
    if (offsets == NULL) return positions != NULL ? FIG_OK : check_row_tokens(o, rope->q);
    if (positions != NULL)
        return fig_operand_refuse(o, FIG_INVALID, "positions and indptr are both there");
    FIG_TRY(check_integers(o, rope->offsets));
    FIG_TRY(check_like(o, rope->offsets, &any, offsets->dtype));
    if (offsets->dims[0] > FIG_SEQUENCE_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "offsets has %" PRId64 " segments, limit %d",
                                  offsets->dims[0], FIG_SEQUENCE_LIMIT);
    const fig_operand_form ends = {1, {offsets->dims[0] + 1}, ANY};
    return check_like(o, rope->indptr, &ends, offsets->dtype);
}

/* A row for each position that the step may give; positions that the caller gives are its own. */
static fig_status check_cos_sin(const fig_operand_node *o, const rope_operands *rope,
                                int32_t rotary_dim) {
    const fig_operand_form form = {2, {ANY, rotary_dim}, ANY};
    const fig_tensor_record *cos_sin = fig_operand_tensor(o, rope->cos_sin);
    if (cos_sin == NULL) return FIG_OK;
    FIG_TRY(check_like(o, rope->cos_sin, &form, FIG_F32));
    if (cos_sin->dims[0] > INT32_MAX)
        return fig_operand_refuse(o, FIG_INVALID, "cos_sin has %" PRId64 " rows, limit %d",
                                  cos_sin->dims[0], INT32_MAX);
    const int own =
        rope_tensor(o, rope->positions) != NULL || rope_tensor(o, rope->offsets) != NULL;
    if (own || cos_sin->dims[0] >= o->view->spec.kv_limit) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "cos_sin has %" PRId64 " rows for a kv_limit of %" PRId32,
                              cos_sin->dims[0], o->view->spec.kv_limit);
}

static fig_status check_head_norms(const fig_operand_node *o, const rope_operands *rope,
                                   float epsilon) {
    const fig_tensor_record *q = fig_operand_tensor(o, rope->q);
    const int q_norm = fig_operand_id(o, rope->q_norm) != 0;
    const int k_norm = fig_operand_id(o, rope->k_norm) != 0;
    if (q_norm != k_norm)
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but not %s",
                                  q_norm ? "q_norm" : "k_norm", q_norm ? "k_norm" : "q_norm");
    if (!q_norm && epsilon != 0.0f)
        return fig_operand_refuse(o, FIG_INVALID, "norm_epsilon is %g, but there is no q_norm",
                                  (double)epsilon);
    if (!q_norm) return FIG_OK;
    FIG_TRY(check_weight(o, rope->q_norm, q->dims[2], q->dtype));
    FIG_TRY(check_weight(o, rope->k_norm, q->dims[2], q->dtype));
    return check_positive(o, "norm_epsilon", epsilon);
}

/* All of what turns heads but the forms of q and k. */
static fig_status check_turns(const fig_operand_node *o, const rope_operands *from) {
    const fig_tensor_record *q = fig_operand_tensor(o, from->q);
    fig_rope_attributes attributes;
    fig_rope_spec rope = {0}, resolved;
    FIG_TRY(check_positions(o, from, q->dims[0]));
    READ_ATTRIBUTES(o, from->attributes, &attributes);
    memcpy(&rope, &attributes.rope, sizeof attributes.rope);
    const fig_status status = fig_spec_resolve_rope(&rope, (int32_t)q->dims[2], &resolved);
    if (status != FIG_OK) return fig_operand_refuse(o, status, "%s", fig_message());
    if (memcmp(&rope, &resolved, sizeof resolved) != 0)
        return fig_operand_refuse(o, FIG_INVALID, "rope holds a default that is not filled in");
    FIG_TRY(check_cos_sin(o, from, attributes.rope.rotary_dim));
    return check_head_norms(o, from, attributes.norm_epsilon);
}

static fig_status check_rope(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_Q));
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_K));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ROPE_Q);
    const fig_tensor_record *k = fig_operand_tensor(o, FIG_ROPE_K);
    const int64_t head_dim = q->dims[2];
    const fig_operand_form q_form = {3, {FIG_DIM_BATCH, q->dims[1], head_dim}, q->dims[0]};
    const fig_operand_form k_form = {3, {FIG_DIM_BATCH, k->dims[1], head_dim}, q->dims[0]};
    if (head_dim % 2 != 0 || head_dim > HEAD_DIM_LIMIT)
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "q has head_dim %" PRId64 ", it must be even, limit %d", head_dim,
                                  HEAD_DIM_LIMIT);
    FIG_TRY(fig_operand_check_activation(o, FIG_ROPE_Q));
    FIG_TRY(check_like(o, FIG_ROPE_K, &k_form, q->dtype));
    FIG_TRY(check_like(o, FIG_ROPE_Q_OUT, &q_form, q->dtype));
    FIG_TRY(check_like(o, FIG_ROPE_K_OUT, &k_form, q->dtype));
    return check_turns(o, &of_rope);
}

static fig_status check_append_kv(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_APPEND_K));
    FIG_TRY(check_cache_head_dim(o, FIG_APPEND_K));
    FIG_TRY(fig_operand_check_activation(o, FIG_APPEND_K));
    FIG_TRY(check_row_tokens(o, FIG_APPEND_K));
    const fig_tensor_record *k = fig_operand_tensor(o, FIG_APPEND_K);
    const fig_operand_form rows = {3, {FIG_DIM_BATCH, k->dims[1], k->dims[2]}, k->dims[0]};
    FIG_TRY(check_like(o, FIG_APPEND_V, &rows, k->dtype));
    const cache_operands cache = {
        FIG_APPEND_K_CACHE, FIG_APPEND_V_CACHE, FIG_APPEND_TABLE, FIG_APPEND_K_SCALE,
        FIG_APPEND_V_SCALE, k->dims[2],         k->dtype};
    FIG_TRY(check_cache(o, &cache));
    const int64_t cache_heads = fig_operand_tensor(o, FIG_APPEND_K_CACHE)->dims[2];
    if (cache_heads == k->dims[1]) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "k has %" PRId64 " heads and k_cache %" PRId64,
                              k->dims[1], cache_heads);
}

static fig_status check_logits(const fig_operand_node *o) {
    fig_attention_attributes attributes;
    READ_ATTRIBUTES(o, 0, &attributes);
    FIG_TRY(check_positive(o, "sm_scale", attributes.sm_scale));
    if (!isfinite(attributes.soft_cap) || attributes.soft_cap < 0.0f)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "soft_cap is %g, it must be finite and at least 0",
                                  (double)attributes.soft_cap);
    if (attributes.window >= 0 && attributes.window <= FIG_KV_LIMIT) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "window is %" PRId32 ", limits 0 to %d",
                              attributes.window, FIG_KV_LIMIT);
}

static fig_status check_attention(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_ATTENTION_Q));
    FIG_TRY(check_cache_head_dim(o, FIG_ATTENTION_Q));
    FIG_TRY(fig_operand_check_activation(o, FIG_ATTENTION_Q));
    FIG_TRY(check_row_tokens(o, FIG_ATTENTION_Q));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ATTENTION_Q);
    const fig_operand_form rows = {3, {FIG_DIM_BATCH, q->dims[1], q->dims[2]}, q->dims[0]};
    const fig_operand_form lse = {2, {FIG_DIM_BATCH, q->dims[1]}, q->dims[0]};
    FIG_TRY(check_like(o, FIG_ATTENTION_OUT, &rows, q->dtype));
    FIG_TRY(check_like(o, FIG_ATTENTION_LSE, &lse, FIG_F32));
    FIG_TRY(check_head_words(o, FIG_ATTENTION_SINKS, q->dims[1]));
    FIG_TRY(check_head_words(o, FIG_ATTENTION_ALIBI, q->dims[1]));
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

/* Attention's alone, which without its out is none of the node's. */
static fig_status check_absent(const fig_operand_node *o, uint32_t operand) {
    if (fig_operand_tensor(o, operand) == NULL) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s is given without out",
                              fig_operand_name(o, operand));
}

/* Attention's demands, to which k, v and what turns q and k are added. */
static fig_status check_decode_attention(const fig_operand_node *o) {
    FIG_TRY(check_attention(o));
    for (uint32_t i = FIG_ATTENTION_SINKS; i <= FIG_ATTENTION_LSE; i++)
        if (fig_operand_tensor(o, FIG_ATTENTION_OUT) == NULL) FIG_TRY(check_absent(o, i));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ATTENTION_Q);
    const int64_t kv_heads = fig_operand_tensor(o, FIG_ATTENTION_K_CACHE)->dims[2];
    const fig_operand_form rows = {3, {FIG_DIM_BATCH, kv_heads, q->dims[2]}, q->dims[0]};
    FIG_TRY(check_like(o, FIG_DECODE_ATTENTION_K, &rows, q->dtype));
    FIG_TRY(check_like(o, FIG_DECODE_ATTENTION_V, &rows, q->dtype));
    return check_turns(o, &of_decode);
}

static fig_status check_merge_states(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_MERGE_OUT_A));
    FIG_TRY(fig_operand_check_activation(o, FIG_MERGE_OUT_A));
    const fig_tensor_record *a = fig_operand_tensor(o, FIG_MERGE_OUT_A);
    const fig_operand_form rows = {3, {FIG_DIM_BATCH, a->dims[1], a->dims[2]}, a->dims[0]};
    const fig_operand_form lse = {2, {FIG_DIM_BATCH, a->dims[1]}, a->dims[0]};
    if (a->dims[2] > HEAD_DIM_LIMIT)
        return fig_operand_refuse(o, FIG_UNSUPPORTED, "out_a has head_dim %" PRId64 ", limit %d",
                                  a->dims[2], HEAD_DIM_LIMIT);
    FIG_TRY(check_like(o, FIG_MERGE_OUT_B, &rows, a->dtype));
    FIG_TRY(check_like(o, FIG_MERGE_OUT, &rows, a->dtype));
    FIG_TRY(check_like(o, FIG_MERGE_LSE_A, &lse, FIG_F32));
    FIG_TRY(check_like(o, FIG_MERGE_LSE_B, &lse, FIG_F32));
    return check_like(o, FIG_MERGE_LSE, &lse, FIG_F32);
}

static fig_status check_call_name(const fig_operand_node *o, uint32_t offset) {
    const fig_program_view *view = o->view;
    if (!fig_strings_begins(view->strings, view->string_bytes, offset))
        return fig_operand_refuse(o, FIG_FORMAT, "no name begins at byte %u of %u", offset,
                                  view->string_bytes);
    return FIG_OK;
}

/* A call may name one tensor as read and written: it is one piece of work, and sees both. */
static fig_status check_call(const fig_operand_node *o) {
    fig_call_attributes call;
    const fig_node *node = o->node;
    if (node->attribute_bytes != sizeof call)
        return fig_operand_refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %zu",
                                  node->attribute_bytes, sizeof call);
    memcpy(&call, o->view->attributes + node->attribute, sizeof call);
    FIG_TRY(check_call_name(o, call.name));
    if (call.read_count > FIG_CALL_TENSOR_LIMIT || call.read_count > node->operand_count)
        return fig_operand_refuse(o, FIG_INVALID, "read_count is %u of %u tensors, limit %d",
                                  call.read_count, node->operand_count, FIG_CALL_TENSOR_LIMIT);
    if (node->operand_count - call.read_count > FIG_CALL_TENSOR_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "write_count is %u, limit %d",
                                  node->operand_count - call.read_count, FIG_CALL_TENSOR_LIMIT);
    if (call.byte_count > FIG_CALL_BYTES_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "byte_count is %u, limit %d", call.byte_count,
                                  FIG_CALL_BYTES_LIMIT);
    FIG_TRY(fig_operand_check_present(o));
    for (uint32_t b = call.read_count; b < node->operand_count; b++) {
        for (uint32_t a = call.read_count; a < b; a++) {
            if (fig_operand_id(o, a) == fig_operand_id(o, b))
                return fig_operand_refuse(
                    o, FIG_INVALID, "writes %s twice",
                    fig_program_view_tensor_name(o->view, fig_operand_id(o, a)));
        }
    }
    for (uint32_t i = call.byte_count; i < FIG_CALL_BYTES_LIMIT; i++) {
        if (call.bytes[i] != 0)
            return fig_operand_refuse(o, FIG_FORMAT, "byte %u is used and not counted", i);
    }
    if (call.reserved != 0)
        return fig_operand_refuse(o, FIG_FORMAT, "reserved is %u", call.reserved);
    return FIG_OK;
}

static fig_status check_kernel(const fig_operand_node *o) {
    const fig_kernel *kernel = &fig_kernel_table[o->node->op];
    if (o->node->operand_count != kernel->operand_count)
        return fig_operand_refuse(o, FIG_FORMAT, "%u operands, it must be %d",
                                  o->node->operand_count, kernel->operand_count);
    if (o->node->attribute_bytes != kernel->attribute_bytes)
        return fig_operand_refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %d",
                                  o->node->attribute_bytes, kernel->attribute_bytes);
    FIG_TRY(fig_operand_check_present(o));
    return check_aliases(o);
}

/* What an engine or a run launches of itself, and no program records. */
static int is_no_node_s(uint16_t op) {
    return op == FIG_OP_FETCH || op == FIG_OP_LOOK_AHEAD || op == FIG_OP_CEILING ||
           op == FIG_OP_WHOLE_ATTENTION;
}

fig_status fig_operation_check(const fig_program_view *view, uint32_t node) {
    assert(node < view->node_count);
    fig_operand_node o = {view, &view->nodes[node], NULL, node};
    if (o.node->op == FIG_OP_CALL) return check_call(&o);
    if (o.node->op >= FIG_OP_KERNEL_COUNT || is_no_node_s(o.node->op))
        return fig_operand_refuse(&o, FIG_FORMAT, "op is %d, which no node has", o.node->op);
    o.operands = fig_kernel_table[o.node->op].operands;
    FIG_TRY(check_kernel(&o));
    switch (o.node->op) {
    case FIG_OP_PLAN: return check_plan(&o);
    case FIG_OP_GATED: return check_gated(&o);
    case FIG_OP_RMS_NORM: return check_rms_norm(&o);
    case FIG_OP_ROPE: return check_rope(&o);
    case FIG_OP_APPEND_KV: return check_append_kv(&o);
    case FIG_OP_ATTENTION: return check_attention(&o);
    case FIG_OP_MERGE_STATES: return check_merge_states(&o);
    case FIG_OP_DECODE_ATTENTION: return check_decode_attention(&o);
    case FIG_OP_ALL_REDUCE: return check_all_reduce(&o);
    case FIG_OP_ALL_GATHER: return check_all_gather(&o);
    }
    return fig_operand_refuse(&o, FIG_UNSUPPORTED, "nothing checks it");
}
