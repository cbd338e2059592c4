/* test_rows.c: tests the facts about nodes in the rows of the kernel table; test_table.c tests the
 * fields in these rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/table.h"

/* ---- Lengths of nodes */

/* The number of operands that each row had when format 1 was frozen, and the least number of bytes
 * of attributes, without a rope table. If a row gains operands or attributes, these numbers
 * stay. */
static const struct {
    fig_op op;
    uint16_t operands, bytes;
} frozen[] = {
    {FIG_OP_GATED, 2, 4},
    {FIG_OP_ROPE, 10, 36},
    {FIG_OP_APPEND_KV, 7, 0},
    {FIG_OP_ATTENTION, 10, 12},
    {FIG_OP_PLAN, 2, 0},
    {FIG_OP_RMS_NORM, 4, 8},
    {FIG_OP_MERGE_STATES, 6, 0},
    {FIG_OP_ALL_REDUCE, 4, 8},
    {FIG_OP_ALL_GATHER, 2, 0},
    {FIG_OP_DECODE_ATTENTION, 16, 48},
    {FIG_OP_LATENT_ATTENTION, 6, 8},
    {FIG_OP_LATENT_DECODE, 10, 44},
};

static void rows_keep_what_format_1_was_frozen_with(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        const fig_kernel *kernel = &fig_kernel_table[frozen[i].op];
        assert_int_equal(kernel->operand_base, frozen[i].operands);
        assert_int_equal(kernel->attribute_least, frozen[i].bytes);
    }
}

static void a_node_needs_the_operands_up_to_the_last_that_is_not_optional(void **state) {
    (void)state;
    for (fig_op op = 0; op < FIG_OP_KERNEL_COUNT; op++) {
        const fig_kernel *kernel = &fig_kernel_table[op];
        uint32_t least = 0;
        for (uint32_t i = 0; i < kernel->operand_count; i++)
            if (!kernel->operands[i].optional) least = i + 1;
        assert_int_equal(kernel->operand_least, least);
        assert_in_range(kernel->operand_base, least, kernel->operand_count);
        assert_true(kernel->attribute_least <= kernel->attribute_bytes);
    }
}

/* ---- Operands of a launch */

static const char *slot_name(const fig_kernel *kernel, uint32_t slot) {
    static const char *const turn[] = {"k", "v", "positions", "cos_sin", "q_norm", "k_norm"};
    return slot < kernel->operand_count ? kernel->operands[slot].name
                                        : turn[slot - FIG_ATTENTION_TURN_K];
}

/* The second launch's operands must have the same names as the node's. A node without `out` has no
 * second launch. */
static void the_second_launch_of_a_node_has_all_operands_that_it_reads(void **state) {
    (void)state;
    const fig_kernel *kernel = &fig_kernel_table[FIG_OP_DECODE_ATTENTION];
    const fig_kernel *then = &fig_kernel_table[kernel->then];
    uint32_t read = 0;
    assert_int_equal(kernel->then, FIG_OP_ATTENTION);
    assert_int_equal(kernel->rest.operand_count, FIG_ATTENTION_SLOT_COUNT);
    for (uint32_t slot = 0; slot < kernel->rest.operand_count; slot++) {
        const uint32_t i = kernel->rest.operands[slot] - 1u;
        assert_true(i < kernel->operand_count && !(read >> i & 1));
        read |= 1u << i;
        assert_string_equal(kernel->operands[i].name, slot_name(then, slot));
        if (slot >= then->operand_count) continue;
        assert_int_equal(kernel->operands[i].optional,
                         then->operands[slot].optional || slot == FIG_ATTENTION_OUT);
        assert_int_equal(then->operands[slot].access & ~kernel->operands[i].access, 0);
    }
    assert_int_equal(read, (1u << kernel->operand_count) - 1);
}

/* The launch of an attention node has the node's operands in order, and none that only
 * decode_attention has. */
static void attention_by_itself_turns_nothing(void **state) {
    (void)state;
    const fig_kernel *kernel = &fig_kernel_table[FIG_OP_ATTENTION];
    for (uint32_t slot = 0; slot < kernel->own.operand_count; slot++)
        assert_int_equal(kernel->own.operands[slot],
                         slot < kernel->operand_count ? FIG_SLOT(slot) : 0);
    for (int i = 0; i < kernel->field_count; i++) {
        const fig_field *field = &kernel->fields[i];
        if (strncmp(field->name, "turn.", 5) != 0) continue;
        const int is_operand = field->kind == FIG_FIELD_ADDRESS || field->kind == FIG_FIELD_STRIDE;
        if (is_operand) assert_int_equal(kernel->own.operands[field->operand], 0);
        if (field->kind == FIG_FIELD_ATTRIBUTE)
            assert_true(field->item >= kernel->own.attributes[0].bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_what_format_1_was_frozen_with),
        cmocka_unit_test(a_node_needs_the_operands_up_to_the_last_that_is_not_optional),
        cmocka_unit_test(the_second_launch_of_a_node_has_all_operands_that_it_reads),
        cmocka_unit_test(attention_by_itself_turns_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
