/* edit.c: makes one sound node of each operation, and changes it. */
#include "tests/support/files/edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "planner/spec/rope_spec.h"
#include "tests/support/files/sample.h"

enum { OPERAND_CAPACITY = FIG_OPERAND_LIMIT + 1, ATTRIBUTE_CAPACITY = FIG_ATTRIBUTE_LIMIT + 8 };

/* An operand of a sound node. rank 0: the operand is absent. */
typedef struct given {
    fig_dtype dtype;
    int32_t rank;
    int64_t dims[4];
    int32_t multiple;
} given;

typedef struct sound {
    fig_op op;
    given operands[OPERAND_CAPACITY];
    uint32_t count;
} sound;

#define ROWS FIG_DIM_BATCH
#define PAGES FIG_DIM_PAGES
#define OPERAND(dtype, rank, ...)                                                                  \
    { dtype, rank, {__VA_ARGS__}, 0 }

/* All nodes fit the sample's spec: 6 rows, here with two query tokens each, 200 tokens, 9
 * sequences, pages of 16. */
static const sound sounds[] = {
    {FIG_OP_PLAN,
     {[FIG_PLAN_IN_LENGTHS] = OPERAND(FIG_I32, 1, ROWS),
      [FIG_PLAN_IN_POSITIONS] = OPERAND(FIG_I32, 1, ROWS)},
     2},
    {FIG_OP_GATED,
     {[FIG_GATED_IN] = OPERAND(FIG_BF16, 2, ROWS, 48),
      [FIG_GATED_OUT] = OPERAND(FIG_BF16, 2, ROWS, 24)},
     2},
    {FIG_OP_RMS_NORM,
     {[FIG_RMS_NORM_IN] = OPERAND(FIG_BF16, 2, ROWS, 7),
      [FIG_RMS_NORM_WEIGHT] = OPERAND(FIG_BF16, 1, 7),
      [FIG_RMS_NORM_RESIDUAL] = OPERAND(FIG_BF16, 2, ROWS, 7),
      [FIG_RMS_NORM_OUT] = OPERAND(FIG_BF16, 2, ROWS, 7)},
     4},
    {FIG_OP_ROPE,
     {[FIG_ROPE_Q] = OPERAND(FIG_F32, 3, ROWS, 6, 128),
      [FIG_ROPE_K] = OPERAND(FIG_F32, 3, ROWS, 2, 128),
      [FIG_ROPE_POSITIONS] = OPERAND(FIG_I64, 1, ROWS),
      [FIG_ROPE_COS_SIN] = OPERAND(FIG_F32, 2, 200, 128),
      [FIG_ROPE_Q_NORM] = OPERAND(FIG_F32, 1, 128),
      [FIG_ROPE_K_NORM] = OPERAND(FIG_F32, 1, 128),
      [FIG_ROPE_Q_OUT] = OPERAND(FIG_F32, 3, ROWS, 6, 128),
      [FIG_ROPE_K_OUT] = OPERAND(FIG_F32, 3, ROWS, 2, 128)},
     10},
    {FIG_OP_APPEND_KV,
     {[FIG_APPEND_K] = OPERAND(FIG_F16, 3, ROWS, 2, 64),
      [FIG_APPEND_V] = OPERAND(FIG_F16, 3, ROWS, 2, 64),
      [FIG_APPEND_TABLE] = OPERAND(FIG_I32, 2, 9, 13),
      [FIG_APPEND_K_CACHE] = OPERAND(FIG_F16, 4, PAGES, 16, 2, 64),
      [FIG_APPEND_V_CACHE] = OPERAND(FIG_F16, 4, PAGES, 16, 2, 64)},
     7},
    {FIG_OP_ATTENTION,
     {[FIG_ATTENTION_Q] = OPERAND(FIG_F16, 3, ROWS, 8, 64),
      [FIG_ATTENTION_K_CACHE] = OPERAND(FIG_F16, 4, PAGES, 16, 2, 64),
      [FIG_ATTENTION_V_CACHE] = OPERAND(FIG_F16, 4, PAGES, 16, 2, 64),
      [FIG_ATTENTION_TABLE] = OPERAND(FIG_I32, 2, 9, 13),
      [FIG_ATTENTION_SINKS] = OPERAND(FIG_F32, 1, 8),
      [FIG_ATTENTION_ALIBI] = OPERAND(FIG_F32, 1, 8),
      [FIG_ATTENTION_OUT] = OPERAND(FIG_F16, 3, ROWS, 8, 64),
      [FIG_ATTENTION_LSE] = OPERAND(FIG_F32, 2, ROWS, 8)},
     10},
    {FIG_OP_MERGE_STATES,
     {[FIG_MERGE_OUT_A] = OPERAND(FIG_F16, 3, ROWS, 8, 40),
      [FIG_MERGE_LSE_A] = OPERAND(FIG_F32, 2, ROWS, 8),
      [FIG_MERGE_OUT_B] = OPERAND(FIG_F16, 3, ROWS, 8, 40),
      [FIG_MERGE_LSE_B] = OPERAND(FIG_F32, 2, ROWS, 8),
      [FIG_MERGE_OUT] = OPERAND(FIG_F16, 3, ROWS, 8, 40),
      [FIG_MERGE_LSE] = OPERAND(FIG_F32, 2, ROWS, 8)},
     6},
    {FIG_OP_ALL_REDUCE,
     {[FIG_ALL_REDUCE_IN] = OPERAND(FIG_BF16, 2, ROWS, 24),
      [FIG_ALL_REDUCE_WEIGHT] = OPERAND(FIG_BF16, 1, 24),
      [FIG_ALL_REDUCE_RESIDUAL] = OPERAND(FIG_BF16, 2, ROWS, 24),
      [FIG_ALL_REDUCE_OUT] = OPERAND(FIG_BF16, 2, ROWS, 24)},
     4},
    {FIG_OP_ALL_GATHER,
     {[FIG_ALL_GATHER_IN] = OPERAND(FIG_F32, 2, ROWS, 12),
      [FIG_ALL_GATHER_OUT] = OPERAND(FIG_F32, 2, ROWS, 36)},
     2},
};
enum { SOUND_COUNT = sizeof sounds / sizeof sounds[0] };

static const sound *find_sound(fig_op op) {
    for (int i = 0; i < SOUND_COUNT; i++)
        if (sounds[i].op == op) return &sounds[i];
    return NULL;
}

static const sound *sound_of(fig_op op) {
    const sound *found = find_sound(op);
    if (found == NULL) fail_msg("no sound node of operation %d", (int)op);
    return found;
}

static void apply(given *operand, const fig_edit *edit) {
    if (edit->change == FIG_EDIT_ABSENT) operand->rank = 0;
    if (edit->change == FIG_EDIT_PRESENT) *operand = (given)OPERAND(FIG_F32, 1, edit->value);
    if (edit->change == FIG_EDIT_MULTIPLE) operand->multiple = (int32_t)edit->value;
    if (edit->change == FIG_EDIT_DTYPE) operand->dtype = (fig_dtype)edit->value;
    if (edit->change == FIG_EDIT_RANK) {
        for (int64_t i = operand->rank; i < edit->value; i++)
            operand->dims[i] = 8;
        operand->rank = (int32_t)edit->value;
        for (int64_t i = edit->value; i < 4; i++)
            operand->dims[i] = 0;
    }
    if (edit->change >= FIG_EDIT_DIM) operand->dims[edit->change - FIG_EDIT_DIM] = edit->value;
}

/* Writes a sound node's attributes, up to the byte at which an edit cuts them off. */
static uint32_t attributes_of(const fig_edit *edits, size_t edit_count,
                              uint8_t bytes[ATTRIBUTE_CAPACITY]) {
    const fig_rope_spec rope = {0};
    fig_rope_spec resolved;
    const fig_attention_attributes attention = {0.125f, 0, 0};
    const fig_rms_norm_attributes norm = {1e-6f, 0};
    fig_rope_attributes turn = {.norm_epsilon = 1e-6f};
    assert_int_equal(fig_rope_spec_resolve(&rope, 128, &resolved), FIG_OK);
    memcpy(&turn.rope, &resolved, sizeof turn.rope);
    uint32_t count = fig_kernel_table[edits[0].op].attribute_least;
    memset(bytes, 0, ATTRIBUTE_CAPACITY);
    if (edits[0].op == FIG_OP_ROPE) memcpy(bytes, &turn, sizeof turn);
    if (edits[0].op == FIG_OP_ATTENTION) memcpy(bytes, &attention, sizeof attention);
    if (edits[0].op == FIG_OP_RMS_NORM || edits[0].op == FIG_OP_ALL_REDUCE)
        memcpy(bytes, &norm, sizeof norm);
    for (size_t e = 0; e < edit_count; e++) {
        const int32_t integer = (int32_t)edits[e].value;
        const float real = (float)edits[e].value / 1000.0f;
        if (edits[e].change == FIG_EDIT_INTEGER) memcpy(bytes + edits[e].operand, &integer, 4);
        if (edits[e].change == FIG_EDIT_BYTES) count = (uint32_t)edits[e].value;
        if (edits[e].change == FIG_EDIT_REAL) memcpy(bytes + edits[e].operand, &real, 4);
    }
    return count;
}

fig_status fig_edit_record(const fig_edit *edits, size_t edit_count) {
    fig_spec spec = fig_sample_spec();
    spec.row_tokens = 2;
    fig_program *program = fig_sample_program(&spec);
    const sound *node = sound_of(edits[0].op);
    uint32_t ids[OPERAND_CAPACITY] = {0}, count = node->count;
    uint8_t attributes[ATTRIBUTE_CAPACITY];
    for (uint32_t i = 0; i < node->count; i++) {
        given operand = node->operands[i];
        fig_tensor_info info = {.size = sizeof info, .role = FIG_ROLE_BOUND};
        for (size_t e = 0; e < edit_count; e++) {
            if (edits[e].operand == i) apply(&operand, &edits[e]);
            if (edits[e].change == FIG_EDIT_COUNT) count = (uint32_t)edits[e].value;
        }
        if (operand.rank == 0 || i >= count) continue;
        info.name = fig_kernel_table[node->op].operands[i].name;
        info.dtype = operand.dtype;
        info.rank = operand.rank;
        info.multiple = operand.multiple;
        memcpy(info.dims, operand.dims, sizeof info.dims);
        ids[i] = fig_program_tensor(program, &info).id;
        if (ids[i] == 0) fail_msg("operand %u: %s", i, fig_message());
    }
    for (size_t e = 0; e < edit_count; e++) {
        if (edits[e].change == FIG_EDIT_SAME_AS) ids[edits[e].operand] = ids[edits[e].value];
        if (edits[e].change == FIG_EDIT_FOREIGN) ids[edits[e].operand] = (uint32_t)edits[e].value;
    }
    const uint32_t attribute_bytes = attributes_of(edits, edit_count, attributes);
    fig_program_node(program, node->op, ids, count, attributes, attribute_bytes);
    fig_status status = fig_program_finish(program);
    if (status == FIG_OK) assert_int_equal(fig_program_check(fig_program_view_of(program)), FIG_OK);
    fig_program_destroy(program);
    return status;
}

int fig_edit_is_known(fig_op op) {
    return find_sound(op) != NULL;
}

uint32_t fig_edit_row_operands(fig_op op) {
    const sound *node = sound_of(op);
    uint32_t operands = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->operands[i].rank > 0 && node->operands[i].dims[0] == ROWS) operands |= 1u << i;
    }
    return operands;
}
