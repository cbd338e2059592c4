/* rows.h: the rows of the kernel table.
 *
 * A row lists an operation's operands in the order of its nodes, the source of each field of its
 * params, and the other properties of the operation. Only table.c reads this file; it puts <OP>_ROW
 * into the row and <OP>_<KIND> into each of its families. The rows of attention are in
 * attention_rows.h. The place, size and type of a field come from the struct itself. Invariant: the
 * fields of an operation cover its params exactly once, in order. */
#ifndef FIG_KERNELS_ROWS_H
#define FIG_KERNELS_ROWS_H

#include "kernels/table/table.h"
#include "kernels/table/reference_kernels.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
/* needed: the last operand that a node must have. frozen: the last operand that format 1 had when
 * it was frozen. */
#define OPERANDS(array, needed, frozen)                                                            \
    .operands = array, .operand_count = COUNT(array), .operand_least = (needed) + 1,               \
    .operand_base = (frozen) + 1
/* least: the smallest number of bytes of attributes that a node may have; any missing bytes count
 * as 0. */
#define ATTRIBUTE_BYTES(type, least) .attribute_bytes = sizeof(type), .attribute_least = least
#define FIELDS(array) .fields = array, .field_count = COUNT(array)
#define READS(operands, ranges)                                                                    \
    { operands, ranges, COUNT(operands), COUNT(ranges) }

/* clang-format off */
/* Expands to the fig_field_type of a field, found from the field's C type. */
#define TYPE(field)                                                                                \
    _Generic(((PARAMS *)0)->field,                                                                 \
             int64_t: FIG_TYPE_I64,                                                                \
             int32_t: FIG_TYPE_I32,                                                                \
             uint32_t: FIG_TYPE_U32,                                                               \
             float: FIG_TYPE_F32,                                                                  \
             fig_split_shape: FIG_TYPE_SPLIT,                                                      \
             fig_plan_shape: FIG_TYPE_PLAN_SHAPE,                                                  \
             fig_plan_strips: FIG_TYPE_STRIPS,                                                     \
             fig_rope_angles: FIG_TYPE_ANGLES,                                                     \
             fig_rope_table: FIG_TYPE_ANGLES,                                                      \
             fig_tensor_map: FIG_TYPE_TENSOR_MAP,                                                  \
             default: FIG_TYPE_ADDRESS)
#define FIELD(field, kind, operand, item, divisor)                                                 \
    {#field, offsetof(PARAMS, field), sizeof((PARAMS *)0)->field,                                  \
     kind, TYPE(field), operand, item, divisor}
/* clang-format on */

/* Macros for fields that come from an operand. */
#define ADDRESS(field, operand) FIELD(field, FIG_FIELD_ADDRESS, operand, 0, 1)
#define STRIDE(field, operand, dim) FIELD(field, FIG_FIELD_STRIDE, operand, dim, 1)
#define EXTENT(field, operand) FIELD(field, FIG_FIELD_EXTENT, operand, 0, 1)
#define DIM(field, operand, dim) FIELD(field, FIG_FIELD_DIM, operand, dim, 1)
#define PAGE_TOKENS(field, operand) FIELD(field, FIG_FIELD_PAGE_TOKENS, operand, 1, 1)
#define HALF_DIM(field, operand, dim) FIELD(field, FIG_FIELD_DIM, operand, dim, 2)
#define DTYPE(field, operand) FIELD(field, FIG_FIELD_DTYPE, operand, 0, 1)
#define ROWS(field, operand)                                                                       \
    FIELD(field.row_limit, FIG_FIELD_ROWS, operand, 0, 1),                                         \
        FIELD(field.multiple, FIG_FIELD_MULTIPLE, operand, 0, 1),                                  \
        FIELD(field.queries_offset, FIG_FIELD_QUERIES, operand, 0, 1),                             \
        FROM(field.reserved, FIG_FIELD_ZERO)
#define ROW_STRIDES(field, operand) STRIDE(field.row, operand, 0), STRIDE(field.head, operand, 1)
#define CACHE_STRIDES(field, operand)                                                              \
    STRIDE(field.page, operand, 0), STRIDE(field.token, operand, 1), STRIDE(field.head, operand, 2)
/* Takes a field from the node's attribute of the same name. */
#define ATTRIBUTE(field) FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(ATTRIBUTES, field), 1)
/* Takes a field from the named rope term in fig_decode_attention_attributes. */
#define ROPE_ATTRIBUTE(field, name)                                                                \
    FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(fig_decode_attention_attributes, rope.name), 1)
/* Macros for fields that come from the bucket. */
#define FROM(field, kind) FIELD(field, kind, 0, 0, 1)
#define SECTION(field, section) FIELD(field, FIG_FIELD_PLAN_SECTION, 0, section, 1)
#define WORKSPACE(field, section) FIELD(field, FIG_FIELD_WORKSPACE, 0, section, 1)

/* ---- fetch */

#define PARAMS fig_fetch_params
static const fig_field fetch_fields[] = {
    FROM(ring, FIG_FIELD_RING),
    FROM(plan, FIG_FIELD_PLAN),
    FROM(state, FIG_FIELD_RING_STATE),
    FROM(words, FIG_FIELD_RING_WORDS),
    FROM(shape, FIG_FIELD_PLAN_SHAPE),
    FROM(slot_count, FIG_FIELD_RING_SLOTS),
    FROM(slot_bytes, FIG_FIELD_RING_BYTES),
    FROM(tells, FIG_FIELD_ZERO),
};
#undef PARAMS

#define FETCH_ROW FIELDS(fetch_fields), .makes_plan = 1
#define FETCH_GENERAL .shape = fig_fetch_shape

/* ---- look_ahead */

#define PARAMS fig_look_ahead_params
static const fig_field look_ahead_fields[] = {
    FROM(ring, FIG_FIELD_RING),
    FROM(state, FIG_FIELD_RING_STATE),
    FROM(words, FIG_FIELD_RING_WORDS),
    FROM(slot_count, FIG_FIELD_RING_SLOTS),
    FROM(slot_bytes, FIG_FIELD_RING_BYTES),
};
#undef PARAMS

#define LOOK_AHEAD_ROW FIELDS(look_ahead_fields)
#define LOOK_AHEAD_GENERAL .shape = fig_look_ahead_shape

/* ---- ceiling */

static const fig_operand ceiling_operands[] = {
    [FIG_CEILING_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_CEILING_OUT] = {"out", FIG_ACCESS_WRITE, 0},
};

#define PARAMS fig_ceiling_params
static const fig_field ceiling_fields[] = {
    ADDRESS(in, FIG_CEILING_IN),
    ADDRESS(out, FIG_CEILING_OUT),
    FROM(pieces, FIG_FIELD_ZERO),
    FROM(blocks, FIG_FIELD_ZERO),
};
#undef PARAMS

#define CEILING_ROW                                                                                \
    OPERANDS(ceiling_operands, FIG_CEILING_OUT, FIG_CEILING_OUT), FIELDS(ceiling_fields)
#define CEILING_GENERAL .shape = fig_ceiling_shape

/* ---- plan */

static const fig_operand plan_operands[] = {
    [FIG_PLAN_IN_LENGTHS] = {"lengths", FIG_ACCESS_READ, 0},
    [FIG_PLAN_IN_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
    [FIG_PLAN_IN_QUERIES] = {"query_starts", FIG_ACCESS_READ, 1},
};

#define PARAMS fig_plan_params
static const fig_field plan_fields[] = {
    ADDRESS(lengths, FIG_PLAN_IN_LENGTHS),
    ADDRESS(positions, FIG_PLAN_IN_POSITIONS),
    ADDRESS(query_starts, FIG_PLAN_IN_QUERIES),
    FROM(plan, FIG_FIELD_PLAN),
    FROM(words, FIG_FIELD_RING_WORDS),
    FROM(zeros, FIG_FIELD_RUN),
    FROM(shape, FIG_FIELD_PLAN_SHAPE),
    FROM(kv_limit, FIG_FIELD_KV_LIMIT),
    FROM(rows, FIG_FIELD_RUN),
    FROM(length, FIG_FIELD_RUN),
    FROM(zero_pieces, FIG_FIELD_RUN),
    FROM(reserved, FIG_FIELD_ZERO),
    FROM(strips, FIG_FIELD_STRIPS_SHAPES),
};
#undef PARAMS

#define PLAN_ROW                                                                                   \
    OPERANDS(plan_operands, FIG_PLAN_IN_LENGTHS, FIG_PLAN_IN_POSITIONS), FIELDS(plan_fields),      \
        .makes_plan = 1
#define PLAN_GENERAL .shape = fig_planning_shape, .entry = fig_planning_entry

/* ---- gated */

static const fig_operand gated_operands[] = {
    [FIG_GATED_IN] = {"in", FIG_ACCESS_READ, 0, FIG_SHARE_COLUMNS, 1},
    [FIG_GATED_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_COLUMNS, 1},
};

#define PARAMS fig_gated_params
#define ATTRIBUTES fig_gated_attributes
static const fig_field gated_fields[] = {
    ADDRESS(in, FIG_GATED_IN),
    ADDRESS(out, FIG_GATED_OUT),
    FROM(plan, FIG_FIELD_PLAN),
    STRIDE(in_stride, FIG_GATED_IN, 0),
    STRIDE(out_stride, FIG_GATED_OUT, 0),
    ROWS(rows, FIG_GATED_IN),
    HALF_DIM(width, FIG_GATED_IN, 1),
    DTYPE(dtype, FIG_GATED_IN),
    ATTRIBUTE(activation),
    FROM(early_reads, FIG_FIELD_EARLY_READS),
};
#undef ATTRIBUTES
#undef PARAMS

#define GATED_ROW                                                                                  \
    OPERANDS(gated_operands, FIG_GATED_OUT, FIG_GATED_OUT), FIELDS(gated_fields),                  \
        ATTRIBUTE_BYTES(fig_gated_attributes, sizeof(fig_gated_attributes))
#define GATED_GENERAL .shape = fig_gated_shape, .entry = fig_gated_entry

/* ---- rms_norm */

static const fig_operand rms_norm_operands[] = {
    [FIG_RMS_NORM_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_RMS_NORM_WEIGHT] = {"weight", FIG_ACCESS_READ, 0},
    [FIG_RMS_NORM_RESIDUAL] = {"residual", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 1},
    [FIG_RMS_NORM_OUT] = {"out", FIG_ACCESS_WRITE, 0, .in_place = FIG_SLOT(FIG_RMS_NORM_IN)},
};

#define PARAMS fig_rms_norm_params
#define ATTRIBUTES fig_rms_norm_attributes
static const fig_field rms_norm_fields[] = {
    ADDRESS(in, FIG_RMS_NORM_IN),
    ADDRESS(weight, FIG_RMS_NORM_WEIGHT),
    ADDRESS(out, FIG_RMS_NORM_OUT),
    ADDRESS(residual, FIG_RMS_NORM_RESIDUAL),
    FROM(plan, FIG_FIELD_PLAN),
    STRIDE(in_stride, FIG_RMS_NORM_IN, 0),
    STRIDE(out_stride, FIG_RMS_NORM_OUT, 0),
    STRIDE(residual_stride, FIG_RMS_NORM_RESIDUAL, 0),
    ROWS(rows, FIG_RMS_NORM_IN),
    DIM(width, FIG_RMS_NORM_IN, 1),
    DTYPE(dtype, FIG_RMS_NORM_IN),
    ATTRIBUTE(epsilon),
    ATTRIBUTE(weight_offset),
};
#undef ATTRIBUTES
#undef PARAMS

#define RMS_NORM_ROW                                                                               \
    OPERANDS(rms_norm_operands, FIG_RMS_NORM_OUT, FIG_RMS_NORM_OUT), FIELDS(rms_norm_fields),      \
        ATTRIBUTE_BYTES(fig_rms_norm_attributes, sizeof(fig_rms_norm_attributes)),                 \
        .early_weights = 1u << FIG_RMS_NORM_WEIGHT
#define RMS_NORM_GENERAL .shape = fig_rms_norm_shape, .entry = fig_rms_norm_entry

/* ---- rope */

static const fig_operand rope_operands[] = {
    [FIG_ROPE_Q] = {"q", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_ROPE_K] = {"k", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 1},
    [FIG_ROPE_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
    [FIG_ROPE_INDPTR] = {"indptr", FIG_ACCESS_READ, 1},
    [FIG_ROPE_OFFSETS] = {"offsets", FIG_ACCESS_READ, 1},
    [FIG_ROPE_COS_SIN] = {"cos_sin", FIG_ACCESS_READ, 1},
    [FIG_ROPE_Q_NORM] = {"q_norm", FIG_ACCESS_READ, 1},
    [FIG_ROPE_K_NORM] = {"k_norm", FIG_ACCESS_READ, 1},
    [FIG_ROPE_Q_OUT] = {"q_out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1,
                        .in_place = FIG_SLOT(FIG_ROPE_Q)},
    [FIG_ROPE_K_OUT] = {"k_out", FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS, 1,
                        .in_place = FIG_SLOT(FIG_ROPE_K)},
};

#define PARAMS fig_rope_params
#define ATTRIBUTES fig_rope_attributes
static const fig_field rope_fields[] = {
    ADDRESS(q, FIG_ROPE_Q),
    ADDRESS(k, FIG_ROPE_K),
    ADDRESS(q_out, FIG_ROPE_Q_OUT),
    ADDRESS(k_out, FIG_ROPE_K_OUT),
    ADDRESS(positions, FIG_ROPE_POSITIONS),
    ADDRESS(indptr, FIG_ROPE_INDPTR),
    ADDRESS(offsets, FIG_ROPE_OFFSETS),
    ADDRESS(cos_sin, FIG_ROPE_COS_SIN),
    ADDRESS(q_norm, FIG_ROPE_Q_NORM),
    ADDRESS(k_norm, FIG_ROPE_K_NORM),
    FROM(plan, FIG_FIELD_PLAN),
    ROW_STRIDES(q_strides, FIG_ROPE_Q),
    ROW_STRIDES(k_strides, FIG_ROPE_K),
    ROW_STRIDES(q_out_strides, FIG_ROPE_Q_OUT),
    ROW_STRIDES(k_out_strides, FIG_ROPE_K_OUT),
    STRIDE(cos_sin_stride, FIG_ROPE_COS_SIN, 0),
    ATTRIBUTE(rope.interleaved),
    ATTRIBUTE(rope.rotary_dim),
    ATTRIBUTE(rope.theta),
    ATTRIBUTE(rope.scale),
    ATTRIBUTE(rope.llama3_factor),
    ATTRIBUTE(rope.llama3_low),
    ATTRIBUTE(rope.llama3_high),
    ATTRIBUTE(rope.llama3_context),
    ATTRIBUTE(norm_epsilon),
    SECTION(positions_offset, FIG_PLAN_POSITIONS),
    ROWS(rows, FIG_ROPE_Q),
    DIM(segments, FIG_ROPE_OFFSETS, 0),
    DIM(cos_sin_rows, FIG_ROPE_COS_SIN, 0),
    DIM(q_heads, FIG_ROPE_Q, 1),
    DIM(k_heads, FIG_ROPE_K, 1),
    DIM(head_dim, FIG_ROPE_Q, 2),
    DTYPE(dtype, FIG_ROPE_Q),
    DTYPE(positions_dtype, FIG_ROPE_POSITIONS),
    DTYPE(packed_dtype, FIG_ROPE_INDPTR),
    FIELD(angles, FIG_FIELD_ANGLES, 0, 0, 1),
};
#undef ATTRIBUTES
#undef PARAMS

#define ROPE_ROW                                                                                   \
    OPERANDS(rope_operands, FIG_ROPE_K_OUT, FIG_ROPE_K_OUT), FIELDS(rope_fields),                  \
        ATTRIBUTE_BYTES(fig_rope_node_attributes, sizeof(fig_rope_attributes)),                    \
        .plan_unless = 1u << FIG_ROPE_POSITIONS | 1u << FIG_ROPE_INDPTR,                           \
        .early_weights = 1u << FIG_ROPE_Q_NORM | 1u << FIG_ROPE_K_NORM
#define ROPE_GENERAL .shape = fig_rope_shape

/* ---- append_kv */

static const fig_operand append_kv_operands[] = {
    [FIG_APPEND_K] = {"k", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 1},
    [FIG_APPEND_V] = {"v", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 1},
    [FIG_APPEND_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_APPEND_K_SCALE] = {"k_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_APPEND_V_SCALE] = {"v_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_APPEND_K_CACHE] = {"k_cache", FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS, 2},
    [FIG_APPEND_V_CACHE] = {"v_cache", FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS, 2},
};

#define PARAMS fig_append_kv_params
static const fig_field append_kv_fields[] = {
    ADDRESS(k, FIG_APPEND_K),
    ADDRESS(v, FIG_APPEND_V),
    ADDRESS(k_cache, FIG_APPEND_K_CACHE),
    ADDRESS(v_cache, FIG_APPEND_V_CACHE),
    ADDRESS(page_table, FIG_APPEND_TABLE),
    ADDRESS(k_scale, FIG_APPEND_K_SCALE),
    ADDRESS(v_scale, FIG_APPEND_V_SCALE),
    FROM(plan, FIG_FIELD_PLAN),
    ROW_STRIDES(k_strides, FIG_APPEND_K),
    ROW_STRIDES(v_strides, FIG_APPEND_V),
    CACHE_STRIDES(k_cache_strides, FIG_APPEND_K_CACHE),
    CACHE_STRIDES(v_cache_strides, FIG_APPEND_V_CACHE),
    STRIDE(table_stride, FIG_APPEND_TABLE, 0),
    EXTENT(k_pages, FIG_APPEND_K_CACHE),
    EXTENT(v_pages, FIG_APPEND_V_CACHE),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    ROWS(rows, FIG_APPEND_K),
    PAGE_TOKENS(page_size, FIG_APPEND_K_CACHE),
    DIM(kv_heads, FIG_APPEND_K_CACHE, 2),
    DIM(head_dim, FIG_APPEND_K_CACHE, 3),
    DIM(k_scales, FIG_APPEND_K_SCALE, 0),
    DIM(v_scales, FIG_APPEND_V_SCALE, 0),
    DTYPE(dtype, FIG_APPEND_K),
    DTYPE(kv_dtype, FIG_APPEND_K_CACHE),
    SECTION(tokens_offset, FIG_PLAN_TOKENS),
};
#undef PARAMS

#define APPEND_KV_ROW                                                                              \
    OPERANDS(append_kv_operands, FIG_APPEND_V_CACHE, FIG_APPEND_V_CACHE),                          \
        FIELDS(append_kv_fields), .appends = FIG_SLOT(FIG_APPEND_K)
#define APPEND_KV_GENERAL .shape = fig_append_kv_shape, .entry = fig_append_kv_entry

/* ---- all_reduce */

static const fig_operand all_reduce_operands[] = {
    [FIG_ALL_REDUCE_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_ALL_REDUCE_WEIGHT] = {"weight", FIG_ACCESS_READ, 1},
    [FIG_ALL_REDUCE_RESIDUAL] = {"residual", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 1},
    [FIG_ALL_REDUCE_OUT] = {"out", FIG_ACCESS_WRITE, 0, .in_place = FIG_SLOT(FIG_ALL_REDUCE_IN)},
};

#define PARAMS fig_all_reduce_params
#define ATTRIBUTES fig_rms_norm_attributes
static const fig_field all_reduce_fields[] = {
    ADDRESS(in, FIG_ALL_REDUCE_IN),
    ADDRESS(weight, FIG_ALL_REDUCE_WEIGHT),
    ADDRESS(out, FIG_ALL_REDUCE_OUT),
    ADDRESS(residual, FIG_ALL_REDUCE_RESIDUAL),
    FROM(plan, FIG_FIELD_PLAN),
    FROM(state, FIG_FIELD_RING_STATE),
    FROM(peers, FIG_FIELD_PEERS),
    ROWS(rows, FIG_ALL_REDUCE_IN),
    DIM(width, FIG_ALL_REDUCE_IN, 1),
    DTYPE(dtype, FIG_ALL_REDUCE_IN),
    ATTRIBUTE(epsilon),
    ATTRIBUTE(weight_offset),
    FROM(node, FIG_FIELD_NODE),
    FROM(early_reads, FIG_FIELD_EARLY_READS),
    FROM(ranks, FIG_FIELD_RANKS),
    FROM(routes, FIG_FIELD_ROUTES),
};
#undef ATTRIBUTES
#undef PARAMS

#define ALL_REDUCE_ROW                                                                             \
    OPERANDS(all_reduce_operands, FIG_ALL_REDUCE_OUT, FIG_ALL_REDUCE_OUT),                         \
        FIELDS(all_reduce_fields),                                                                 \
        ATTRIBUTE_BYTES(fig_rms_norm_attributes, sizeof(fig_rms_norm_attributes)),                 \
        .meets = FIG_MEETING_SUM, .early_weights = 1u << FIG_ALL_REDUCE_WEIGHT
#define ALL_REDUCE_NCCL                                                                            \
    .refuses = fig_all_reduce_nccl_refuses, .shape = fig_all_reduce_shape,                         \
    .entry = fig_all_reduce_nccl_entry, .is_captured = 1
#define ALL_REDUCE_TWO_SHOT                                                                        \
    .refuses = fig_all_reduce_two_shot_refuses, .shape = fig_all_reduce_shape,                     \
    .entry = fig_all_reduce_entry
#define ALL_REDUCE_ONE_SHOT .shape = fig_all_reduce_shape, .entry = fig_all_reduce_entry

/* ---- all_gather */

static const fig_operand all_gather_operands[] = {
    [FIG_ALL_GATHER_IN] = {"in", FIG_ACCESS_READ, 0, FIG_SHARE_COLUMNS, 1},
    [FIG_ALL_GATHER_OUT] = {"out", FIG_ACCESS_WRITE, 0},
};

#define PARAMS fig_all_gather_params
static const fig_field all_gather_fields[] = {
    ADDRESS(in, FIG_ALL_GATHER_IN),   ADDRESS(out, FIG_ALL_GATHER_OUT),
    FROM(plan, FIG_FIELD_PLAN),       FROM(state, FIG_FIELD_RING_STATE),
    FROM(peers, FIG_FIELD_PEERS),     ROWS(rows, FIG_ALL_GATHER_IN),
    DIM(width, FIG_ALL_GATHER_IN, 1), DTYPE(dtype, FIG_ALL_GATHER_IN),
    FROM(node, FIG_FIELD_NODE),       FROM(early_reads, FIG_FIELD_EARLY_READS),
    FROM(ranks, FIG_FIELD_RANKS),     FROM(routes, FIG_FIELD_ROUTES),
};
#undef PARAMS

#define ALL_GATHER_ROW                                                                             \
    OPERANDS(all_gather_operands, FIG_ALL_GATHER_OUT, FIG_ALL_GATHER_OUT),                         \
        FIELDS(all_gather_fields), .meets = FIG_MEETING_GATHER
#define ALL_GATHER_NCCL                                                                            \
    .refuses = fig_all_gather_nccl_refuses, .shape = fig_all_gather_shape,                         \
    .entry = fig_all_gather_nccl_entry, .is_captured = 1
#define ALL_GATHER_ONE_SHOT .shape = fig_all_gather_shape

#endif
