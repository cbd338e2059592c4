/* test_decode_step.c: the standard step has the nodes, names and forms that the public header
 * promises, for any spec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "planner/spec.h"
#include "tests/support/sample.h"

/* Dims past the rank are 1; a symbolic one is given as the recorder takes it. */
static void assert_tensor(const fig_program *program, const char *name, fig_role role,
                          const int64_t dims[4]) {
    const fig_program_view *view = fig_program_view_of(program);
    const fig_tensor tensor = fig_program_find(program, name);
    if (tensor.id == 0) fail_msg("no tensor %s", name);
    const fig_tensor_record *record = &view->tensors[tensor.id - 1];
    int64_t own[4];
    int32_t rank = 0;
    memcpy(own, record->dims, sizeof own);
    if (record->symbol == FIG_SYMBOL_BATCH) own[0] = FIG_DIM_BATCH;
    if (record->symbol == FIG_SYMBOL_PAGES) own[0] = FIG_DIM_PAGES;
    while (rank < 4 && dims[rank] != 0)
        rank++;
    assert_int_equal(record->role, role);
    assert_int_equal(record->rank, rank);
    for (int32_t i = 0; i < rank; i++) {
        if (own[i] != dims[i])
            fail_msg("%s: dims[%d] is %lld, not %lld", name, i, (long long)own[i],
                     (long long)dims[i]);
    }
}

static void the_sample_has_the_promised_tensors(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const int64_t q[4] = {FIG_DIM_BATCH, 8, 64}, k[4] = {FIG_DIM_BATCH, 2, 64};
    const int64_t cache[4] = {FIG_DIM_PAGES, 16, 2, 64}, table[4] = {9, 13};
    const int64_t gate_up[4] = {FIG_DIM_BATCH, 64}, act[4] = {FIG_DIM_BATCH, 32};
    assert_tensor(program, "page_table", FIG_STATE, table);
    assert_tensor(program, "gate_up.1", FIG_BOUND, gate_up);
    assert_tensor(program, "act.1", FIG_BOUND, act);
    assert_tensor(program, "q.1", FIG_BOUND, q);
    assert_tensor(program, "k.1", FIG_BOUND, k);
    assert_tensor(program, "v.1", FIG_BOUND, k);
    assert_tensor(program, "k_cache.1", FIG_BOUND, cache);
    assert_tensor(program, "v_cache.1", FIG_BOUND, cache);
    assert_tensor(program, "out.1", FIG_BOUND, q);
    assert_int_equal(fig_program_view_of(program)->tensor_count, 1 + 2 * 8);
    fig_program_destroy(program);
}

static void layers_carry_their_number_and_the_nodes_their_order(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    static const fig_op ops[] = {FIG_OP_SILU_AND_MUL, FIG_OP_ROPE, FIG_OP_APPEND_KV,
                                 FIG_OP_ATTENTION};
    assert_int_equal(view->node_count, 8);
    for (uint32_t n = 0; n < 8; n++) {
        assert_int_equal(view->nodes[n].op, ops[n % 4]);
        assert_int_equal(view->nodes[n].layer, n / 4);
    }
    const uint32_t *rope = view->operands + view->nodes[5].operand;
    assert_string_equal(fig_program_tensor_name(view, rope[FIG_ROPE_Q]), "q.1");
    assert_int_equal(rope[FIG_ROPE_Q_OUT], rope[FIG_ROPE_Q]);
    assert_int_equal(rope[FIG_ROPE_K_OUT], rope[FIG_ROPE_K]);
    fig_program_destroy(program);
}

static void without_width_and_pages_there_is_no_activation_and_no_table(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.ffn_width = 0;
    spec.page_size = 0;
    fig_program *program = fig_sample_step(&spec);
    const int64_t cache[4] = {FIG_DIM_PAGES, 200, 2, 64};
    assert_int_equal(fig_program_view_of(program)->node_count, 6);
    assert_int_equal(fig_program_find(program, "page_table").id, 0);
    assert_int_equal(fig_program_find(program, "act.0").id, 0);
    assert_tensor(program, "k_cache.0", FIG_BOUND, cache);
    fig_program_destroy(program);
}

static void every_preset_and_the_most_layers_record(void **state) {
    (void)state;
    fig_spec spec;
    const char *name;
    for (int32_t i = 0; (name = fig_spec_preset_name(i)) != NULL; i++) {
        assert_int_equal(fig_spec_preset(&spec, name), FIG_OK);
        spec.layers = i == 0 ? FIG_LAYER_LIMIT : spec.layers;
        fig_program *program = fig_sample_step(&spec);
        assert_int_equal(fig_program_check(fig_program_view_of(program)), FIG_OK);
        assert_int_equal(fig_program_view_of(program)->node_count, 4 * spec.layers);
        fig_program_destroy(program);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_has_the_promised_tensors),
        cmocka_unit_test(layers_carry_their_number_and_the_nodes_their_order),
        cmocka_unit_test(without_width_and_pages_there_is_no_activation_and_no_table),
        cmocka_unit_test(every_preset_and_the_most_layers_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
