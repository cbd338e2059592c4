/* test_divide.c: tests the graphs of one rank out of several.
 *
 * They are compared with graphs of the program that a rank would record from its own spec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_parallel.h"
#include "include/figraph_unstable.h"
#include "tests/support/fault.h"
#include "tests/support/files/capture.h"
#include "tests/support/files/sample.h"
#include "tests/support/files/sink.h"
#include "tools/figraph/inspect/inspect_print.h"

static fig_graphs *share_of(const fig_graphs *model, int32_t ranks) {
    fig_graphs *share;
    if (fig_graphs_rank(&share, model, ranks) != FIG_OK) fail_msg("%s", fig_message());
    return share;
}

static fig_graphs *lower(const fig_spec *spec, const char *traits) {
    const fig_lower_target target = fig_sample_target(traits);
    return fig_sample_lower(spec, FIG_OPTIONS(fig_lower_options, .traits = &target.traits));
}

/* Compares everything that a file of the graphs would hold. */
static void assert_alike(const fig_graphs *a, const fig_graphs *b) {
    uint8_t *bytes_a, *bytes_b;
    size_t count_a, count_b;
    assert_int_equal(fig_graphs_write(a, &bytes_a, &count_a), FIG_OK);
    assert_int_equal(fig_graphs_write(b, &bytes_b, &count_b), FIG_OK);
    assert_int_equal(count_a, count_b);
    assert_memory_equal(bytes_a, bytes_b, count_a);
    free(bytes_a);
    free(bytes_b);
}

static void a_share_equals_what_a_rank_records_by_itself(void **state) {
    (void)state;
    static const char *const machines[] = {"host", "h200"};
    const fig_spec model = fig_sample_spec();
    for (int m = 0; m < 2; m++) {
        fig_graphs *whole = lower(&model, machines[m]);
        /* there are 2 kv heads, so ranks may share one */
        for (int32_t ranks = 1; ranks <= 4; ranks *= 2) {
            fig_spec spec = {.size = sizeof spec};
            assert_int_equal(fig_spec_rank(&spec, &model, ranks), FIG_OK);
            fig_graphs *own = lower(&spec, machines[m]), *share = share_of(whole, ranks);
            assert_alike(share, own);
            fig_graphs_destroy(own);
            fig_graphs_destroy(share);
        }
        fig_graphs_destroy(whole);
    }
}

static fig_tensor rows(fig_program *program, const char *name, int64_t width) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name,
                                                   .role = FIG_ROLE_BOUND, .dtype = FIG_F16,
                                                   .rank = 2, .dims = {FIG_DIM_BATCH, width}));
}

static int64_t dim_of(const fig_graphs *graphs, const char *name, int dim) {
    fig_tensor_info info = {.size = sizeof info};
    for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++)
        if (strcmp(info.name, name) == 0) return info.dims[dim];
    fail_msg("no tensor %s", name);
    return 0;
}

static void every_operation_is_divided_as_the_table_says(void **state) {
    (void)state;
    fig_graphs *whole = fig_capture_mixed(), *share = share_of(whole, 2);
    const fig_program_view *view = fig_program_view_of(whole->program);
    const fig_program_view *part = fig_program_view_of(share->program);
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        for (uint32_t i = 0; i < node->operand_count && node->op != FIG_OP_CALL; i++) {
            const fig_operand *operand = &fig_kernel_table[node->op].operands[i];
            const uint32_t id = view->operands[node->operand + i];
            for (int d = 0; d < 4 && id != 0; d++) {
                const int64_t dim = view->tensors[id - 1].dims[d];
                const int divided = operand->share != FIG_SHARE_WHOLE && operand->dim == d;
                const int64_t expected = !divided ? dim : dim == 1 ? 1 : dim / 2;
                assert_int_equal(part->tensors[id - 1].dims[d], expected);
            }
        }
    }
    fig_graphs_destroy(share);
    fig_graphs_destroy(whole);
}

static void tensors_of_callbacks_alone_stay_whole(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    static const fig_bucket bucket[] = {{6, 200}};
    fig_program *program = fig_sample_program(&spec);
    fig_graphs *whole;
    const fig_tensor in = rows(program, "in", 48);
    const fig_tensor gate_up = rows(program, "gate_up", 64);
    const fig_tensor act = rows(program, "act", 32);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "gemm", .reads = &in, .read_count = 1,
                                  .writes = &gate_up, .write_count = 1));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = act));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&whole, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = bucket, .bucket_count = 1)),
        FIG_OK);
    fig_program_destroy(program);
    fig_graphs *share = share_of(whole, 4);
    fig_graphs_destroy(whole); /* a share outlives its model */
    assert_int_equal(dim_of(share, "in", 1), 48);
    assert_int_equal(dim_of(share, "gate_up", 1), 16);
    assert_int_equal(dim_of(share, "act", 1), 8);
    fig_graphs_destroy(share);
}

static void an_operation_that_needs_it_whole_is_named(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_graphs *whole, *share = NULL;
    fig_rms_norm_op norm = {.size = sizeof norm};
    const fig_tensor gate_up = rows(program, "gate_up", 64);
    norm.in = norm.out = rows(program, "act", 32);
    norm.weight = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "weight", .role = FIG_ROLE_BOUND,
                             .dtype = spec.dtype, .rank = 1, .dims = {32}));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = gate_up, .out = norm.in));
    fig_rms_norm(program, &norm);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(fig_graphs_lower(&whole, program, NULL), FIG_OK);
    fig_program_destroy(program);
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&share, whole, 2), FIG_INVALID,
                       "tensor act: node 0 (gated) and node 1 (rms_norm) differ");
    assert_null(share);
    fig_graphs_destroy(whole);
}

static void indivisible_models_and_shares_of_shares_are_refused(void **state) {
    (void)state;
    fig_graphs *whole = fig_sample_graphs(), *share = share_of(whole, 2), *none = share;
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&none, whole, 3), FIG_INVALID, "q_heads is 8");
    assert_null(none);
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&none, whole, 0), FIG_INVALID, "ranks is 0");
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&none, share, 2), FIG_INVALID, "a share of 2 ranks already");
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&none, NULL, 2), FIG_INVALID, "NULL");
    FIG_SAMPLE_REFUSES(fig_graphs_save(share, "share.fig"), FIG_UNSUPPORTED,
                       "share.fig: these are the share of one of 2 ranks");
    fig_graphs_destroy(share);
    fig_graphs_destroy(whole);
}

/* A tensor has other heads than the spec, which only its dims show. */
static void a_tensor_that_does_not_divide_is_named(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    static const fig_bucket bucket[] = {{6, 200}};
    fig_program *program = fig_sample_program(&spec);
    fig_graphs *whole, *share;
    const fig_sample_heads heads = {3, 3, 64};
    fig_sample_attention(program, "odd", &heads);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&whole, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = bucket, .bucket_count = 1)),
        FIG_OK);
    fig_program_destroy(program);
    FIG_SAMPLE_REFUSES(fig_graphs_rank(&share, whole, 2), FIG_INVALID,
                       "is 3, which 2 ranks do not divide");
    fig_graphs_destroy(whole);
}

static void inspection_tells_a_share_from_its_model(void **state) {
    (void)state;
    static fig_sink sink;
    fig_graphs *whole = fig_sample_graphs(), *share = share_of(whole, 4);
    fig_print_options options = {0};
    sink.count = 0;
    assert_int_equal(fig_inspect_print(whole, &options, fig_sink_take, &sink), FIG_OK);
    assert_null(strstr(sink.text, "share"));
    sink.count = 0;
    assert_int_equal(fig_inspect_print(share, &options, fig_sink_take, &sink), FIG_OK);
    assert_non_null(strstr(sink.text, "of one of 4 ranks; the model has 8 q heads, 2 kv heads, "
                                      "width 32"));
    assert_non_null(strstr(sink.text, "2 q heads, 1 kv heads"));
    options.format = FIG_PRINT_JSON;
    sink.count = 0;
    assert_int_equal(fig_inspect_print(share, &options, fig_sink_take, &sink), FIG_OK);
    assert_non_null(strstr(sink.text, "\"ranks\": 4"));
    fig_graphs_destroy(share);
    fig_graphs_destroy(whole);
}

static void each_call_that_fails_is_reported(void **state) {
    (void)state;
    fig_graphs *whole = fig_sample_graphs(), *share;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        const fig_status status = fig_graphs_rank(&share, whole, 2);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(share);
    }
    fig_graphs_destroy(share);
    fig_graphs_destroy(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_equals_what_a_rank_records_by_itself),
        cmocka_unit_test(every_operation_is_divided_as_the_table_says),
        cmocka_unit_test(tensors_of_callbacks_alone_stay_whole),
        cmocka_unit_test(an_operation_that_needs_it_whole_is_named),
        cmocka_unit_test(indivisible_models_and_shares_of_shares_are_refused),
        cmocka_unit_test(a_tensor_that_does_not_divide_is_named),
        cmocka_unit_test(inspection_tells_a_share_from_its_model),
        cmocka_unit_test(each_call_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
