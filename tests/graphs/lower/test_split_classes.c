/* test_split_classes.c: tests that attention nodes with the same number of kv heads share a class,
 * and that a class covers the widest of its nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/split_classes.h"
#include "graphs/record/program.h"
#include "tests/support/files/sample.h"

static fig_program *record(const fig_sample_heads *heads, int count) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    char name[16];
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "first"));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%d", i);
        fig_sample_attention(program, name, &heads[i]);
    }
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static void classes_go_by_kv_heads_in_order_of_their_first_node(void **state) {
    (void)state;
    static const fig_sample_heads heads[] = {{8, 2, 64}, {8, 8, 64}, {16, 2, 64}, {4, 2, 128}};
    fig_program *program = record(heads, 4);
    const fig_program_view *view = fig_program_view_of(program);
    fig_split_classes classes;
    assert_int_equal(fig_split_classes_find(view, &classes), FIG_OK);
    assert_int_equal(classes.count, 2);
    assert_int_equal(classes.of[0].kv_heads, 2);
    assert_int_equal(classes.of[0].q_heads, 16);
    assert_int_equal(classes.of[0].head_dim, 128);
    assert_int_equal(classes.of[0].value_bytes, 2);
    assert_int_equal(classes.of[0].latent_bytes, 0);
    assert_int_equal(classes.of[1].kv_heads, 8);
    assert_int_equal(classes.of[1].q_heads, 8);
    static const uint32_t expected[] = {UINT32_MAX, 0, 1, 0, 0};
    for (uint32_t n = 0; n < 5; n++)
        assert_int_equal(fig_split_classes_index(&classes, view, &view->nodes[n]), expected[n]);
    fig_program_destroy(program);
}

/* Uses the sample of breadth. Layer 0 has the window; layer 1 and a third node after it have
 * none. */
static void a_window_is_a_class_of_its_own(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_program_view *view = fig_program_view_of(program);
    fig_split_classes classes;
    assert_int_equal(fig_split_classes_find(view, &classes), FIG_OK);
    assert_int_equal(classes.count, 2);
    uint32_t seen = 0;
    for (uint32_t n = 0; n < view->node_count; n++) {
        if (view->nodes[n].op != FIG_OP_ATTENTION) continue;
        assert_int_equal(fig_split_classes_index(&classes, view, &view->nodes[n]), seen++ > 0);
    }
    assert_int_equal(seen, 3);
    assert_int_equal(classes.of[0].window, 40);
    assert_int_equal(classes.of[1].window, 0);
    assert_int_equal(classes.of[0].row_tokens, 2);
    assert_int_equal(classes.of[0].value_bytes, 1);
    fig_program_destroy(program);
}

static void attend(fig_program *program, const char *name, int32_t row_tokens, fig_cache cache) {
    char out[8];
    snprintf(out, sizeof out, "%s_out", name);
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F16,
                            .rank = 3,
                            .dims = {FIG_DIM_BATCH, 8, 64},
                            .multiple = row_tokens};
    const fig_tensor q = fig_program_tensor(program, &info);
    info.name = out;
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q,
                                       .out = fig_program_tensor(program, &info), .cache = cache));
}

static void as_many_query_tokens_are_a_class(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.row_tokens = 8;
    fig_program *program = fig_sample_program(&spec);
    const fig_cache cache = fig_sample_cache(program, "c", 2, 64);
    attend(program, "a", 1, cache);
    attend(program, "b", 8, cache);
    attend(program, "d", 1, cache);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_program_view *view = fig_program_view_of(program);
    fig_split_classes classes;
    assert_int_equal(fig_split_classes_find(view, &classes), FIG_OK);
    assert_int_equal(classes.count, 2);
    assert_int_equal(classes.of[1].row_tokens, 8);
    for (uint32_t n = 0; n < 3; n++)
        assert_int_equal(fig_split_classes_index(&classes, view, &view->nodes[n]), n == 1);
    fig_program_destroy(program);
}

static void a_program_has_at_most_four_classes(void **state) {
    (void)state;
    static const fig_sample_heads heads[] = {{8, 1, 64}, {8, 2, 64}, {8, 4, 64},
                                             {8, 8, 64}, {8, 2, 64}, {16, 16, 64}};
    fig_split_classes classes;
    fig_program *program = record(heads, 5);
    assert_int_equal(fig_split_classes_find(fig_program_view_of(program), &classes), FIG_OK);
    assert_int_equal(classes.count, FIG_CLASS_LIMIT);
    fig_program_destroy(program);
    program = record(heads, 6);
    FIG_SAMPLE_REFUSES(
        fig_split_classes_find(fig_program_view_of(program), &classes), FIG_UNSUPPORTED,
        "node 6 (attention): 16 kv heads, window 0 and 1 tokens of a row need one class more");
    fig_program_destroy(program);
}

static fig_tensor tensor(fig_program *program, const char *name, fig_dtype dtype, int64_t first,
                         int64_t second, int64_t third) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype,
                             .rank = third > 0 ? 3 : 2, .dims = {first, second, third}));
}

static void the_refusal_of_a_latent_cache_names_the_bytes_of_a_token(void **state) {
    (void)state;
    static const fig_sample_heads heads[] = {{8, 1, 64}, {8, 2, 64}, {8, 4, 64}, {8, 8, 64}};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_split_classes classes;
    char name[16];
    for (int i = 0; i < FIG_CLASS_LIMIT; i++) {
        snprintf(name, sizeof name, "%d", i);
        fig_sample_attention(program, name, &heads[i]);
    }
    fig_latent_attention_op op = {.size = sizeof op, .sm_scale = 0.04f};
    op.q = tensor(program, "q", FIG_F16, FIG_DIM_BATCH, 8, 576);
    op.out = tensor(program, "out", FIG_F16, FIG_DIM_BATCH, 8, 512);
    op.cache = tensor(program, "cache", FIG_F16, FIG_DIM_PAGES, spec.page_size, 576);
    op.page_table = tensor(program, "table", FIG_I32, spec.sequence_limit,
                           (spec.kv_limit + spec.page_size - 1) / spec.page_size, 0);
    fig_latent_attention(program, &op);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    FIG_SAMPLE_REFUSES(fig_split_classes_find(fig_program_view_of(program), &classes),
                       FIG_UNSUPPORTED,
                       "node 4 (latent_attention): 1 kv heads, window 0, latents of 1152 bytes and "
                       "1 tokens of a row need one class more than the limit of 4");
    fig_program_destroy(program);
}

static void a_worker_reads_the_most_heads_that_divide(void **state) {
    (void)state;
    static const int32_t kv_heads[] = {1, 2, 3, 7, 8, 9, 10, 11, 12, 16, 20, 256};
    static const int32_t heads[] = {1, 2, 3, 7, 8, 3, 5, 1, 6, 8, 5, 8};
    for (int i = 0; i < 12; i++) {
        const fig_split_class own = {.kv_heads = kv_heads[i], .q_heads = kv_heads[i]};
        assert_int_equal(fig_split_classes_heads(&own, 1), 1);
        assert_int_equal(fig_split_classes_heads(&own, 8), heads[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_go_by_kv_heads_in_order_of_their_first_node),
        cmocka_unit_test(a_window_is_a_class_of_its_own),
        cmocka_unit_test(as_many_query_tokens_are_a_class),
        cmocka_unit_test(a_program_has_at_most_four_classes),
        cmocka_unit_test(the_refusal_of_a_latent_cache_names_the_bytes_of_a_token),
        cmocka_unit_test(a_worker_reads_the_most_heads_that_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
