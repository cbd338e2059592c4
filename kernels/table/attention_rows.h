/* attention_rows.h: the kernel table's rows of attention and its companion operations.
 *
 * rows.h has the other operations. Only table.c reads this file. Invariant: that of rows.h. */
#ifndef FIG_KERNELS_ATTENTION_ROWS_H
#define FIG_KERNELS_ATTENTION_ROWS_H

#include "kernels/table/rows.h"

/* ---- attention */

/* The operands of attention, which attention with a score has in the same order. */
#define ATTENTION_OPERANDS                                                                         \
    [FIG_ATTENTION_Q] = {"q", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},                           \
    [FIG_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},              \
    [FIG_ATTENTION_V_CACHE] = {"v_cache", FIG_ACCESS_READ, 0, FIG_SHARE_KV_HEADS, 2},              \
    [FIG_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},                                    \
    [FIG_ATTENTION_K_SCALE] = {"k_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},              \
    [FIG_ATTENTION_V_SCALE] = {"v_scale", FIG_ACCESS_READ, 1, FIG_SHARE_KV_HEADS, 0},              \
    [FIG_ATTENTION_SINKS] = {"sinks", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},                   \
    [FIG_ATTENTION_ALIBI] = {"alibi", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},                   \
    [FIG_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},                      \
    [FIG_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1}
static const fig_operand attention_operands[] = {ATTENTION_OPERANDS};

/* Takes a field from the named term of the RoPE that a launch of attention applies. */
#define TURN_ATTRIBUTE(field, name)                                                                \
    FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(fig_attention_launch_attributes, turn.name), 1)

/* The window comes from the split, not from the attributes. */
#define PARAMS fig_attention_params
#define ATTRIBUTES fig_attention_attributes
/* The fields of a launch with or without RoPE and append. */
#define ATTENTION_FIELDS                                                                           \
    FIELD(k_map, FIG_FIELD_TENSOR_MAP, 0, FIG_ATTENTION_K_MAP, 1),                                 \
        FIELD(v_map, FIG_FIELD_TENSOR_MAP, 0, FIG_ATTENTION_V_MAP, 1),                             \
        ADDRESS(q, FIG_ATTENTION_Q), ADDRESS(k_cache, FIG_ATTENTION_K_CACHE),                      \
        ADDRESS(v_cache, FIG_ATTENTION_V_CACHE), ADDRESS(out, FIG_ATTENTION_OUT),                  \
        ADDRESS(lse, FIG_ATTENTION_LSE), ADDRESS(page_table, FIG_ATTENTION_TABLE),                 \
        ADDRESS(k_scale, FIG_ATTENTION_K_SCALE), ADDRESS(v_scale, FIG_ATTENTION_V_SCALE),          \
        ADDRESS(sinks, FIG_ATTENTION_SINKS), ADDRESS(alibi, FIG_ATTENTION_ALIBI),                  \
        FROM(plan, FIG_FIELD_PLAN), WORKSPACE(partials, FIG_WORKSPACE_PARTIALS),                   \
        WORKSPACE(sums, FIG_WORKSPACE_SUMS), WORKSPACE(counters, FIG_WORKSPACE_COUNTERS),          \
        ROW_STRIDES(q_strides, FIG_ATTENTION_Q), ROW_STRIDES(out_strides, FIG_ATTENTION_OUT),      \
        CACHE_STRIDES(k_cache_strides, FIG_ATTENTION_K_CACHE),                                     \
        CACHE_STRIDES(v_cache_strides, FIG_ATTENTION_V_CACHE),                                     \
        STRIDE(lse_stride, FIG_ATTENTION_LSE, 0), STRIDE(table_stride, FIG_ATTENTION_TABLE, 0),    \
        EXTENT(k_pages, FIG_ATTENTION_K_CACHE), EXTENT(v_pages, FIG_ATTENTION_V_CACHE),            \
        FROM(split, FIG_FIELD_SPLIT), SECTION(lengths_offset, FIG_PLAN_LENGTHS),                   \
        SECTION(sequences_offset, FIG_PLAN_SEQUENCES), SECTION(prefix_offset, FIG_PLAN_PREFIX),    \
        SECTION(starts_offset, FIG_PLAN_STARTS), DIM(q_heads, FIG_ATTENTION_Q, 1),                 \
        DIM(kv_heads, FIG_ATTENTION_K_CACHE, 2), DIM(head_dim, FIG_ATTENTION_Q, 2),                \
        FROM(heads_per_worker, FIG_FIELD_HEADS), PAGE_TOKENS(page_size, FIG_ATTENTION_K_CACHE),    \
        DTYPE(dtype, FIG_ATTENTION_Q), DTYPE(kv_dtype, FIG_ATTENTION_K_CACHE),                     \
        DIM(k_scales, FIG_ATTENTION_K_SCALE, 0), DIM(v_scales, FIG_ATTENTION_V_SCALE, 0),          \
        ATTRIBUTE(sm_scale), ATTRIBUTE(soft_cap), FROM(flags, FIG_FIELD_EARLY_READS),              \
        FIELD(queries_offset, FIG_FIELD_QUERIES, FIG_ATTENTION_Q, 0, 1),                           \
        FIELD(is_packed, FIG_FIELD_IS_PACKED, FIG_ATTENTION_Q, 0, 1)
/* They come last in the params. */
#define ATTENTION_SLOT_FIELDS                                                                      \
    WORKSPACE(slots.partials, FIG_WORKSPACE_STRIP_PARTIALS),                                       \
        WORKSPACE(slots.sums, FIG_WORKSPACE_STRIP_SUMS),                                           \
        WORKSPACE(slots.counters, FIG_WORKSPACE_STRIP_COUNTERS),                                   \
        SECTION(slots.tails_offset, FIG_PLAN_TAILS), {                                             \
        "slots.reserved", offsetof(fig_attention_params, slots.reserved),                          \
            sizeof((fig_attention_slots){0}.reserved), FIG_FIELD_ZERO, FIG_TYPE_U32, 0, 0, 1       \
    }
static const fig_field attention_fields[] = {
    ATTENTION_FIELDS,
    ADDRESS(turn.k, FIG_ATTENTION_TURN_K),
    ADDRESS(turn.v, FIG_ATTENTION_TURN_V),
    ADDRESS(turn.q_norm, FIG_ATTENTION_TURN_Q_NORM),
    ADDRESS(turn.k_norm, FIG_ATTENTION_TURN_K_NORM),
    ADDRESS(turn.positions, FIG_ATTENTION_TURN_POSITIONS),
    ADDRESS(turn.cos_sin, FIG_ATTENTION_TURN_COS_SIN),
    ROW_STRIDES(turn.k_strides, FIG_ATTENTION_TURN_K),
    ROW_STRIDES(turn.v_strides, FIG_ATTENTION_TURN_V),
    TURN_ATTRIBUTE(turn.rope.interleaved, rope.interleaved),
    TURN_ATTRIBUTE(turn.rope.rotary_dim, rope.rotary_dim),
    TURN_ATTRIBUTE(turn.rope.theta, rope.theta),
    TURN_ATTRIBUTE(turn.rope.scale, rope.scale),
    TURN_ATTRIBUTE(turn.rope.llama3_factor, rope.llama3_factor),
    TURN_ATTRIBUTE(turn.rope.llama3_low, rope.llama3_low),
    TURN_ATTRIBUTE(turn.rope.llama3_high, rope.llama3_high),
    TURN_ATTRIBUTE(turn.rope.llama3_context, rope.llama3_context),
    TURN_ATTRIBUTE(turn.norm_epsilon, norm_epsilon),
    SECTION(turn.positions_offset, FIG_PLAN_POSITIONS),
    SECTION(turn.tokens_offset, FIG_PLAN_TOKENS),
    FROM(turn.is_on, FIG_FIELD_ZERO),
    FIELD(turn.angles, FIG_FIELD_ANGLES, 0, offsetof(fig_attention_launch_attributes, turn), 1),
    ATTENTION_SLOT_FIELDS,
};
#undef ATTRIBUTES
#undef PARAMS

static const fig_split_row attention_split = {.q = FIG_ATTENTION_Q,
                                              .k_cache = FIG_ATTENTION_K_CACHE,
                                              .v_cache = FIG_ATTENTION_V_CACHE,
                                              .table = FIG_ATTENTION_TABLE,
                                              .out = FIG_ATTENTION_OUT,
                                              .window = offsetof(fig_attention_attributes, window)};

static const fig_whole attention_whole = {FIG_OP_WHOLE_ATTENTION, fig_whole_attention_make};

/* An attention node applies no RoPE. */
static const uint8_t attention_reads[FIG_ATTENTION_SLOT_COUNT] = {
    [FIG_ATTENTION_Q] = FIG_SLOT(FIG_ATTENTION_Q),
    [FIG_ATTENTION_K_CACHE] = FIG_SLOT(FIG_ATTENTION_K_CACHE),
    [FIG_ATTENTION_V_CACHE] = FIG_SLOT(FIG_ATTENTION_V_CACHE),
    [FIG_ATTENTION_TABLE] = FIG_SLOT(FIG_ATTENTION_TABLE),
    [FIG_ATTENTION_K_SCALE] = FIG_SLOT(FIG_ATTENTION_K_SCALE),
    [FIG_ATTENTION_V_SCALE] = FIG_SLOT(FIG_ATTENTION_V_SCALE),
    [FIG_ATTENTION_SINKS] = FIG_SLOT(FIG_ATTENTION_SINKS),
    [FIG_ATTENTION_ALIBI] = FIG_SLOT(FIG_ATTENTION_ALIBI),
    [FIG_ATTENTION_OUT] = FIG_SLOT(FIG_ATTENTION_OUT),
    [FIG_ATTENTION_LSE] = FIG_SLOT(FIG_ATTENTION_LSE),
};
static const fig_attribute_range attention_ranges[] = {
    {offsetof(fig_attention_launch_attributes, attention), 0, sizeof(fig_attention_attributes)}};

#define ATTENTION_ROW                                                                              \
    OPERANDS(attention_operands, FIG_ATTENTION_OUT, FIG_ATTENTION_LSE), FIELDS(attention_fields),  \
        ATTRIBUTE_BYTES(fig_attention_attributes, sizeof(fig_attention_attributes)),               \
        .split = &attention_split, .whole = &attention_whole, .cut = fig_attention_family_cut,     \
        .own = READS(attention_reads, attention_ranges), .beside = FIG_OP_PROMPT_ATTENTION
#define ATTENTION_SHORT_TURN                                                                       \
    .refuses = fig_attention_family_short_turn_refuses, .shape = fig_attention_family_short_shape, \
    .shared = fig_attention_family_short_shared, .entry = fig_attention_family_short_turn_entry,   \
    .finish = fig_attention_family_turn_finish, .does_all = 1
#define ATTENTION_TURN                                                                             \
    .refuses = fig_attention_family_turn_refuses, .shape = fig_attention_family_bulk_shape,        \
    .shared = fig_attention_family_turn_shared, .entry = fig_attention_family_turn_entry,          \
    .map = fig_attention_family_bulk_map, .finish = fig_attention_family_turn_finish,              \
    .does_all = 1
#define ATTENTION_SHORT                                                                            \
    .refuses = fig_attention_family_short_refuses, .shape = fig_attention_family_short_shape,      \
    .shared = fig_attention_family_short_shared, .entry = fig_attention_family_short_entry
#define ATTENTION_MANY                                                                             \
    .refuses = fig_attention_family_many_refuses, .shape = fig_attention_family_many_shape,        \
    .shared = fig_attention_family_many_shared, .entry = fig_attention_family_many_entry,          \
    .map = fig_attention_family_many_map
#define ATTENTION_PACKED                                                                           \
    .refuses = fig_attention_family_packed_refuses, .shape = fig_attention_family_bulk_shape,      \
    .shared = fig_attention_family_bulk_shared, .entry = fig_attention_family_packed_entry,        \
    .map = fig_attention_family_bulk_map, .serves_tails = 1
#define ATTENTION_BULK                                                                             \
    .refuses = fig_attention_family_bulk_refuses, .shape = fig_attention_family_bulk_shape,        \
    .shared = fig_attention_family_bulk_shared, .entry = fig_attention_family_bulk_entry,          \
    .map = fig_attention_family_bulk_map
#define ATTENTION_COPY                                                                             \
    .refuses = fig_attention_family_copy_refuses, .shape = fig_attention_family_copy_shape,        \
    .shared = fig_attention_family_copy_shared, .entry = fig_attention_family_copy_entry
#define ATTENTION_SCALAR .shape = fig_attention_shape

/* ---- decode_attention: the first launch of the node; the second is a launch of attention */

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

/* The node's attention attributes belong to its launch of attention. */
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
    FROM(early_reads, FIG_FIELD_EARLY_READS),
    FIELD(angles, FIG_FIELD_ANGLES, 0, offsetof(fig_decode_attention_attributes, rope), 1),
};
#undef ATTRIBUTES
#undef PARAMS

/* The operands of the node that its launch of attention reads. */
static const uint8_t decode_attention_rest[FIG_ATTENTION_SLOT_COUNT] = {
    [FIG_ATTENTION_Q] = FIG_SLOT(FIG_ATTENTION_Q),
    [FIG_ATTENTION_K_CACHE] = FIG_SLOT(FIG_ATTENTION_K_CACHE),
    [FIG_ATTENTION_V_CACHE] = FIG_SLOT(FIG_ATTENTION_V_CACHE),
    [FIG_ATTENTION_TABLE] = FIG_SLOT(FIG_ATTENTION_TABLE),
    [FIG_ATTENTION_K_SCALE] = FIG_SLOT(FIG_ATTENTION_K_SCALE),
    [FIG_ATTENTION_V_SCALE] = FIG_SLOT(FIG_ATTENTION_V_SCALE),
    [FIG_ATTENTION_SINKS] = FIG_SLOT(FIG_ATTENTION_SINKS),
    [FIG_ATTENTION_ALIBI] = FIG_SLOT(FIG_ATTENTION_ALIBI),
    [FIG_ATTENTION_OUT] = FIG_SLOT(FIG_ATTENTION_OUT),
    [FIG_ATTENTION_LSE] = FIG_SLOT(FIG_ATTENTION_LSE),
    [FIG_ATTENTION_TURN_K] = FIG_SLOT(FIG_DECODE_ATTENTION_K),
    [FIG_ATTENTION_TURN_V] = FIG_SLOT(FIG_DECODE_ATTENTION_V),
    [FIG_ATTENTION_TURN_POSITIONS] = FIG_SLOT(FIG_DECODE_ATTENTION_POSITIONS),
    [FIG_ATTENTION_TURN_COS_SIN] = FIG_SLOT(FIG_DECODE_ATTENTION_COS_SIN),
    [FIG_ATTENTION_TURN_Q_NORM] = FIG_SLOT(FIG_DECODE_ATTENTION_Q_NORM),
    [FIG_ATTENTION_TURN_K_NORM] = FIG_SLOT(FIG_DECODE_ATTENTION_K_NORM),
};
#define RANGE(to, from)                                                                            \
    {                                                                                              \
        offsetof(fig_attention_launch_attributes, to),                                             \
            offsetof(fig_decode_attention_attributes, from),                                       \
            sizeof(((fig_decode_attention_attributes *)0)->from)                                   \
    }
static const fig_attribute_range decode_attention_ranges[] = {
    RANGE(attention, attention), RANGE(turn, rope), RANGE(table, table)};

static const fig_split_row decode_attention_split = {
    .q = FIG_ATTENTION_Q,
    .k_cache = FIG_ATTENTION_K_CACHE,
    .v_cache = FIG_ATTENTION_V_CACHE,
    .table = FIG_ATTENTION_TABLE,
    .out = FIG_ATTENTION_OUT,
    .window = offsetof(fig_decode_attention_attributes, attention.window)};

#define DECODE_ATTENTION_ROW                                                                       \
    OPERANDS(decode_attention_operands, FIG_DECODE_ATTENTION_V, FIG_DECODE_ATTENTION_K_NORM),      \
        FIELDS(decode_attention_fields),                                                           \
        ATTRIBUTE_BYTES(fig_decode_attention_attributes,                                           \
                        offsetof(fig_decode_attention_attributes, table)),                         \
        .split = &decode_attention_split, .then = FIG_OP_ATTENTION,                                \
        .beside = FIG_OP_PROMPT_ATTENTION, .appends = FIG_SLOT(FIG_DECODE_ATTENTION_K),            \
        .early_weights = 1u << FIG_DECODE_ATTENTION_Q_NORM | 1u << FIG_DECODE_ATTENTION_K_NORM,    \
        .rest = READS(decode_attention_rest, decode_attention_ranges)
#define DECODE_ATTENTION_STILL                                                                     \
    .refuses = fig_decode_attention_still_refuses, .shape = fig_decode_attention_still_shape,      \
    .entry = fig_decode_attention_still_entry
#define DECODE_ATTENTION_LONG                                                                      \
    .refuses = fig_decode_attention_long_refuses, .shape = fig_decode_attention_long_shape,        \
    .entry = fig_decode_attention_long_entry
#define DECODE_ATTENTION_GENERAL                                                                   \
    .shape = fig_decode_attention_shape, .entry = fig_decode_attention_entry

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

#define MERGE_STATES_ROW                                                                           \
    OPERANDS(merge_states_operands, FIG_MERGE_OUT, FIG_MERGE_LSE), FIELDS(merge_states_fields)
#define MERGE_STATES_GENERAL .shape = fig_merge_states_shape

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

#define WHOLE_ATTENTION_ROW                                                                        \
    OPERANDS(whole_attention_operands, FIG_WHOLE_ATTENTION_OUT, FIG_WHOLE_ATTENTION_LSE),          \
        FIELDS(whole_attention_fields)
#define WHOLE_ATTENTION_GENERAL                                                                    \
    .shape = fig_whole_attention_shape, .entry = fig_whole_attention_entry

/* ---- prompt_attention: launched by a run, which fills in its numbers, and beside the attention of
 * programs whose rows may be chunks */

#define STRIPS(field, number) FIELD(field, FIG_FIELD_STRIPS, 0, number, 1)
#define PARAMS fig_prompt_attention_params
#define ATTRIBUTES fig_attention_attributes
/* The fields of a launch with or without a score. */
#define PROMPT_ATTENTION_FIELDS                                                                    \
    FIELD(k_map, FIG_FIELD_TENSOR_MAP, 0, FIG_PROMPT_ATTENTION_K_MAP, 1),                          \
        FIELD(v_map, FIG_FIELD_TENSOR_MAP, 0, FIG_PROMPT_ATTENTION_V_MAP, 1),                      \
        FIELD(q_map, FIG_FIELD_TENSOR_MAP, 0, FIG_PROMPT_ATTENTION_Q_MAP, 1),                      \
        ADDRESS(q, FIG_ATTENTION_Q), ADDRESS(k_cache, FIG_ATTENTION_K_CACHE),                      \
        ADDRESS(v_cache, FIG_ATTENTION_V_CACHE), ADDRESS(out, FIG_ATTENTION_OUT),                  \
        ADDRESS(lse, FIG_ATTENTION_LSE), ADDRESS(page_table, FIG_ATTENTION_TABLE),                 \
        ADDRESS(k_scale, FIG_ATTENTION_K_SCALE), ADDRESS(v_scale, FIG_ATTENTION_V_SCALE),          \
        ADDRESS(sinks, FIG_ATTENTION_SINKS), ADDRESS(alibi, FIG_ATTENTION_ALIBI),                  \
        FROM(plan, FIG_FIELD_PLAN), WORKSPACE(partials, FIG_WORKSPACE_STRIP_PARTIALS),             \
        WORKSPACE(sums, FIG_WORKSPACE_STRIP_SUMS),                                                 \
        WORKSPACE(counters, FIG_WORKSPACE_STRIP_COUNTERS),                                         \
        ROW_STRIDES(q_strides, FIG_ATTENTION_Q), ROW_STRIDES(out_strides, FIG_ATTENTION_OUT),      \
        CACHE_STRIDES(k_cache_strides, FIG_ATTENTION_K_CACHE),                                     \
        CACHE_STRIDES(v_cache_strides, FIG_ATTENTION_V_CACHE),                                     \
        STRIDE(lse_stride, FIG_ATTENTION_LSE, 0), STRIDE(table_stride, FIG_ATTENTION_TABLE, 0),    \
        EXTENT(k_pages, FIG_ATTENTION_K_CACHE), EXTENT(v_pages, FIG_ATTENTION_V_CACHE),            \
        ROWS(rows, FIG_ATTENTION_Q), STRIPS(workers, FIG_STRIPS_WORKERS),                          \
        DIM(q_heads, FIG_ATTENTION_Q, 1), DIM(kv_heads, FIG_ATTENTION_K_CACHE, 2),                 \
        DIM(head_dim, FIG_ATTENTION_Q, 2), PAGE_TOKENS(page_size, FIG_ATTENTION_K_CACHE),          \
        STRIPS(ratio, FIG_STRIPS_RATIO), STRIPS(half, FIG_STRIPS_HALF_QUERIES),                    \
        STRIPS(tile_tokens, FIG_STRIPS_TILE_TOKENS), DTYPE(dtype, FIG_ATTENTION_Q),                \
        DTYPE(kv_dtype, FIG_ATTENTION_K_CACHE), DIM(k_scales, FIG_ATTENTION_K_SCALE, 0),           \
        DIM(v_scales, FIG_ATTENTION_V_SCALE, 0), ATTRIBUTE(sm_scale), ATTRIBUTE(soft_cap),         \
        ATTRIBUTE(window), FROM(flags, FIG_FIELD_EARLY_READS),                                     \
        SECTION(strips_offset, FIG_PLAN_STRIPS), STRIPS(split_class, FIG_STRIPS_CLASS),            \
        FROM(reserved[0], FIG_FIELD_ZERO), FROM(reserved[1], FIG_FIELD_ZERO)
static const fig_field prompt_attention_fields[] = {PROMPT_ATTENTION_FIELDS};
#undef ATTRIBUTES
#undef PARAMS

#define PROMPT_ATTENTION_ROW                                                                       \
    OPERANDS(attention_operands, FIG_ATTENTION_OUT, FIG_ATTENTION_LSE),                            \
        FIELDS(prompt_attention_fields),                                                           \
        .split = &attention_split,                                                                 \
        ATTRIBUTE_BYTES(fig_attention_attributes, sizeof(fig_attention_attributes))
#define PROMPT_ATTENTION_WIDE                                                                      \
    .refuses = fig_prompt_attention_wide_refuses, .shape = fig_prompt_attention_wide_shape,        \
    .shared = fig_prompt_attention_wide_shared, .entry = fig_prompt_attention_wide_entry,          \
    .map = fig_prompt_attention_wide_map, .serves_tails = 1
#define PROMPT_ATTENTION_PLAIN                                                                     \
    .shape = fig_prompt_attention_shape, .entry = fig_prompt_attention_entry

#endif
