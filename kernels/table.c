/* table.c: the kernel table.
 *
 * A row names an operation's operands in the order of its nodes and says of each field of its
 * params where the value comes from; the field's place, size and type come from the struct itself.
 * Invariant: the fields of a row cover its params exactly once, in order. */
#include "kernels/table.h"

#include "kernels/twins.h"

/* clang-format off */
/* What C itself knows of a field. */
#define TYPE(field)                                                                                \
    _Generic(((PARAMS *)0)->field,                                                                 \
             int64_t: FIG_TYPE_I64,                                                                \
             int32_t: FIG_TYPE_I32,                                                                \
             uint32_t: FIG_TYPE_U32,                                                               \
             float: FIG_TYPE_F32,                                                                  \
             fig_split_shape: FIG_TYPE_SPLIT,                                                      \
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
#define HALF_DIM(field, operand, dim) FIELD(field, FIG_FIELD_DIM, operand, dim, 2)
#define DTYPE(field, operand) FIELD(field, FIG_FIELD_DTYPE, operand, 0, 1)
/* Of the node: the attribute of the same name. */
#define ATTRIBUTE(field) FIELD(field, FIG_FIELD_ATTRIBUTE, 0, offsetof(ATTRIBUTES, field), 1)
/* Of the bucket. */
#define FROM(field, kind) FIELD(field, kind, 0, 0, 1)
#define SECTION(field, section) FIELD(field, FIG_FIELD_PLAN_SECTION, 0, section, 1)
#define WORKSPACE(field, section) FIELD(field, FIG_FIELD_WORKSPACE, 0, section, 1)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define OPERANDS(array) .operands = array, .operand_count = COUNT(array)
#define FIELDS(array) .fields = array, .field_count = COUNT(array)

/* ---- fetch */

#define PARAMS fig_fetch_params
static const fig_field fetch_fields[] = {
    FROM(ring, FIG_FIELD_RING),
    FROM(plan, FIG_FIELD_PLAN),
    FROM(cursor, FIG_FIELD_RING_CURSOR),
    FROM(words, FIG_FIELD_RING_WORDS),
    FROM(slot_count, FIG_FIELD_RING_SLOTS),
    FROM(slot_bytes, FIG_FIELD_RING_BYTES),
    FROM(bucket, FIG_FIELD_BUCKET),
    FROM(plan_bytes, FIG_FIELD_PLAN_BYTES),
};
#undef PARAMS

/* ---- silu_and_mul */

static const fig_operand silu_and_mul_operands[] = {
    [FIG_SILU_IN] = {"in", FIG_ACCESS_READ, 0},
    [FIG_SILU_OUT] = {"out", FIG_ACCESS_WRITE, 0},
};

#define PARAMS fig_silu_and_mul_params
static const fig_field silu_and_mul_fields[] = {
    ADDRESS(in, FIG_SILU_IN),
    ADDRESS(out, FIG_SILU_OUT),
    FROM(plan, FIG_FIELD_PLAN),
    STRIDE(in_stride, FIG_SILU_IN, 0),
    STRIDE(out_stride, FIG_SILU_OUT, 0),
    FROM(row_limit, FIG_FIELD_BATCH),
    HALF_DIM(width, FIG_SILU_IN, 1),
    DTYPE(dtype, FIG_SILU_IN),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef PARAMS

/* ---- rope */

static const fig_operand rope_operands[] = {
    [FIG_ROPE_Q] = {"q", FIG_ACCESS_READ, 0},
    [FIG_ROPE_K] = {"k", FIG_ACCESS_READ, 0},
    [FIG_ROPE_POSITIONS] = {"positions", FIG_ACCESS_READ, 1},
    [FIG_ROPE_Q_OUT] = {"q_out", FIG_ACCESS_WRITE, 0},
    [FIG_ROPE_K_OUT] = {"k_out", FIG_ACCESS_WRITE, 0},
};

#define PARAMS fig_rope_params
#define ATTRIBUTES fig_rope_attributes
static const fig_field rope_fields[] = {
    ADDRESS(q, FIG_ROPE_Q),
    ADDRESS(k, FIG_ROPE_K),
    ADDRESS(q_out, FIG_ROPE_Q_OUT),
    ADDRESS(k_out, FIG_ROPE_K_OUT),
    ADDRESS(positions, FIG_ROPE_POSITIONS),
    FROM(plan, FIG_FIELD_PLAN),
    STRIDE(q_strides.row, FIG_ROPE_Q, 0),
    STRIDE(q_strides.head, FIG_ROPE_Q, 1),
    STRIDE(k_strides.row, FIG_ROPE_K, 0),
    STRIDE(k_strides.head, FIG_ROPE_K, 1),
    STRIDE(q_out_strides.row, FIG_ROPE_Q_OUT, 0),
    STRIDE(q_out_strides.head, FIG_ROPE_Q_OUT, 1),
    STRIDE(k_out_strides.row, FIG_ROPE_K_OUT, 0),
    STRIDE(k_out_strides.head, FIG_ROPE_K_OUT, 1),
    ATTRIBUTE(rope.interleaved),
    ATTRIBUTE(rope.theta),
    ATTRIBUTE(rope.scale),
    ATTRIBUTE(rope.llama3_factor),
    ATTRIBUTE(rope.llama3_low),
    ATTRIBUTE(rope.llama3_high),
    ATTRIBUTE(rope.llama3_context),
    SECTION(positions_offset, FIG_PLAN_POSITIONS),
    FROM(row_limit, FIG_FIELD_BATCH),
    DIM(q_heads, FIG_ROPE_Q, 1),
    DIM(k_heads, FIG_ROPE_K, 1),
    DIM(head_dim, FIG_ROPE_Q, 2),
    DTYPE(dtype, FIG_ROPE_Q),
    DTYPE(positions_dtype, FIG_ROPE_POSITIONS),
};
#undef ATTRIBUTES
#undef PARAMS

/* ---- append_kv */

static const fig_operand append_kv_operands[] = {
    [FIG_APPEND_K] = {"k", FIG_ACCESS_READ, 0},
    [FIG_APPEND_V] = {"v", FIG_ACCESS_READ, 0},
    [FIG_APPEND_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_APPEND_K_CACHE] = {"k_cache", FIG_ACCESS_WRITE, 0},
    [FIG_APPEND_V_CACHE] = {"v_cache", FIG_ACCESS_WRITE, 0},
};

#define PARAMS fig_append_kv_params
static const fig_field append_kv_fields[] = {
    ADDRESS(k, FIG_APPEND_K),
    ADDRESS(v, FIG_APPEND_V),
    ADDRESS(k_cache, FIG_APPEND_K_CACHE),
    ADDRESS(v_cache, FIG_APPEND_V_CACHE),
    ADDRESS(page_table, FIG_APPEND_TABLE),
    FROM(plan, FIG_FIELD_PLAN),
    STRIDE(k_strides.row, FIG_APPEND_K, 0),
    STRIDE(k_strides.head, FIG_APPEND_K, 1),
    STRIDE(v_strides.row, FIG_APPEND_V, 0),
    STRIDE(v_strides.head, FIG_APPEND_V, 1),
    STRIDE(k_cache_strides.page, FIG_APPEND_K_CACHE, 0),
    STRIDE(k_cache_strides.token, FIG_APPEND_K_CACHE, 1),
    STRIDE(k_cache_strides.head, FIG_APPEND_K_CACHE, 2),
    STRIDE(v_cache_strides.page, FIG_APPEND_V_CACHE, 0),
    STRIDE(v_cache_strides.token, FIG_APPEND_V_CACHE, 1),
    STRIDE(v_cache_strides.head, FIG_APPEND_V_CACHE, 2),
    STRIDE(table_stride, FIG_APPEND_TABLE, 0),
    EXTENT(k_pages, FIG_APPEND_K_CACHE),
    EXTENT(v_pages, FIG_APPEND_V_CACHE),
    SECTION(lengths_offset, FIG_PLAN_LENGTHS),
    SECTION(sequences_offset, FIG_PLAN_SEQUENCES),
    FROM(row_limit, FIG_FIELD_BATCH),
    DIM(page_size, FIG_APPEND_K_CACHE, 1),
    DIM(kv_heads, FIG_APPEND_K_CACHE, 2),
    DIM(head_dim, FIG_APPEND_K_CACHE, 3),
    DTYPE(dtype, FIG_APPEND_K),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef PARAMS

/* ---- attention */

static const fig_operand attention_operands[] = {
    [FIG_ATTENTION_Q] = {"q", FIG_ACCESS_READ, 0},
    [FIG_ATTENTION_K_CACHE] = {"k_cache", FIG_ACCESS_READ, 0},
    [FIG_ATTENTION_V_CACHE] = {"v_cache", FIG_ACCESS_READ, 0},
    [FIG_ATTENTION_TABLE] = {"page_table", FIG_ACCESS_READ, 1},
    [FIG_ATTENTION_OUT] = {"out", FIG_ACCESS_WRITE, 0},
    [FIG_ATTENTION_LSE] = {"lse", FIG_ACCESS_WRITE, 1},
};

#define PARAMS fig_attention_params
#define ATTRIBUTES fig_attention_attributes
static const fig_field attention_fields[] = {
    ADDRESS(q, FIG_ATTENTION_Q),
    ADDRESS(k_cache, FIG_ATTENTION_K_CACHE),
    ADDRESS(v_cache, FIG_ATTENTION_V_CACHE),
    ADDRESS(out, FIG_ATTENTION_OUT),
    ADDRESS(lse, FIG_ATTENTION_LSE),
    ADDRESS(page_table, FIG_ATTENTION_TABLE),
    FROM(plan, FIG_FIELD_PLAN),
    WORKSPACE(partials, FIG_WORKSPACE_PARTIALS),
    WORKSPACE(sums, FIG_WORKSPACE_SUMS),
    WORKSPACE(counters, FIG_WORKSPACE_COUNTERS),
    STRIDE(q_strides.row, FIG_ATTENTION_Q, 0),
    STRIDE(q_strides.head, FIG_ATTENTION_Q, 1),
    STRIDE(out_strides.row, FIG_ATTENTION_OUT, 0),
    STRIDE(out_strides.head, FIG_ATTENTION_OUT, 1),
    STRIDE(k_cache_strides.page, FIG_ATTENTION_K_CACHE, 0),
    STRIDE(k_cache_strides.token, FIG_ATTENTION_K_CACHE, 1),
    STRIDE(k_cache_strides.head, FIG_ATTENTION_K_CACHE, 2),
    STRIDE(v_cache_strides.page, FIG_ATTENTION_V_CACHE, 0),
    STRIDE(v_cache_strides.token, FIG_ATTENTION_V_CACHE, 1),
    STRIDE(v_cache_strides.head, FIG_ATTENTION_V_CACHE, 2),
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
    DIM(page_size, FIG_ATTENTION_K_CACHE, 1),
    DTYPE(dtype, FIG_ATTENTION_Q),
    ATTRIBUTE(sm_scale),
    FROM(reserved, FIG_FIELD_ZERO),
};
#undef ATTRIBUTES
#undef PARAMS

/* ---- The table */

const fig_kernel fig_kernel_table[FIG_OP_KERNEL_COUNT] = {
    [FIG_OP_FETCH] = {.name = "fetch",
                      FIELDS(fetch_fields),
                      .params_bytes = sizeof(fig_fetch_params),
                      .shape = fig_fetch_shape,
                      .twin = fig_fetch_twin},
    [FIG_OP_SILU_AND_MUL] = {.name = "silu_and_mul",
                             OPERANDS(silu_and_mul_operands),
                             FIELDS(silu_and_mul_fields),
                             .params_bytes = sizeof(fig_silu_and_mul_params),
                             .shape = fig_silu_and_mul_shape,
                             .twin = fig_silu_and_mul_twin},
    [FIG_OP_ROPE] = {.name = "rope",
                     OPERANDS(rope_operands),
                     FIELDS(rope_fields),
                     .params_bytes = sizeof(fig_rope_params),
                     .attribute_bytes = sizeof(fig_rope_attributes),
                     .shape = fig_rope_shape,
                     .twin = fig_rope_twin},
    [FIG_OP_APPEND_KV] = {.name = "append_kv",
                          OPERANDS(append_kv_operands),
                          FIELDS(append_kv_fields),
                          .params_bytes = sizeof(fig_append_kv_params),
                          .shape = fig_append_kv_shape,
                          .twin = fig_append_kv_twin},
    [FIG_OP_ATTENTION] = {.name = "attention",
                          OPERANDS(attention_operands),
                          FIELDS(attention_fields),
                          .params_bytes = sizeof(fig_attention_params),
                          .attribute_bytes = sizeof(fig_attention_attributes),
                          .split = 1,
                          .shape = fig_attention_shape,
                          .twin = fig_attention_twin},
};

const char *fig_table_op_name(uint32_t op) {
    if (op == FIG_OP_CALL) return "call";
    return op < FIG_OP_KERNEL_COUNT ? fig_kernel_table[op].name : NULL;
}
