/* rows.h: of each operation, its operands in the order of its nodes, and where each field of its
 * params comes from.
 *
 * Read by table.c alone, whose rows these are. A field's place, size and type come from the struct
 * itself. Invariant: the fields of an operation cover its params exactly once, in order. */
#ifndef FIG_KERNELS_ROWS_H
#define FIG_KERNELS_ROWS_H

#include "kernels/table.h"

/* clang-format off */
/* What C itself knows of a field. */
#define TYPE(field)                                                                                \
    _Generic(((PARAMS *)0)->field,                                                                 \
             int64_t: FIG_TYPE_I64,                                                                \
             int32_t: FIG_TYPE_I32,                                                                \
             uint32_t: FIG_TYPE_U32,                                                               \
             float: FIG_TYPE_F32,                                                                  \
             fig_split_shape: FIG_TYPE_SPLIT,                                                      \
             fig_plan_shape: FIG_TYPE_PLAN_SHAPE,                                                  \
             fig_rope_angles: FIG_TYPE_ANGLES,                                                     \
             fig_tensor_map: FIG_TYPE_TENSOR_MAP,                                                  \
             default: FIG_TYPE_ADDRESS)
#define FIELD(field, kind, operand, item, divisor)                                                 \
    {#field, offsetof(PARAMS, field), sizeof((PARAMS *)0)->field,                                  \
     kind, TYPE(field), operand, item, divisor}
/* clang-format on */

/* Of an operand. */
#define ADDRESS(field, operand) FIELD(field, FIG_FIELD_ADDRESS, operand, 0, 1)
#define STRIDE(field, operand, dim) FIELD(field, FIG_FIELD_STRIDE, operand, dim, 1)
#define EXTENT(field, operand) FIELD(field, FIG_FIELD_EXTENT, operand, 0, 1)
#define DIM(field, operand, dim) FIELD(field, FIG_FIELD_DIM, operand, dim, 1)
#define PAGE_TOKENS(field, operand) FIELD(field, FIG_FIELD_PAGE_TOKENS, operand, 1, 1)
#define HALF_DIM(field, operand, dim) FIELD(field, FIG_FIELD_DIM, operand, dim, 2)
#define DTYPE(field, operand) FIELD(field, FIG_FIELD_DTYPE, operand, 0, 1)
#define ROWS(field, operand)                                                                       \
    FIELD(field.row_limit, FIG_FIELD_ROWS, operand, 0, 1),                                         \
        FIELD(field.multiple, FIG_FIELD_MULTIPLE, operand, 0, 1)
#define ROW_STRIDES(field, operand) STRIDE(field.row, operand, 0), STRIDE(field.head, operand, 1)
#define CACHE_STRIDES(field, operand)                                                              \
    STRIDE(field.page, operand, 0), STRIDE(field.token, operand, 1), STRIDE(field.head, operand, 2)
/* Of the node: the attribute of the same name. */
#define ATTRIBUTE(field) FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(ATTRIBUTES, field), 1)
/* The one of fig_decode_attention_attributes, by its name there. */
#define ROPE_ATTRIBUTE(field, name)                                                                \
    FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(fig_decode_attention_attributes, rope.name), 1)
/* Of the bucket. */
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

/* ---- plan */

static const fig_operand plan_operands[] = {
    [FIG_PLAN_IN_LENGTHS] = {"lengths", FIG_ACCESS_READ, 0},
    [FIG_PLAN_IN_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
};

#define PARAMS fig_plan_params
static const fig_field plan_fields[] = {
    ADDRESS(lengths, FIG_PLAN_IN_LENGTHS),
    ADDRESS(positions, FIG_PLAN_IN_POSITIONS),
    FROM(plan, FIG_FIELD_PLAN),
    FROM(words, FIG_FIELD_RING_WORDS),
    FROM(zeros, FIG_FIELD_RUN),
    FROM(shape, FIG_FIELD_PLAN_SHAPE),
    FROM(kv_limit, FIG_FIELD_KV_LIMIT),
    FROM(rows, FIG_FIELD_RUN),
    FROM(length, FIG_FIELD_RUN),
    FROM(zero_pieces, FIG_FIELD_RUN),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef PARAMS

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
    FROM(haste, FIG_FIELD_HASTE),
};
#undef ATTRIBUTES
#undef PARAMS

/* ---- rms_norm */

static const fig_operand rms_norm_operands[] = {
    [FIG_RMS_NORM_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_RMS_NORM_WEIGHT] = {"weight", FIG_ACCESS_READ, 0},
    [FIG_RMS_NORM_RESIDUAL] = {"residual", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 1},
    [FIG_RMS_NORM_OUT] = {"out", FIG_ACCESS_WRITE, 0},
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
    [FIG_ROPE_Q_OUT] = {"q_out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_ROPE_K_OUT] = {"k_out", FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS, 1},
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

/* ---- attention */

static const fig_operand attention_operands[] = {
    [FIG_ATTENTION_Q] = {"q", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},
    [FIG_ATTENTION_V_CACHE] = {"v_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},
    [FIG_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_ATTENTION_K_SCALE] = {"k_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_ATTENTION_V_SCALE] = {"v_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_ATTENTION_SINKS] = {"sinks", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_ATTENTION_ALIBI] = {"alibi", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
};

/* The attributes' window is the split's. */
#define PARAMS fig_attention_params
#define ATTRIBUTES fig_attention_attributes
static const fig_field attention_fields[] = {
    FIELD(k_map, FIG_FIELD_TENSOR_MAP, 0, FIG_ATTENTION_K_MAP, 1),
    FIELD(v_map, FIG_FIELD_TENSOR_MAP, 0, FIG_ATTENTION_V_MAP, 1),
    ADDRESS(q, FIG_ATTENTION_Q),
    ADDRESS(k_cache, FIG_ATTENTION_K_CACHE),
    ADDRESS(v_cache, FIG_ATTENTION_V_CACHE),
    ADDRESS(out, FIG_ATTENTION_OUT),
    ADDRESS(lse, FIG_ATTENTION_LSE),
    ADDRESS(page_table, FIG_ATTENTION_TABLE),
    ADDRESS(k_scale, FIG_ATTENTION_K_SCALE),
    ADDRESS(v_scale, FIG_ATTENTION_V_SCALE),
    ADDRESS(sinks, FIG_ATTENTION_SINKS),
    ADDRESS(alibi, FIG_ATTENTION_ALIBI),
    FROM(plan, FIG_FIELD_PLAN),
    WORKSPACE(partials, FIG_WORKSPACE_PARTIALS),
    WORKSPACE(sums, FIG_WORKSPACE_SUMS),
    WORKSPACE(counters, FIG_WORKSPACE_COUNTERS),
    ROW_STRIDES(q_strides, FIG_ATTENTION_Q),
    ROW_STRIDES(out_strides, FIG_ATTENTION_OUT),
    CACHE_STRIDES(k_cache_strides, FIG_ATTENTION_K_CACHE),
    CACHE_STRIDES(v_cache_strides, FIG_ATTENTION_V_CACHE),
    STRIDE(lse_stride, FIG_ATTENTION_LSE, 0),
    STRIDE(table_stride, FIG_ATTENTION_TABLE, 0),
    EXTENT(k_pages, FIG_ATTENTION_K_CACHE),
    EXTENT(v_pages, FIG_ATTENTION_V_CACHE),
    FROM(split, FIG_FIELD_SPLIT),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    SECTION(prefix_offset, FIG_PLAN_PREFIX),
    SECTION(starts_offset, FIG_PLAN_STARTS),
    DIM(q_heads, FIG_ATTENTION_Q, 1),
    DIM(kv_heads, FIG_ATTENTION_K_CACHE, 2),
    DIM(head_dim, FIG_ATTENTION_Q, 2),
    FROM(heads_per_worker, FIG_FIELD_HEADS),
    PAGE_TOKENS(page_size, FIG_ATTENTION_K_CACHE),
    DTYPE(dtype, FIG_ATTENTION_Q),
    DTYPE(kv_dtype, FIG_ATTENTION_K_CACHE),
    DIM(k_scales, FIG_ATTENTION_K_SCALE, 0),
    DIM(v_scales, FIG_ATTENTION_V_SCALE, 0),
    ATTRIBUTE(sm_scale),
    ATTRIBUTE(soft_cap),
    FROM(flags, FIG_FIELD_HASTE),
    ADDRESS(turn.k, FIG_DECODE_ATTENTION_K),
    ADDRESS(turn.v, FIG_DECODE_ATTENTION_V),
    ADDRESS(turn.q_norm, FIG_DECODE_ATTENTION_Q_NORM),
    ADDRESS(turn.k_norm, FIG_DECODE_ATTENTION_K_NORM),
    ADDRESS(turn.positions, FIG_DECODE_ATTENTION_POSITIONS),
    ADDRESS(turn.cos_sin, FIG_DECODE_ATTENTION_COS_SIN),
    ROW_STRIDES(turn.k_strides, FIG_DECODE_ATTENTION_K),
    ROW_STRIDES(turn.v_strides, FIG_DECODE_ATTENTION_V),
    ROPE_ATTRIBUTE(turn.rope.interleaved, rope.interleaved),
    ROPE_ATTRIBUTE(turn.rope.rotary_dim, rope.rotary_dim),
    ROPE_ATTRIBUTE(turn.rope.theta, rope.theta),
    ROPE_ATTRIBUTE(turn.rope.scale, rope.scale),
    ROPE_ATTRIBUTE(turn.rope.llama3_factor, rope.llama3_factor),
    ROPE_ATTRIBUTE(turn.rope.llama3_low, rope.llama3_low),
    ROPE_ATTRIBUTE(turn.rope.llama3_high, rope.llama3_high),
    ROPE_ATTRIBUTE(turn.rope.llama3_context, rope.llama3_context),
    ROPE_ATTRIBUTE(turn.norm_epsilon, norm_epsilon),
    SECTION(turn.positions_offset, FIG_PLAN_POSITIONS),
    SECTION(turn.tokens_offset, FIG_PLAN_TOKENS),
    FROM(turn.is_on, FIG_FIELD_ZERO),
    FIELD(turn.angles, FIG_FIELD_ANGLES, 0, offsetof(fig_decode_attention_attributes, rope), 1),
};
#undef ATTRIBUTES
#undef PARAMS

/* ---- decode_attention: what comes before its launch of attention */

static const fig_operand decode_attention_operands[] = {
    [FIG_ATTENTION_Q] = {"q", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS,
                               2},
    [FIG_ATTENTION_V_CACHE] = {"v_cache", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS,
                               2},
    [FIG_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_ATTENTION_K_SCALE] = {"k_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_ATTENTION_V_SCALE] = {"v_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},
    [FIG_ATTENTION_SINKS] = {"sinks", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_ATTENTION_ALIBI] = {"alibi", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
    [FIG_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
    [FIG_DECODE_ATTENTION_K] = {"k", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0, FIG_SHARE_KV_HEADS, 1},
    [FIG_DECODE_ATTENTION_V] = {"v", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 1},
    [FIG_DECODE_ATTENTION_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
    [FIG_DECODE_ATTENTION_COS_SIN] = {"cos_sin", FIG_ACCESS_READ, 1},
    [FIG_DECODE_ATTENTION_Q_NORM] = {"q_norm", FIG_ACCESS_READ, 1},
    [FIG_DECODE_ATTENTION_K_NORM] = {"k_norm", FIG_ACCESS_READ, 1},
};

/* The attributes of attention are its own launch's. */
#define PARAMS fig_decode_attention_params
#define ATTRIBUTES fig_decode_attention_attributes
static const fig_field decode_attention_fields[] = {
    ADDRESS(q, FIG_ATTENTION_Q),
    ADDRESS(k, FIG_DECODE_ATTENTION_K),
    ADDRESS(v, FIG_DECODE_ATTENTION_V),
    ADDRESS(k_cache, FIG_ATTENTION_K_CACHE),
    ADDRESS(v_cache, FIG_ATTENTION_V_CACHE),
    ADDRESS(page_table, FIG_ATTENTION_TABLE),
    ADDRESS(k_scale, FIG_ATTENTION_K_SCALE),
    ADDRESS(v_scale, FIG_ATTENTION_V_SCALE),
    ADDRESS(positions, FIG_DECODE_ATTENTION_POSITIONS),
    ADDRESS(cos_sin, FIG_DECODE_ATTENTION_COS_SIN),
    ADDRESS(q_norm, FIG_DECODE_ATTENTION_Q_NORM),
    ADDRESS(k_norm, FIG_DECODE_ATTENTION_K_NORM),
    FROM(plan, FIG_FIELD_PLAN),
    ROW_STRIDES(q_strides, FIG_ATTENTION_Q),
    ROW_STRIDES(k_strides, FIG_DECODE_ATTENTION_K),
    ROW_STRIDES(v_strides, FIG_DECODE_ATTENTION_V),
    CACHE_STRIDES(k_cache_strides, FIG_ATTENTION_K_CACHE),
    CACHE_STRIDES(v_cache_strides, FIG_ATTENTION_V_CACHE),
    STRIDE(cos_sin_stride, FIG_DECODE_ATTENTION_COS_SIN, 0),
    STRIDE(table_stride, FIG_ATTENTION_TABLE, 0),
    EXTENT(k_pages, FIG_ATTENTION_K_CACHE),
    EXTENT(v_pages, FIG_ATTENTION_V_CACHE),
    ROPE_ATTRIBUTE(rope.interleaved, rope.interleaved),
    ROPE_ATTRIBUTE(rope.rotary_dim, rope.rotary_dim),
    ROPE_ATTRIBUTE(rope.theta, rope.theta),
    ROPE_ATTRIBUTE(rope.scale, rope.scale),
    ROPE_ATTRIBUTE(rope.llama3_factor, rope.llama3_factor),
    ROPE_ATTRIBUTE(rope.llama3_low, rope.llama3_low),
    ROPE_ATTRIBUTE(rope.llama3_high, rope.llama3_high),
    ROPE_ATTRIBUTE(rope.llama3_context, rope.llama3_context),
    ROPE_ATTRIBUTE(norm_epsilon, norm_epsilon),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    SECTION(positions_offset, FIG_PLAN_POSITIONS),
    ROWS(rows, FIG_ATTENTION_Q),
    DIM(cos_sin_rows, FIG_DECODE_ATTENTION_COS_SIN, 0),
    PAGE_TOKENS(page_size, FIG_ATTENTION_K_CACHE),
    DIM(q_heads, FIG_ATTENTION_Q, 1),
    DIM(kv_heads, FIG_ATTENTION_K_CACHE, 2),
    DIM(head_dim, FIG_ATTENTION_Q, 2),
    DIM(k_scales, FIG_ATTENTION_K_SCALE, 0),
    DIM(v_scales, FIG_ATTENTION_V_SCALE, 0),
    DTYPE(dtype, FIG_ATTENTION_Q),
    DTYPE(kv_dtype, FIG_ATTENTION_K_CACHE),
    DTYPE(positions_dtype, FIG_DECODE_ATTENTION_POSITIONS),
    SECTION(tokens_offset, FIG_PLAN_TOKENS),
    FROM(haste, FIG_FIELD_HASTE),
    FIELD(angles, FIG_FIELD_ANGLES, 0, offsetof(fig_decode_attention_attributes, rope), 1),
};
#undef ATTRIBUTES
#undef PARAMS

/* ---- merge_states */

static const fig_operand merge_states_operands[] = {
    [FIG_MERGE_OUT_A] = {"out_a", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_MERGE_LSE_A] = {"lse_a", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_MERGE_OUT_B] = {"out_b", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_MERGE_LSE_B] = {"lse_b", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_MERGE_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_MERGE_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
};

#define PARAMS fig_merge_states_params
static const fig_field merge_states_fields[] = {
    ADDRESS(out_a, FIG_MERGE_OUT_A),
    ADDRESS(out_b, FIG_MERGE_OUT_B),
    ADDRESS(lse_a, FIG_MERGE_LSE_A),
    ADDRESS(lse_b, FIG_MERGE_LSE_B),
    ADDRESS(out, FIG_MERGE_OUT),
    ADDRESS(lse, FIG_MERGE_LSE),
    FROM(plan, FIG_FIELD_PLAN),
    ROW_STRIDES(out_a_strides, FIG_MERGE_OUT_A),
    ROW_STRIDES(out_b_strides, FIG_MERGE_OUT_B),
    ROW_STRIDES(out_strides, FIG_MERGE_OUT),
    STRIDE(lse_a_stride, FIG_MERGE_LSE_A, 0),
    STRIDE(lse_b_stride, FIG_MERGE_LSE_B, 0),
    STRIDE(lse_stride, FIG_MERGE_LSE, 0),
    ROWS(rows, FIG_MERGE_OUT_A),
    DIM(heads, FIG_MERGE_OUT_A, 1),
    DIM(head_dim, FIG_MERGE_OUT_A, 2),
    DTYPE(dtype, FIG_MERGE_OUT_A),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef PARAMS

/* ---- all_reduce */

static const fig_operand all_reduce_operands[] = {
    [FIG_ALL_REDUCE_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_ALL_REDUCE_WEIGHT] = {"weight", FIG_ACCESS_READ, 1},
    [FIG_ALL_REDUCE_RESIDUAL] = {"residual", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 1},
    [FIG_ALL_REDUCE_OUT] = {"out", FIG_ACCESS_WRITE, 0},
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
    FROM(haste, FIG_FIELD_HASTE),
    FROM(ranks, FIG_FIELD_RANKS),
    FROM(routes, FIG_FIELD_ROUTES),
};
#undef ATTRIBUTES
#undef PARAMS

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
    FROM(node, FIG_FIELD_NODE),       FROM(haste, FIG_FIELD_HASTE),
    FROM(ranks, FIG_FIELD_RANKS),     FROM(routes, FIG_FIELD_ROUTES),
};
#undef PARAMS

/* ---- whole_attention */

static const fig_operand whole_attention_operands[] = {
    [FIG_WHOLE_ATTENTION_Q] = {"q", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_WHOLE_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},
    [FIG_WHOLE_ATTENTION_V_CACHE] = {"v_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},
    [FIG_WHOLE_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_WHOLE_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
};

#define PARAMS fig_whole_attention_params
static const fig_field whole_attention_fields[] = {
    ADDRESS(q, FIG_WHOLE_ATTENTION_Q),
    ADDRESS(k_cache, FIG_WHOLE_ATTENTION_K_CACHE),
    ADDRESS(v_cache, FIG_WHOLE_ATTENTION_V_CACHE),
    ADDRESS(out, FIG_WHOLE_ATTENTION_OUT),
    ADDRESS(lse, FIG_WHOLE_ATTENTION_LSE),
    ROW_STRIDES(q_strides, FIG_WHOLE_ATTENTION_Q),
    ROW_STRIDES(out_strides, FIG_WHOLE_ATTENTION_OUT),
    CACHE_STRIDES(k_cache_strides, FIG_WHOLE_ATTENTION_K_CACHE),
    CACHE_STRIDES(v_cache_strides, FIG_WHOLE_ATTENTION_V_CACHE),
    STRIDE(lse_stride, FIG_WHOLE_ATTENTION_LSE, 0),
    FROM(rows, FIG_FIELD_RUN),
    FROM(length, FIG_FIELD_RUN),
    DIM(q_heads, FIG_WHOLE_ATTENTION_Q, 1),
    DIM(kv_heads, FIG_WHOLE_ATTENTION_K_CACHE, 2),
    DIM(head_dim, FIG_WHOLE_ATTENTION_Q, 2),
    DTYPE(dtype, FIG_WHOLE_ATTENTION_Q),
    FROM(scale, FIG_FIELD_RUN),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef PARAMS

#endif
