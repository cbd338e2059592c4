/* operation_rope.c: what turning heads demands, as RoPE alone and as a part of decode_attention.
 *
 * Invariant: a position that the step or a tensor may give has an angle. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "planner/frequencies.h"
#include "planner/rope_spec.h"
#include "planner/spec.h"
#include "planner/status.h"

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
    static const fig_operand_form any = {1, {FIG_OPERAND_ANY}, FIG_OPERAND_ANY};
    const fig_tensor_record *positions = rope_tensor(o, rope->positions);
    const fig_tensor_record *indptr = rope_tensor(o, rope->indptr);
    const fig_tensor_record *offsets = rope_tensor(o, rope->offsets);
    FIG_TRY(fig_operand_check_form(o, rope->positions, &rows));
    if (positions != NULL) FIG_TRY(check_integers(o, rope->positions));
    if ((indptr == NULL) != (offsets == NULL))
        return fig_operand_refuse(o, FIG_INVALID, "%s is there, but not %s",
                                  indptr != NULL ? "indptr" : "offsets",
                                  indptr != NULL ? "offsets" : "indptr");
    if (offsets == NULL)
        return positions != NULL ? FIG_OK : fig_operand_check_row_tokens(o, rope->q);
    if (positions != NULL)
        return fig_operand_refuse(o, FIG_INVALID, "positions and indptr are both there");
    FIG_TRY(check_integers(o, rope->offsets));
    FIG_TRY(fig_operand_check_like(o, rope->offsets, &any, offsets->dtype));
    if (offsets->dims[0] > FIG_SEQUENCE_LIMIT)
        return fig_operand_refuse(o, FIG_INVALID, "offsets has %" PRId64 " segments, limit %d",
                                  offsets->dims[0], FIG_SEQUENCE_LIMIT);
    const fig_operand_form ends = {1, {offsets->dims[0] + 1}, FIG_OPERAND_ANY};
    return fig_operand_check_like(o, rope->indptr, &ends, offsets->dtype);
}

/* A row for each position that the step may give; positions that the caller gives are its own. */
static fig_status check_cos_sin(const fig_operand_node *o, const rope_operands *rope,
                                int32_t rotary_dim) {
    const fig_operand_form form = {2, {FIG_OPERAND_ANY, rotary_dim}, FIG_OPERAND_ANY};
    const fig_tensor_record *cos_sin = fig_operand_tensor(o, rope->cos_sin);
    if (cos_sin == NULL) return FIG_OK;
    FIG_TRY(fig_operand_check_like(o, rope->cos_sin, &form, FIG_F32));
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
    FIG_TRY(fig_operand_check_weight(o, rope->q_norm, q->dims[2], q->dtype));
    FIG_TRY(fig_operand_check_weight(o, rope->k_norm, q->dims[2], q->dtype));
    return fig_operand_check_positive(o, "norm_epsilon", epsilon);
}

/* What a table says of pairs no term says as well. */
static fig_status check_table(const fig_operand_node *o, const rope_operands *from,
                              const fig_rope_spec *rope) {
    const uint32_t offset = fig_table_rope_table((uint32_t)from->attributes);
    const fig_rope_spec bare = {.interleaved = rope->interleaved, .rotary_dim = rope->rotary_dim};
    fig_rope_table table, resolved;
    uint32_t before; /* in rope's own attributes a reserved word */
    FIG_OPERAND_ATTRIBUTES(o, offset, &table);
    FIG_OPERAND_ATTRIBUTES(o, offset - sizeof before, &before);
    if (offset > from->attributes + sizeof(fig_rope_attributes) && before != 0)
        return fig_operand_refuse(o, FIG_INVALID, "reserved is %u, it must be 0", before);
    if (memcmp(rope, &bare, sizeof bare) != 0)
        return fig_operand_refuse(o, FIG_INVALID, "rope says frequencies, and so does its table");
    if (rope->rotary_dim == 0 || !fig_frequencies_has_table(&table))
        return fig_operand_refuse(o, FIG_INVALID, "the rope's table or its rotary_dim is empty");
    resolved = table;
    const fig_status status = fig_frequencies_resolve("rope table", rope, &resolved);
    if (status != FIG_OK) return fig_operand_refuse(o, status, "%s", fig_message());
    if (memcmp(&table, &resolved, sizeof resolved) != 0)
        return fig_operand_refuse(o, FIG_INVALID, "rope table: factor is 0, not its default");
    return FIG_OK;
}

static fig_status check_terms(const fig_operand_node *o, const fig_rope_spec *rope,
                              const fig_rope_spec *resolved) {
    if (memcmp(rope, resolved, sizeof *resolved) == 0) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "rope holds a default that is not filled in");
}

/* All of what turns heads but the forms of q and k. */
static fig_status check_turns(const fig_operand_node *o, const rope_operands *from) {
    const fig_tensor_record *q = fig_operand_tensor(o, from->q);
    fig_rope_attributes attributes;
    fig_rope_spec rope = {0}, resolved;
    FIG_TRY(check_positions(o, from, q->dims[0]));
    FIG_OPERAND_ATTRIBUTES(o, from->attributes, &attributes);
    memcpy(&rope, &attributes.rope, sizeof attributes.rope);
    const fig_status status = fig_rope_spec_resolve(&rope, (int32_t)q->dims[2], &resolved);
    if (status != FIG_OK) return fig_operand_refuse(o, status, "%s", fig_message());
    if (o->node->attribute_bytes > fig_table_rope_table((uint32_t)from->attributes)) {
        FIG_TRY(check_table(o, from, &rope));
    } else {
        FIG_TRY(check_terms(o, &rope, &resolved));
    }
    FIG_TRY(check_cos_sin(o, from, attributes.rope.rotary_dim));
    return check_head_norms(o, from, attributes.norm_epsilon);
}

fig_status fig_operation_rope_check(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_Q));
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_K));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ROPE_Q);
    const fig_tensor_record *k = fig_operand_tensor(o, FIG_ROPE_K);
    const int64_t head_dim = q->dims[2];
    const fig_operand_form q_form = {3, {FIG_DIM_BATCH, q->dims[1], head_dim}, q->dims[0]};
    const fig_operand_form k_form = {3, {FIG_DIM_BATCH, k->dims[1], head_dim}, q->dims[0]};
    if (head_dim % 2 != 0 || head_dim > FIG_OPERATION_HEAD_DIM_LIMIT)
        return fig_operand_refuse(o, FIG_UNSUPPORTED,
                                  "q has head_dim %" PRId64 ", it must be even, limit %d", head_dim,
                                  FIG_OPERATION_HEAD_DIM_LIMIT);
    FIG_TRY(fig_operand_check_activation(o, FIG_ROPE_Q));
    FIG_TRY(fig_operand_check_like(o, FIG_ROPE_K, &k_form, q->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_ROPE_Q_OUT, &q_form, q->dtype));
    FIG_TRY(fig_operand_check_like(o, FIG_ROPE_K_OUT, &k_form, q->dtype));
    return check_turns(o, &of_rope);
}

fig_status fig_operation_rope_check_fused(const fig_operand_node *o) {
    return check_turns(o, &of_decode);
}
