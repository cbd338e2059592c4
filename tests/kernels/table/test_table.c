/* test_table.c: tests that the kernel table describes every byte of every params exactly once. */
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/table.h"
#include "kernels/table/reference_kernels.h"

/* Returns 1 for a field that attention reads only as the second launch of a decode_attention
 * node. */
static int is_turn(const fig_field *field) {
    return strncmp(field->name, "turn.", 5) == 0;
}

/* Translates a field of attention to the decode_attention node: the row's map tells which operand
 * or attribute of the node it reads. */
static fig_field of_node(const fig_field *turn) {
    const fig_reads *rest = &fig_kernel_table[FIG_OP_DECODE_ATTENTION].rest;
    fig_field field = *turn;
    field.name += strlen("turn.");
    assert_true(field.operand < rest->operand_count && rest->operands[field.operand] != 0);
    field.operand = (uint8_t)(rest->operands[field.operand] - 1);
    if (field.kind != FIG_FIELD_ATTRIBUTE && field.kind != FIG_FIELD_ANGLES) return field;
    for (int i = 0; i < rest->range_count; i++) {
        const fig_attribute_range *range = &rest->attributes[i];
        if (turn->item >= range->to && turn->item < range->to + range->bytes)
            field.item = (uint16_t)(range->from + (turn->item - range->to));
    }
    return field;
}

/* Calls `check` for every field of every row. Fields for which is_turn() is 1 count as
 * decode_attention's. */
static void for_each_field(void (*check)(const fig_kernel *kernel, const fig_field *field)) {
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        for (int i = 0; i < fig_kernel_table[op].field_count; i++) {
            const fig_field *field = &fig_kernel_table[op].fields[i];
            if (is_turn(field)) {
                const fig_field turn = of_node(field);
                check(&fig_kernel_table[FIG_OP_DECODE_ATTENTION], &turn);
            } else {
                check(&fig_kernel_table[op], field);
            }
        }
    }
}

static int is_one_of(const char *name, const char *const *names) {
    for (; *names != NULL; names++)
        if (strcmp(name, *names) == 0) return 1;
    return 0;
}

static void fields_cover_params_exactly_once_in_order(void **state) {
    (void)state;
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        uint32_t end = 0;
        for (int i = 0; i < kernel->field_count; i++) {
            const fig_field *field = &kernel->fields[i];
            if (field->offset != end || field->bytes == 0)
                fail_msg("%s.%s: starts at %u, %u bytes; the field before ends at %u", kernel->name,
                         field->name, field->offset, field->bytes, end);
            end = (uint32_t)field->offset + field->bytes;
        }
        assert_int_equal(end, kernel->params_bytes);
        assert_true(kernel->params_bytes <= FIG_PARAMS_LIMIT && kernel->params_bytes % 8 == 0);
        assert_true(kernel->attribute_bytes <= FIG_ATTRIBUTE_LIMIT);
        assert_true(kernel->operand_count <= FIG_OPERAND_LIMIT);
    }
}

static void turns_read_the_attributes_that_are_not_attentions(void **state) {
    (void)state;
    const fig_kernel *kernel = &fig_kernel_table[FIG_OP_ATTENTION];
    uint32_t end = offsetof(fig_attention_launch_attributes, turn);
    for (int i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        if (field->kind != FIG_FIELD_ATTRIBUTE || !is_turn(field)) continue;
        assert_int_equal(field->item, end);
        end += field->bytes;
    }
    assert_int_equal(end, offsetof(fig_attention_launch_attributes, table));
}

/* There are four exceptions: attention's window, its last attribute, which is part of the split;
 * the number of a score, from which code is made; the attributes of a node's second launch, which
 * are the node's first ones; and a rope table, from which angles are made. */
static void attributes_are_read_exactly_once_in_order(void **state) {
    (void)state;
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        uint32_t end = kernel->then == 0 ? 0 : offsetof(fig_decode_attention_attributes, rope);
        if (op == FIG_OP_LATENT_DECODE) end = offsetof(fig_latent_decode_attributes, rope);
        for (int i = 0; i < kernel->field_count; i++) {
            const fig_field *field = &kernel->fields[i];
            if (field->kind != FIG_FIELD_ATTRIBUTE || is_turn(field)) continue;
            assert_int_equal(field->item, end);
            end += field->bytes;
        }
        const uint32_t number = kernel->has_score ? sizeof(uint32_t) : 0;
        const int has_window = op == FIG_OP_ATTENTION || op == FIG_OP_LATENT_ATTENTION ||
                               op == FIG_OP_SCORED_ATTENTION;
        const uint32_t unread = (has_window ? (uint32_t)sizeof(int32_t) : 0) + number;
        const uint32_t brief = kernel->attribute_least, whole = kernel->attribute_bytes;
        assert_int_equal(end + unread, brief);
        if (brief == whole) continue;
        const uint32_t turn = brief - (uint32_t)sizeof(fig_rope_attributes);
        assert_int_equal(fig_table_rope_table(turn) + sizeof(fig_rope_table), whole);
    }
    assert_int_equal(offsetof(fig_attention_attributes, window) + sizeof(int32_t),
                     sizeof(fig_attention_attributes));
}

static void check_type(const fig_kernel *kernel, const fig_field *field) {
    static const uint16_t bytes[] = {
        [FIG_TYPE_ADDRESS] = 8,      [FIG_TYPE_I64] = 8,       [FIG_TYPE_I32] = 4,
        [FIG_TYPE_U32] = 4,          [FIG_TYPE_F32] = 4,       [FIG_TYPE_SPLIT] = 32,
        [FIG_TYPE_PLAN_SHAPE] = 220, [FIG_TYPE_ANGLES] = 1080, [FIG_TYPE_TENSOR_MAP] = 128,
        [FIG_TYPE_SCORE] = 2176,     [FIG_TYPE_STRIPS] = 144};
    /* The type of each kind of field; 0xff: any type. */
    static const uint8_t types[] = {[FIG_FIELD_ZERO] = FIG_TYPE_U32,
                                    [FIG_FIELD_ADDRESS] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_STRIDE] = FIG_TYPE_I64,
                                    [FIG_FIELD_EXTENT] = FIG_TYPE_I64,
                                    [FIG_FIELD_DIM] = FIG_TYPE_I32,
                                    [FIG_FIELD_DTYPE] = FIG_TYPE_I32,
                                    [FIG_FIELD_ATTRIBUTE] = 0xff,
                                    [FIG_FIELD_ROWS] = FIG_TYPE_I32,
                                    [FIG_FIELD_MULTIPLE] = FIG_TYPE_I32,
                                    [FIG_FIELD_KV_LIMIT] = FIG_TYPE_I32,
                                    [FIG_FIELD_PLAN] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_PLAN_SHAPE] = FIG_TYPE_PLAN_SHAPE,
                                    [FIG_FIELD_PLAN_SECTION] = FIG_TYPE_U32,
                                    [FIG_FIELD_SPLIT] = FIG_TYPE_SPLIT,
                                    [FIG_FIELD_HEADS] = FIG_TYPE_I32,
                                    [FIG_FIELD_EARLY_READS] = FIG_TYPE_U32,
                                    [FIG_FIELD_STAGES] = FIG_TYPE_I32,
                                    [FIG_FIELD_IS_SHORT] = FIG_TYPE_I32,
                                    [FIG_FIELD_WORKSPACE] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_RING] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_RING_STATE] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_RING_WORDS] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_RING_SLOTS] = FIG_TYPE_U32,
                                    [FIG_FIELD_RING_BYTES] = FIG_TYPE_U32,
                                    [FIG_FIELD_ANGLES] = FIG_TYPE_ANGLES,
                                    [FIG_FIELD_TENSOR_MAP] = FIG_TYPE_TENSOR_MAP,
                                    [FIG_FIELD_PAGE_TOKENS] = FIG_TYPE_I32,
                                    [FIG_FIELD_RUN] = 0xff,
                                    [FIG_FIELD_PEERS] = FIG_TYPE_ADDRESS,
                                    [FIG_FIELD_RANKS] = FIG_TYPE_I32,
                                    [FIG_FIELD_ROUTES] = FIG_TYPE_U32,
                                    [FIG_FIELD_NODE] = FIG_TYPE_U32,
                                    [FIG_FIELD_QUERIES] = FIG_TYPE_U32,
                                    [FIG_FIELD_IS_PACKED] = FIG_TYPE_U32,
                                    [FIG_FIELD_STRIPS] = FIG_TYPE_I32,
                                    [FIG_FIELD_STRIPS_SHAPES] = FIG_TYPE_STRIPS,
                                    [FIG_FIELD_SCORE] = FIG_TYPE_SCORE};
    assert_true(field->kind < sizeof types && field->type < sizeof bytes / sizeof bytes[0]);
    uint8_t type = types[field->kind] == 0xff ? field->type : types[field->kind];
    if (type == FIG_TYPE_TENSOR_MAP) assert_int_equal(field->offset % alignof(fig_tensor_map), 0);
    uint16_t due = bytes[field->type];
    if (strcmp(field->name, "turn") == 0) due = sizeof(fig_attention_turn);
    if (strcmp(field->name, "slots") == 0) due = sizeof(fig_attention_slots);
    if (strcmp(field->name, "slots.reserved") == 0) due = sizeof((fig_attention_slots){0}.reserved);
    /* latent_decode has the table without the reserved words behind it. */
    if (kernel == &fig_kernel_table[FIG_OP_LATENT_DECODE] && type == FIG_TYPE_ANGLES)
        due = sizeof(fig_rope_table);
    if (field->bytes != due || field->type != type)
        fail_msg("%s.%s: kind %u has type %u of %u bytes", kernel->name, field->name, field->kind,
                 field->type, field->bytes);
}

static void a_field_has_the_type_and_size_of_its_kind(void **state) {
    (void)state;
    for_each_field(check_type);
}

/* Returns the upper limit (exclusive) of the items of a field's kind. */
static uint32_t item_limit(const fig_kernel *kernel, const fig_field *field) {
    switch (field->kind) {
    case FIG_FIELD_STRIDE: return 3; /* a dim's last stride is 1 and has no field */
    case FIG_FIELD_DIM: return 4;
    case FIG_FIELD_PAGE_TOKENS: return 2;
    case FIG_FIELD_SCORE:
    case FIG_FIELD_ATTRIBUTE: return kernel->attribute_bytes;
    case FIG_FIELD_ANGLES: return offsetof(fig_decode_attention_attributes, rope) + 1;
    case FIG_FIELD_PLAN_SECTION: return FIG_PLAN_TAILS + 1;
    case FIG_FIELD_WORKSPACE: return FIG_WORKSPACE_STRIP_COUNTERS + 1;
    case FIG_FIELD_STRIPS: return FIG_STRIPS_CLASS + 1;
    case FIG_FIELD_TENSOR_MAP: return FIG_PROMPT_ATTENTION_Q_MAP + 1;
    default: return 1;
    }
}

static void check_indices(const fig_kernel *kernel, const fig_field *field) {
    int of_operand = (field->kind >= FIG_FIELD_ADDRESS && field->kind <= FIG_FIELD_DTYPE) ||
                     field->kind == FIG_FIELD_ROWS || field->kind == FIG_FIELD_MULTIPLE ||
                     field->kind == FIG_FIELD_PAGE_TOKENS || field->kind == FIG_FIELD_QUERIES ||
                     field->kind == FIG_FIELD_IS_PACKED;
    uint32_t operand_limit = of_operand ? kernel->operand_count : 1;
    if (field->operand >= operand_limit || field->item >= item_limit(kernel, field) ||
        field->divisor < 1)
        fail_msg("%s.%s: operand %u, item %u, divisor %u", kernel->name, field->name,
                 field->operand, field->item, field->divisor);
}

static void operands_items_and_divisors_are_in_range(void **state) {
    (void)state;
    for_each_field(check_indices);
}

/* Writes the name that a field of this kind and item gets from its operand: "k_out_strides.head" is
 * stride 1 of k_out, "k_cache_strides.head" stride 2 of k_cache, "table_stride" stride 0 of
 * page_table. */
static void name_of(const fig_kernel *kernel, const fig_field *field, char *name, size_t bytes) {
    static const char *const row_items[] = {"row", "head", "?"};
    static const char *const cache_items[] = {"page", "token", "head"};
    const char *operand = kernel->operands[field->operand].name;
    int is_cache = strstr(operand, "_cache") != NULL;
    if (field->kind == FIG_FIELD_ADDRESS) {
        snprintf(name, bytes, "%s", operand);
    } else if (field->kind == FIG_FIELD_EXTENT) {
        snprintf(name, bytes, "%c_pages", operand[0]);
    } else if (strchr(field->name, '.') != NULL) {
        const char *const *items = is_cache ? cache_items : row_items;
        snprintf(name, bytes, "%s_strides.%s", operand, items[field->item]);
    } else {
        const char *stem = strcmp(operand, "page_table") == 0 ? "table" : operand;
        snprintf(name, bytes, "%s_stride", field->item == 0 ? stem : "?");
    }
}

static void check_name(const fig_kernel *kernel, const fig_field *field) {
    char name[64];
    if (field->kind != FIG_FIELD_ADDRESS && field->kind != FIG_FIELD_STRIDE &&
        field->kind != FIG_FIELD_EXTENT)
        return;
    name_of(kernel, field, name, sizeof name);
    if (strcmp(name, field->name) != 0)
        fail_msg("%s.%s: comes from what is named %s", kernel->name, field->name, name);
}

static void addresses_strides_and_extents_are_of_the_operand_they_are_named_after(void **state) {
    (void)state;
    for_each_field(check_name);
}

typedef struct table_dimension {
    uint8_t op;
    const char *field;
    uint8_t operand, item, divisor;
} table_dimension;

/* The dimensions in the order of the rows. */
static const table_dimension dimensions[] = {
    {FIG_OP_GATED, "width", FIG_GATED_IN, 1, 2},
    {FIG_OP_ROPE, "segments", FIG_ROPE_OFFSETS, 0, 1},
    {FIG_OP_ROPE, "cos_sin_rows", FIG_ROPE_COS_SIN, 0, 1},
    {FIG_OP_ROPE, "q_heads", FIG_ROPE_Q, 1, 1},
    {FIG_OP_ROPE, "k_heads", FIG_ROPE_K, 1, 1},
    {FIG_OP_ROPE, "head_dim", FIG_ROPE_Q, 2, 1},
    {FIG_OP_APPEND_KV, "page_size", FIG_APPEND_K_CACHE, 1, 1},
    {FIG_OP_APPEND_KV, "kv_heads", FIG_APPEND_K_CACHE, 2, 1},
    {FIG_OP_APPEND_KV, "head_dim", FIG_APPEND_K_CACHE, 3, 1},
    {FIG_OP_APPEND_KV, "k_scales", FIG_APPEND_K_SCALE, 0, 1},
    {FIG_OP_APPEND_KV, "v_scales", FIG_APPEND_V_SCALE, 0, 1},
    {FIG_OP_ATTENTION, "q_heads", FIG_ATTENTION_Q, 1, 1},
    {FIG_OP_ATTENTION, "kv_heads", FIG_ATTENTION_K_CACHE, 2, 1},
    {FIG_OP_ATTENTION, "head_dim", FIG_ATTENTION_Q, 2, 1},
    {FIG_OP_ATTENTION, "page_size", FIG_ATTENTION_K_CACHE, 1, 1},
    {FIG_OP_ATTENTION, "k_scales", FIG_ATTENTION_K_SCALE, 0, 1},
    {FIG_OP_ATTENTION, "v_scales", FIG_ATTENTION_V_SCALE, 0, 1},
    {FIG_OP_RMS_NORM, "width", FIG_RMS_NORM_IN, 1, 1},
    {FIG_OP_MERGE_STATES, "heads", FIG_MERGE_OUT_A, 1, 1},
    {FIG_OP_MERGE_STATES, "head_dim", FIG_MERGE_OUT_A, 2, 1},
    {FIG_OP_DECODE_ATTENTION, "cos_sin_rows", FIG_DECODE_ATTENTION_COS_SIN, 0, 1},
    {FIG_OP_DECODE_ATTENTION, "page_size", FIG_ATTENTION_K_CACHE, 1, 1},
    {FIG_OP_DECODE_ATTENTION, "q_heads", FIG_ATTENTION_Q, 1, 1},
    {FIG_OP_DECODE_ATTENTION, "kv_heads", FIG_ATTENTION_K_CACHE, 2, 1},
    {FIG_OP_DECODE_ATTENTION, "head_dim", FIG_ATTENTION_Q, 2, 1},
    {FIG_OP_DECODE_ATTENTION, "k_scales", FIG_ATTENTION_K_SCALE, 0, 1},
    {FIG_OP_DECODE_ATTENTION, "v_scales", FIG_ATTENTION_V_SCALE, 0, 1},
    {FIG_OP_ALL_REDUCE, "width", FIG_ALL_REDUCE_IN, 1, 1},
    {FIG_OP_ALL_GATHER, "width", FIG_ALL_GATHER_IN, 1, 1},
    {FIG_OP_WHOLE_ATTENTION, "q_heads", FIG_WHOLE_ATTENTION_Q, 1, 1},
    {FIG_OP_WHOLE_ATTENTION, "kv_heads", FIG_WHOLE_ATTENTION_K_CACHE, 2, 1},
    {FIG_OP_WHOLE_ATTENTION, "head_dim", FIG_WHOLE_ATTENTION_Q, 2, 1},
    {FIG_OP_PROMPT_ATTENTION, "q_heads", FIG_ATTENTION_Q, 1, 1},
    {FIG_OP_PROMPT_ATTENTION, "kv_heads", FIG_ATTENTION_K_CACHE, 2, 1},
    {FIG_OP_PROMPT_ATTENTION, "head_dim", FIG_ATTENTION_Q, 2, 1},
    {FIG_OP_PROMPT_ATTENTION, "page_size", FIG_ATTENTION_K_CACHE, 1, 1},
    {FIG_OP_PROMPT_ATTENTION, "k_scales", FIG_ATTENTION_K_SCALE, 0, 1},
    {FIG_OP_PROMPT_ATTENTION, "v_scales", FIG_ATTENTION_V_SCALE, 0, 1},
    {FIG_OP_LATENT_ATTENTION, "q_heads", FIG_LATENT_ATTENTION_Q, 1, 1},
    {FIG_OP_LATENT_ATTENTION, "page_size", FIG_LATENT_ATTENTION_K_CACHE, 1, 1},
    {FIG_OP_LATENT_DECODE, "cos_sin_rows", FIG_LATENT_DECODE_COS_SIN, 0, 1},
    {FIG_OP_LATENT_DECODE, "page_size", FIG_LATENT_ATTENTION_K_CACHE, 1, 1},
    {FIG_OP_LATENT_DECODE, "q_heads", FIG_LATENT_ATTENTION_Q, 1, 1},
};

static void dimensions_are_those_of_the_documented_shapes(void **state) {
    (void)state;
    size_t next = 0;
    for (uint8_t op = 0; op < FIG_OP_SCORED_ATTENTION; op++) {
        for (int i = 0; i < fig_kernel_table[op].field_count; i++) {
            const fig_field *field = &fig_kernel_table[op].fields[i];
            if (field->kind != FIG_FIELD_DIM && field->kind != FIG_FIELD_PAGE_TOKENS) continue;
            assert_true(next < sizeof dimensions / sizeof dimensions[0]);
            const table_dimension *want = &dimensions[next++];
            assert_int_equal(op, want->op);
            assert_string_equal(field->name, want->field);
            assert_int_equal(field->operand, want->operand);
            assert_int_equal(field->item, want->item);
            assert_int_equal(field->divisor, want->divisor);
        }
    }
    assert_int_equal(next, sizeof dimensions / sizeof dimensions[0]);
}

/* Checks the kinds of fields that have the same name in every row. Fields that lowering leaves 0
 * are reserved, or the engine fills them in. */
static void check_plain_name(const fig_kernel *kernel, const fig_field *field) {
    static const char *const names[][17] = {
        [FIG_FIELD_ZERO] = {"reserved", "rows.reserved", "tells", "pieces", "blocks", "is_on",
                            "reserved[0]", "reserved[1]", "reserved[2]", "reserved[3]",
                            "reserved[4]", "reserved[5]", "reserved[6]", "turn", "slots.reserved",
                            "slots"},
        [FIG_FIELD_DTYPE] = {"dtype", "positions_dtype", "packed_dtype", "kv_dtype"},
        [FIG_FIELD_ROWS] = {"rows.row_limit"},
        [FIG_FIELD_MULTIPLE] = {"rows.multiple"},
        [FIG_FIELD_KV_LIMIT] = {"kv_limit"},
        [FIG_FIELD_PLAN_SHAPE] = {"shape"},
        [FIG_FIELD_PLAN] = {"plan"},
        [FIG_FIELD_SPLIT] = {"split"},
        [FIG_FIELD_HEADS] = {"heads_per_worker"},
        [FIG_FIELD_EARLY_READS] = {"flags", "early_reads"},
        [FIG_FIELD_ANGLES] = {"angles"},
        [FIG_FIELD_TENSOR_MAP] = {"k_map", "v_map", "q_map"},
        [FIG_FIELD_RING] = {"ring"},
        [FIG_FIELD_RING_STATE] = {"state"},
        [FIG_FIELD_RING_WORDS] = {"words"},
        [FIG_FIELD_RING_SLOTS] = {"slot_count"},
        [FIG_FIELD_RING_BYTES] = {"slot_bytes"},
        [FIG_FIELD_PAGE_TOKENS] = {"page_size"},
        [FIG_FIELD_RUN] = {"zeros", "rows", "length", "zero_pieces", "scale"},
        [FIG_FIELD_STRIPS] = {"workers", "ratio", "half", "tile_tokens", "split_class"},
        [FIG_FIELD_PEERS] = {"peers"},
        [FIG_FIELD_RANKS] = {"ranks"},
        [FIG_FIELD_ROUTES] = {"routes"},
        [FIG_FIELD_NODE] = {"node"},
        [FIG_FIELD_SCORE] = {"score"},
        [FIG_FIELD_STRIPS_SHAPES] = {"strips"},
        [FIG_FIELD_QUERIES] = {"rows.queries_offset", "queries_offset"},
        [FIG_FIELD_IS_PACKED] = {"is_packed"},
    };
    static const char *const sections[] = {
        "lengths_offset", "positions_offset", "sequences_offset", "tokens_offset",
        "prefix_offset",  "starts_offset",    "strips_offset",    "slots.tails_offset"};
    static const char *const workspaces[] = {"partials", "sums", "counters"};
    for (uint8_t kind = 0; kind < sizeof names / sizeof names[0]; kind++) {
        if (names[kind][0] == NULL) continue;
        if (is_one_of(field->name, names[kind]) == (field->kind == kind)) continue;
        fail_msg("%s.%s: is of kind %u", kernel->name, field->name, field->kind);
    }
    if (field->kind == FIG_FIELD_PLAN_SECTION)
        assert_string_equal(field->name, sections[field->item]);
    if (field->kind == FIG_FIELD_WORKSPACE) {
        const int is_of_slots = strncmp(field->name, "slots.", strlen("slots.")) == 0;
        assert_string_equal(field->name + (is_of_slots ? strlen("slots.") : 0),
                            workspaces[field->item % 3]);
    }
}

static void a_name_means_the_same_kind_in_every_row(void **state) {
    (void)state;
    for_each_field(check_plain_name);
}

static void names_are_unique_in_a_row_and_rows_have_unlike_names(void **state) {
    (void)state;
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        for (int i = 0; i < kernel->field_count; i++)
            for (int j = 0; j < i; j++)
                assert_string_not_equal(kernel->fields[i].name, kernel->fields[j].name);
        for (int i = 0; i < kernel->operand_count; i++)
            for (int j = 0; j < i; j++)
                assert_string_not_equal(kernel->operands[i].name, kernel->operands[j].name);
        for (int other = 0; other < op; other++)
            assert_string_not_equal(kernel->name, fig_kernel_table[other].name);
    }
}

/* kv_dtype is the dtype of k_cache, and positions_dtype that of positions. dtype and the fields
 * that count rows belong to the first operand. */
static void check_operand_of_rows(const fig_kernel *kernel, const fig_field *field) {
    if (field->kind == FIG_FIELD_ROWS) {
        assert_int_equal(field[1].kind, FIG_FIELD_MULTIPLE);
        assert_int_equal(field[1].operand, field->operand);
        assert_int_equal(field[2].kind, FIG_FIELD_QUERIES);
        assert_int_equal(field[2].operand, field->operand);
    }
    if (field->kind == FIG_FIELD_ROWS || strcmp(field->name, "dtype") == 0) {
        assert_int_equal(field->operand, 0);
    } else if (strcmp(field->name, "kv_dtype") == 0) {
        assert_string_equal(kernel->operands[field->operand].name, "k_cache");
    } else if (strcmp(field->name, "positions_dtype") == 0) {
        assert_string_equal(kernel->operands[field->operand].name, "positions");
    }
}

static void rows_and_types_are_counted_by_the_first_operand_or_the_one_named(void **state) {
    (void)state;
    for_each_field(check_operand_of_rows);
}

static void only_what_is_optional_in_the_public_header_is_optional(void **state) {
    (void)state;
    static const char *const optional[] = {
        "positions", "indptr",     "offsets", "cos_sin", "q_norm", "k_norm",   "k_scale",
        "v_scale",   "page_table", "sinks",   "alibi",   "lse",    "residual", "query_starts",
        "array0",    "array1",     "array2",  "array3",  "array4", "array5",   "array6",
        "array7",    "norm",       "q_rope",  NULL};
    static const char *const written[] = {"out",     "q_out", "k_out",    "k_cache",
                                          "v_cache", "lse",   "residual", NULL};
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        for (int i = 0; i < kernel->operand_count; i++) {
            const fig_operand *operand = &kernel->operands[i];
            int writes = is_one_of(operand->name, written);
            if (kernel->appends == 0 && strstr(operand->name, "_cache")) writes = 0;
            uint8_t access = writes ? FIG_ACCESS_WRITE : FIG_ACCESS_READ;
            if (strcmp(operand->name, "residual") == 0) access |= FIG_ACCESS_READ;
            if (op == FIG_OP_DECODE_ATTENTION &&
                (i == FIG_ATTENTION_Q || i == FIG_DECODE_ATTENTION_K ||
                 strstr(operand->name, "_cache")))
                access = FIG_ACCESS_READ | FIG_ACCESS_WRITE;
            if (op == FIG_OP_LATENT_DECODE &&
                (i == FIG_LATENT_ATTENTION_Q || i == FIG_LATENT_ATTENTION_K_CACHE ||
                 i == FIG_LATENT_DECODE_Q_ROPE))
                access = FIG_ACCESS_READ | FIG_ACCESS_WRITE;
            int may_lack = is_one_of(operand->name, optional);
            if (op == FIG_OP_ALL_REDUCE) may_lack |= i == FIG_ALL_REDUCE_WEIGHT;
            if (op == FIG_OP_DECODE_ATTENTION) may_lack |= i == FIG_ATTENTION_OUT;
            if (op == FIG_OP_LATENT_DECODE) may_lack |= i == FIG_LATENT_ATTENTION_OUT;
            assert_int_equal(operand->optional, may_lack);
            assert_int_equal(operand->access, access);
        }
    }
}

/* The name of an operand and its number of dims decide how ranks divide it. */
static void a_name_is_divided_alike_in_every_row(void **state) {
    (void)state;
    static const char *const q[] = {"q",     "q_rope", "q_out", "out_a", "lse_a",
                                    "out_b", "lse_b",  "lse",   NULL};
    static const char *const kv[] = {"k", "v", "k_out", NULL};
    static const char *const caches[] = {"k_cache", "v_cache", NULL};
    static const char *const words[] = {"sinks", "alibi", NULL};
    static const char *const scales[] = {"k_scale", "v_scale", NULL};
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        for (int i = 0; i < kernel->operand_count; i++) {
            const fig_operand *operand = &kernel->operands[i];
            const char *name = operand->name;
            int heads = is_one_of(name, q) || is_one_of(name, words);
            int columns =
                op == FIG_OP_GATED || (op == FIG_OP_ALL_GATHER && strcmp(name, "in") == 0);
            if (strcmp(name, "out") == 0)
                heads = kernel->split != NULL || op == FIG_OP_MERGE_STATES ||
                        op == FIG_OP_WHOLE_ATTENTION;
            uint8_t rule = columns ? FIG_SHARE_COLUMNS
                           : heads ? FIG_SHARE_Q_HEADS
                                   : FIG_SHARE_WHOLE;
            if (is_one_of(name, kv) || is_one_of(name, caches) || is_one_of(name, scales))
                rule = FIG_SHARE_KV_HEADS;
            if (kernel->split != NULL && kernel->split->v_in_k && is_one_of(name, caches))
                rule = FIG_SHARE_WHOLE; /* all heads share it */
            uint8_t dim = is_one_of(name, caches) ? 2 : 1;
            if (is_one_of(name, words) || is_one_of(name, scales)) dim = 0;
            if (operand->share != rule || operand->dim != (rule == FIG_SHARE_WHOLE ? 0 : dim))
                fail_msg("%s.%s: rule %u of dims[%u], not %u of dims[%u]", kernel->name, name,
                         operand->share, operand->dim, rule, dim);
        }
    }
}

static void rows_stand_at_their_number_and_only_operations_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"fetch",
                                        "gated",
                                        "rope",
                                        "append_kv",
                                        "attention",
                                        "plan",
                                        "rms_norm",
                                        "merge_states",
                                        "look_ahead",
                                        "ceiling",
                                        "decode_attention",
                                        "all_reduce",
                                        "all_gather",
                                        "whole_attention",
                                        "prompt_attention",
                                        "latent_attention",
                                        "latent_decode",
                                        "scored_attention",
                                        "scored_prompt"};
    assert_int_equal(sizeof names / sizeof names[0], FIG_OP_KERNEL_COUNT);
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        assert_string_equal(fig_table_op_name(op), names[op]);
        assert_int_equal(fig_kernel_table[op].split != NULL,
                         op == FIG_OP_ATTENTION || op == FIG_OP_DECODE_ATTENTION ||
                             op == FIG_OP_PROMPT_ATTENTION || op == FIG_OP_LATENT_ATTENTION ||
                             op == FIG_OP_LATENT_DECODE || op == FIG_OP_SCORED_ATTENTION ||
                             op == FIG_OP_SCORED_PROMPT);
        assert_int_equal(fig_kernel_table[op].meets != FIG_MEETING_NONE,
                         op == FIG_OP_ALL_REDUCE || op == FIG_OP_ALL_GATHER);
    }
    assert_string_equal(fig_table_op_name(FIG_OP_CALL), "call");
    assert_null(fig_table_op_name(FIG_OP_KERNEL_COUNT));
    assert_null(fig_table_op_name(FIG_OP_CALL + 1));
    assert_null(fig_table_op_name(UINT32_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_cover_params_exactly_once_in_order),
        cmocka_unit_test(attributes_are_read_exactly_once_in_order),
        cmocka_unit_test(turns_read_the_attributes_that_are_not_attentions),
        cmocka_unit_test(a_field_has_the_type_and_size_of_its_kind),
        cmocka_unit_test(operands_items_and_divisors_are_in_range),
        cmocka_unit_test(addresses_strides_and_extents_are_of_the_operand_they_are_named_after),
        cmocka_unit_test(dimensions_are_those_of_the_documented_shapes),
        cmocka_unit_test(a_name_means_the_same_kind_in_every_row),
        cmocka_unit_test(names_are_unique_in_a_row_and_rows_have_unlike_names),
        cmocka_unit_test(rows_and_types_are_counted_by_the_first_operand_or_the_one_named),
        cmocka_unit_test(only_what_is_optional_in_the_public_header_is_optional),
        cmocka_unit_test(a_name_is_divided_alike_in_every_row),
        cmocka_unit_test(rows_stand_at_their_number_and_only_operations_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
