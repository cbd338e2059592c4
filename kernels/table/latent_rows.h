/* latent_rows.h: the kernel table's rows of attention over a latent cache.
 *
 * rows.h has the macros. Only table.c reads this file. Invariant: that of rows.h. */
#ifndef FIG_KERNELS_LATENT_ROWS_H
#define FIG_KERNELS_LATENT_ROWS_H

#include "kernels/table/rows.h"

/* ---- latent_attention */

static const fig_operand latent_attention_operands[] = {
    [FIG_LATENT_ATTENTION_Q] = {"q", FIG_ACCESS_READ, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ, 0},
    [FIG_LATENT_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_LATENT_ATTENTION_SINKS] = {"sinks", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_LATENT_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_ATTENTION_Q_ROPE] = {"q_rope", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 1},
};

/* The window comes from the split, not from the attributes. */
#define PARAMS fig_latent_attention_params
#define ATTRIBUTES fig_latent_attributes
static const fig_field latent_attention_fields[] = {
    FIELD(k_map, FIG_FIELD_TENSOR_MAP, 0, 0, 1),
    ADDRESS(q, FIG_LATENT_ATTENTION_Q),
    ADDRESS(k_cache, FIG_LATENT_ATTENTION_K_CACHE),
    ADDRESS(out, FIG_LATENT_ATTENTION_OUT),
    ADDRESS(lse, FIG_LATENT_ATTENTION_LSE),
    ADDRESS(page_table, FIG_LATENT_ATTENTION_TABLE),
    ADDRESS(sinks, FIG_LATENT_ATTENTION_SINKS),
    FROM(plan, FIG_FIELD_PLAN),
    WORKSPACE(partials, FIG_WORKSPACE_PARTIALS),
    WORKSPACE(sums, FIG_WORKSPACE_SUMS),
    WORKSPACE(counters, FIG_WORKSPACE_COUNTERS),
    ROW_STRIDES(q_strides, FIG_LATENT_ATTENTION_Q),
    ROW_STRIDES(out_strides, FIG_LATENT_ATTENTION_OUT),
    STRIDE(k_cache_strides.page, FIG_LATENT_ATTENTION_K_CACHE, 0),
    STRIDE(k_cache_strides.token, FIG_LATENT_ATTENTION_K_CACHE, 1),
    STRIDE(lse_stride, FIG_LATENT_ATTENTION_LSE, 0),
    STRIDE(table_stride, FIG_LATENT_ATTENTION_TABLE, 0),
    EXTENT(k_pages, FIG_LATENT_ATTENTION_K_CACHE),
    FROM(split, FIG_FIELD_SPLIT),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    SECTION(prefix_offset, FIG_PLAN_PREFIX),
    SECTION(starts_offset, FIG_PLAN_STARTS),
    DIM(q_heads, FIG_LATENT_ATTENTION_Q, 1),
    PAGE_TOKENS(page_size, FIG_LATENT_ATTENTION_K_CACHE),
    DTYPE(dtype, FIG_LATENT_ATTENTION_Q),
    DTYPE(kv_dtype, FIG_LATENT_ATTENTION_K_CACHE),
    ATTRIBUTE(sm_scale),
    FROM(flags, FIG_FIELD_EARLY_READS),
    FIELD(queries_offset, FIG_FIELD_QUERIES, FIG_LATENT_ATTENTION_Q, 0, 1),
    FROM(is_short, FIG_FIELD_IS_SHORT),
    ADDRESS(q_rope, FIG_LATENT_ATTENTION_Q_ROPE),
    ROW_STRIDES(q_rope_strides, FIG_LATENT_ATTENTION_Q_ROPE),
};
#undef ATTRIBUTES
#undef PARAMS

static const fig_split_row latent_attention_split = {.q = FIG_LATENT_ATTENTION_Q,
                                                     .k_cache = FIG_LATENT_ATTENTION_K_CACHE,
                                                     .v_cache = FIG_LATENT_ATTENTION_K_CACHE,
                                                     .table = FIG_LATENT_ATTENTION_TABLE,
                                                     .out = FIG_LATENT_ATTENTION_OUT,
                                                     .v_in_k = 1,
                                                     .window =
                                                         offsetof(fig_latent_attributes, window)};

#define LATENT_ATTENTION_ROW                                                                       \
    OPERANDS(latent_attention_operands, FIG_LATENT_ATTENTION_OUT, FIG_LATENT_ATTENTION_LSE),       \
        FIELDS(latent_attention_fields),                                                           \
        ATTRIBUTE_BYTES(fig_latent_attributes, sizeof(fig_latent_attributes)),                     \
        .split = &latent_attention_split, .cut = fig_latent_attention_cut
#define LATENT_ATTENTION_SHORT                                                                     \
    .refuses = fig_latent_attention_short_refuses, .shape = fig_latent_attention_narrow_shape,     \
    .shared = fig_latent_attention_narrow_shared, .entry = fig_latent_attention_short_entry,       \
    .map = fig_latent_attention_wide_map
#define LATENT_ATTENTION_NARROW                                                                    \
    .refuses = fig_latent_attention_narrow_refuses, .shape = fig_latent_attention_narrow_shape,    \
    .shared = fig_latent_attention_narrow_shared, .entry = fig_latent_attention_narrow_entry,      \
    .map = fig_latent_attention_wide_map
#define LATENT_ATTENTION_WIDE                                                                      \
    .refuses = fig_latent_attention_wide_refuses, .shape = fig_latent_attention_wide_shape,        \
    .shared = fig_latent_attention_wide_shared, .entry = fig_latent_attention_wide_entry,          \
    .map = fig_latent_attention_wide_map
#define LATENT_ATTENTION_PAIR                                                                      \
    .refuses = fig_latent_attention_pair_refuses, .shape = fig_latent_attention_pair_shape,        \
    .shared = fig_latent_attention_wide_shared, .entry = fig_latent_attention_pair_entry,          \
    .map = fig_latent_attention_wide_map
#define LATENT_ATTENTION_CODES                                                                     \
    .refuses = fig_latent_attention_codes_refuses, .shape = fig_latent_attention_codes_shape,      \
    .shared = fig_latent_attention_narrow_shared, .entry = fig_latent_attention_codes_entry
#define LATENT_ATTENTION_PLAIN                                                                     \
    .shape = fig_latent_attention_shape, .shared = fig_latent_attention_shared

/* ---- latent_decode: the first launch of the node. The second is a launch of latent_attention. */

static const fig_operand latent_decode_operands[] = {
    [FIG_LATENT_ATTENTION_Q] = {"q", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 0},
    [FIG_LATENT_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_LATENT_ATTENTION_SINKS] = {"sinks", FIG_ACCESS_READ, 1, FIG_SHARE_Q_HEADS, 0},
    [FIG_LATENT_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1, FIG_SHARE_Q_HEADS, 1},
    [FIG_LATENT_DECODE_LATENT] = {"latent", FIG_ACCESS_READ, 0},
    [FIG_LATENT_DECODE_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
    [FIG_LATENT_DECODE_COS_SIN] = {"cos_sin", FIG_ACCESS_READ, 1},
    [FIG_LATENT_DECODE_NORM] = {"norm", FIG_ACCESS_READ, 1},
    [FIG_LATENT_DECODE_Q_ROPE] = {"q_rope", FIG_ACCESS_READ | FIG_ACCESS_WRITE, 1,
                                  FIG_SHARE_Q_HEADS, 1},
};

/* Takes a field from the named rope term in fig_latent_decode_attributes. */
#define LATENT_ROPE(field, name)                                                                   \
    FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(fig_latent_decode_attributes, rope.name), 1)

#define PARAMS fig_latent_decode_params
#define ATTRIBUTES fig_latent_decode_attributes
static const fig_field latent_decode_fields[] = {
    ADDRESS(q, FIG_LATENT_ATTENTION_Q),
    ADDRESS(latent, FIG_LATENT_DECODE_LATENT),
    ADDRESS(norm, FIG_LATENT_DECODE_NORM),
    ADDRESS(k_cache, FIG_LATENT_ATTENTION_K_CACHE),
    ADDRESS(page_table, FIG_LATENT_ATTENTION_TABLE),
    ADDRESS(positions, FIG_LATENT_DECODE_POSITIONS),
    ADDRESS(cos_sin, FIG_LATENT_DECODE_COS_SIN),
    FROM(plan, FIG_FIELD_PLAN),
    ROW_STRIDES(q_strides, FIG_LATENT_ATTENTION_Q),
    STRIDE(latent_stride, FIG_LATENT_DECODE_LATENT, 0),
    STRIDE(k_cache_strides.page, FIG_LATENT_ATTENTION_K_CACHE, 0),
    STRIDE(k_cache_strides.token, FIG_LATENT_ATTENTION_K_CACHE, 1),
    STRIDE(cos_sin_stride, FIG_LATENT_DECODE_COS_SIN, 0),
    STRIDE(table_stride, FIG_LATENT_ATTENTION_TABLE, 0),
    EXTENT(k_pages, FIG_LATENT_ATTENTION_K_CACHE),
    LATENT_ROPE(rope.interleaved, rope.interleaved),
    LATENT_ROPE(rope.rotary_dim, rope.rotary_dim),
    LATENT_ROPE(rope.theta, rope.theta),
    LATENT_ROPE(rope.scale, rope.scale),
    LATENT_ROPE(rope.llama3_factor, rope.llama3_factor),
    LATENT_ROPE(rope.llama3_low, rope.llama3_low),
    LATENT_ROPE(rope.llama3_high, rope.llama3_high),
    LATENT_ROPE(rope.llama3_context, rope.llama3_context),
    LATENT_ROPE(norm_epsilon, norm_epsilon),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    SECTION(positions_offset, FIG_PLAN_POSITIONS),
    ROWS(rows, FIG_LATENT_ATTENTION_Q),
    DIM(cos_sin_rows, FIG_LATENT_DECODE_COS_SIN, 0),
    PAGE_TOKENS(page_size, FIG_LATENT_ATTENTION_K_CACHE),
    DIM(q_heads, FIG_LATENT_ATTENTION_Q, 1),
    DTYPE(dtype, FIG_LATENT_ATTENTION_Q),
    DTYPE(kv_dtype, FIG_LATENT_ATTENTION_K_CACHE),
    DTYPE(positions_dtype, FIG_LATENT_DECODE_POSITIONS),
    SECTION(tokens_offset, FIG_PLAN_TOKENS),
    FROM(early_reads, FIG_FIELD_EARLY_READS),
    FIELD(angles, FIG_FIELD_ANGLES, 0, offsetof(fig_latent_decode_attributes, rope), 1),
    ADDRESS(q_rope, FIG_LATENT_DECODE_Q_ROPE),
    ROW_STRIDES(q_rope_strides, FIG_LATENT_DECODE_Q_ROPE),
    FROM(reserved[0], FIG_FIELD_ZERO),
    FROM(reserved[1], FIG_FIELD_ZERO),
    FROM(reserved[2], FIG_FIELD_ZERO),
    FROM(reserved[3], FIG_FIELD_ZERO),
    FROM(reserved[4], FIG_FIELD_ZERO),
    FROM(reserved[5], FIG_FIELD_ZERO),
};
#undef ATTRIBUTES
#undef PARAMS

/* The parts of the node that its launch of attention reads. */
static const uint8_t latent_decode_rest[FIG_LATENT_ATTENTION_COUNT] = {
    [FIG_LATENT_ATTENTION_Q] = FIG_SLOT(FIG_LATENT_ATTENTION_Q),
    [FIG_LATENT_ATTENTION_K_CACHE] = FIG_SLOT(FIG_LATENT_ATTENTION_K_CACHE),
    [FIG_LATENT_ATTENTION_TABLE] = FIG_SLOT(FIG_LATENT_ATTENTION_TABLE),
    [FIG_LATENT_ATTENTION_SINKS] = FIG_SLOT(FIG_LATENT_ATTENTION_SINKS),
    [FIG_LATENT_ATTENTION_OUT] = FIG_SLOT(FIG_LATENT_ATTENTION_OUT),
    [FIG_LATENT_ATTENTION_LSE] = FIG_SLOT(FIG_LATENT_ATTENTION_LSE),
    [FIG_LATENT_ATTENTION_Q_ROPE] = FIG_SLOT(FIG_LATENT_DECODE_Q_ROPE),
};
static const fig_attribute_range latent_decode_ranges[] = {
    {0, offsetof(fig_latent_decode_attributes, attention), sizeof(fig_latent_attributes)}};

static const fig_split_row latent_decode_split = {
    .q = FIG_LATENT_ATTENTION_Q,
    .k_cache = FIG_LATENT_ATTENTION_K_CACHE,
    .v_cache = FIG_LATENT_ATTENTION_K_CACHE,
    .table = FIG_LATENT_ATTENTION_TABLE,
    .out = FIG_LATENT_ATTENTION_OUT,
    .v_in_k = 1,
    .window = offsetof(fig_latent_decode_attributes, attention.window)};

#define LATENT_DECODE_ROW                                                                          \
    OPERANDS(latent_decode_operands, FIG_LATENT_DECODE_LATENT, FIG_LATENT_DECODE_NORM),            \
        FIELDS(latent_decode_fields),                                                              \
        ATTRIBUTE_BYTES(fig_latent_decode_attributes,                                              \
                        offsetof(fig_latent_decode_attributes, reserved)),                         \
        .split = &latent_decode_split, .then = FIG_OP_LATENT_ATTENTION,                            \
        .appends = FIG_SLOT(FIG_LATENT_DECODE_LATENT),                                             \
        .rest = READS(latent_decode_rest, latent_decode_ranges)
#define LATENT_DECODE_GENERAL .shape = fig_latent_decode_shape, .entry = fig_latent_decode_entry

#endif
