/* operation_rope.c: checks RoPE, both as its own operation and as a part of decode_attention.
 *
 * Invariant: there is an angle for every position that the step or a tensor may give. */
#include "graphs/operations/operation_parts.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "kernels/latent/latent.h"
#include "planner/spec/frequencies.h"
#include "planner/spec/rope_spec.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* The operands of RoPE in a node. */
enum { NO_OPERAND = FIG_OPERAND_LIMIT }; /* a number that no operand has */
typedef struct rope_operands {
    uint32_t q, k, positions, indptr, offsets, cos_sin, q_norm, k_norm;
    size_t attributes; /* the offset of fig_rope_attributes among the node's attributes */
    int32_t head_dim;  /* dims of a head that must all be rotated; 0: q's dims, or a part of them */
} rope_operands;

static const rope_operands of_rope = {FIG_ROPE_Q,
                                      FIG_ROPE_K,
                                      FIG_ROPE_POSITIONS,
                                      FIG_ROPE_INDPTR,
                                      FIG_ROPE_OFFSETS,
                                      FIG_ROPE_COS_SIN,
                                      FIG_ROPE_Q_NORM,
                                      FIG_ROPE_K_NORM,
                                      0,
                                      0};
static const rope_operands of_decode = {FIG_ATTENTION_Q,
                                        FIG_DECODE_ATTENTION_K,
                                        FIG_DECODE_ATTENTION_POSITIONS,
                                        NO_OPERAND,
                                        NO_OPERAND,
                                        FIG_DECODE_ATTENTION_COS_SIN,
                                        FIG_DECODE_ATTENTION_Q_NORM,
                                        FIG_DECODE_ATTENTION_K_NORM,
                                        offsetof(fig_decode_attention_attributes, rope),
                                        0};
static const rope_operands of_latent = {FIG_LATENT_ATTENTION_Q,
                                        FIG_LATENT_DECODE_LATENT,
                                        FIG_LATENT_DECODE_POSITIONS,
                                        NO_OPERAND,
                                        NO_OPERAND,
                                        FIG_LATENT_DECODE_COS_SIN,
                                        NO_OPERAND,
                                        NO_OPERAND,
                                        offsetof(fig_latent_decode_attributes, rope),
                                        FIG_LATENT_ROPE_DIM};

/* Returns NULL if the operand is absent or the operation has no such operand. */
static const fig_tensor_record *rope_tensor(const fig_operand_node *o, uint32_t operand) {
    return operand == NO_OPERAND ? NULL : fig_operand_tensor(o, operand);
}

static fig_status check_integers(const fig_operand_node *o, uint32_t operand) {
    const uint8_t dtype = fig_operand_tensor(o, operand)->dtype;
    if (dtype == FIG_I32 || dtype == FIG_I64) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "%s has dtype %d, it must be FIG_I32 or FIG_I64",
                              fig_operand_name(o, operand), dtype);
}

/* Checks the source of positions, which is one of three: a tensor, packed segments, or the step. */
static fig_status check_positions(const fig_operand_node *o, const rope_operands *rope,
                                  const fig_tensor_record *q) {
    const fig_operand_form rows = {1, {fig_operand_rows(q)}, q->dims[0]};
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

/* Checks that the table has a row for each position that the step may give. If the caller gives
 * positions, the caller keeps them in range. */
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

/* Checks the table. If the table defines the frequencies, the terms must be zero. */
static fig_status check_table(const fig_operand_node *o, const fig_rope_spec *rope,
                              const fig_rope_table *table) {
    const fig_rope_spec bare = {.interleaved = rope->interleaved, .rotary_dim = rope->rotary_dim};
    fig_rope_table resolved = *table;
    if (memcmp(rope, &bare, sizeof bare) != 0)
        return fig_operand_refuse(o, FIG_INVALID,
                                  "rope sets frequencies by its terms and by its table");
    if (rope->rotary_dim == 0)
        return fig_operand_refuse(o, FIG_INVALID, "rope has a table, but its rotary_dim is 0");
    if (fig_frequencies_is_still(table)) return FIG_OK;
    const fig_status status = fig_frequencies_resolve("rope table", rope, &resolved);
    if (status != FIG_OK) return fig_operand_refuse(o, status, "%s", fig_message());
    if (memcmp(table, &resolved, sizeof resolved) != 0)
        return fig_operand_refuse(o, FIG_INVALID, "rope table: factor is 0, not its default");
    return FIG_OK;
}

/* Checks the reserved word between the terms and the table in the attributes of rope. */
static fig_status check_reserved(const fig_operand_node *o, const rope_operands *from) {
    const size_t end = from->attributes + sizeof(fig_rope_attributes);
    uint32_t reserved;
    if (fig_table_rope_table((uint32_t)from->attributes) == end) return FIG_OK;
    FIG_OPERAND_ATTRIBUTES(o, end, &reserved);
    if (reserved == 0) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "reserved is %u, it must be 0", reserved);
}

static fig_status check_terms(const fig_operand_node *o, const fig_rope_spec *rope,
                              const fig_rope_spec *resolved) {
    if (memcmp(rope, resolved, sizeof *resolved) == 0) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID, "rope holds a default that is not filled in");
}

/* If a fixed number of dims must be rotated, checks that RoPE rotates all of them. */
static fig_status check_rotary_dim(const fig_operand_node *o, const rope_operands *from,
                                   const fig_rope_spec *rope) {
    if (from->head_dim == 0 || rope->rotary_dim == from->head_dim) return FIG_OK;
    return fig_operand_refuse(o, FIG_INVALID,
                              "rope: rotary_dim is %" PRId32 ", it must be %" PRId32,
                              rope->rotary_dim, from->head_dim);
}

/* Checks all of RoPE except the forms of q and k. */
static fig_status check_turns(const fig_operand_node *o, const rope_operands *from) {
    const fig_tensor_record *q = fig_operand_tensor(o, from->q);
    const int32_t head_dim = from->head_dim != 0 ? from->head_dim : (int32_t)q->dims[2];
    fig_rope_attributes attributes;
    fig_rope_spec rope = {0}, resolved;
    fig_rope_table table;
    FIG_TRY(check_positions(o, from, q));
    FIG_OPERAND_ATTRIBUTES(o, from->attributes, &attributes);
    memcpy(&rope, &attributes.rope, sizeof attributes.rope);
    const fig_status status = fig_rope_spec_resolve(&rope, head_dim, &resolved);
    if (status != FIG_OK) return fig_operand_refuse(o, status, "%s", fig_message());
    FIG_TRY(check_rotary_dim(o, from, &rope));
    FIG_TRY(check_reserved(o, from));
    FIG_OPERAND_ATTRIBUTES(o, fig_table_rope_table((uint32_t)from->attributes), &table);
    if (fig_frequencies_has_table(&table)) {
        FIG_TRY(check_table(o, &rope, &table));
    } else {
        FIG_TRY(check_terms(o, &rope, &resolved));
    }
    FIG_TRY(check_cos_sin(o, from, attributes.rope.rotary_dim));
    if (from->q_norm == NO_OPERAND) return FIG_OK;
    return check_head_norms(o, from, attributes.norm_epsilon);
}

fig_status fig_operation_rope_check(const fig_operand_node *o) {
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_Q));
    FIG_TRY(fig_operand_check_heads(o, FIG_ROPE_K));
    const fig_tensor_record *q = fig_operand_tensor(o, FIG_ROPE_Q);
    const fig_tensor_record *k = fig_operand_tensor(o, FIG_ROPE_K);
    const int64_t head_dim = q->dims[2];
    const fig_operand_form q_form = {3, {fig_operand_rows(q), q->dims[1], head_dim}, q->dims[0]};
    const fig_operand_form k_form = {3, {fig_operand_rows(q), k->dims[1], head_dim}, q->dims[0]};
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

fig_status fig_operation_rope_check_latent(const fig_operand_node *o) {
    return check_turns(o, &of_latent);
}
