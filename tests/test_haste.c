/* test_haste.c: attention may begin before the launch before it has ended where nothing that it
 * reads by then is one launch up, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower.h"
#include "tests/support/sample.h"

/* What a bucket's launch of the program's n-th attention has of `mask`, of what was found. */
static uint32_t taken_of(fig_program *program, int n, uint32_t mask) {
    const fig_lower_target target = fig_sample_target("h200");
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape shape = {.caps = {4, 100}};
    fig_workspace workspace;
    fig_lower_order order;
    fig_lowered lowered;
    uint32_t flags = UINT32_MAX;
    assert_int_equal(fig_lower_shape(view, &target, 0, &shape), FIG_OK);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(fig_lower_order_init(&order, view), FIG_OK);
    for (uint32_t i = 0; i < fig_lower_launch_count(view); i++)
        order.haste[i] &= mask;
    const fig_lower_source source = {view, &order, &workspace};
    assert_int_equal(fig_lower_bucket(&source, &shape, &lowered), FIG_OK);
    for (uint32_t i = 0; i < lowered.launch_count; i++) {
        const fig_launch *launch = &lowered.launches[i];
        if (launch->op != FIG_OP_ATTENTION || n-- > 0) continue;
        const uint8_t *params = lowered.params + launch->params;
        memcpy(&flags, params + offsetof(fig_attention_params, flags), sizeof flags);
        break;
    }
    fig_lower_finish(&lowered);
    fig_lower_order_finish(&order);
    fig_workspace_finish(&workspace);
    return flags;
}

/* FIG_ATTENTION_* of the program's n-th attention. */
static uint32_t haste_of(fig_program *program, int n) {
    return taken_of(program, n, UINT32_MAX);
}

static void finish(fig_program *program) {
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
}

static void behind_the_append_of_a_step_attention_may_begin_early(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(haste_of(program, 0), FIG_ATTENTION_EARLY);
    assert_int_equal(haste_of(program, 1), FIG_ATTENTION_EARLY);
    fig_program_destroy(program);
}

/* The plan is one launch up. The second waits for the first, as they share a workspace. */
static void behind_the_fetch_it_waits(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    const fig_sample_heads heads = {4, 2, 64};
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "a", &heads);
    fig_sample_attention(program, "b", &heads);
    finish(program);
    assert_int_equal(haste_of(program, 0), 0);
    assert_int_equal(haste_of(program, 1), FIG_ATTENTION_EARLY);
    fig_program_destroy(program);
}

/* Attention behind a launch of its own class, and a writer of its cache. */
static fig_program *program_of(int calls) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_sample_heads heads = {4, 2, 64};
    fig_sample_attention(program, "a", &heads);
    const fig_cache cache = fig_sample_cache(program, "c", 2, 64);
    const fig_tensor q = fig_sample_rows(program, "q", 4, 64);
    const fig_tensor out = fig_sample_rows(program, "out", 4, 64);
    if (calls) {
        fig_call(program,
                 FIG_OPTIONS(fig_call_op, .call = "fill", .writes = &cache.v, .write_count = 1));
    } else {
        const fig_tensor new_rows = fig_sample_rows(program, "new", 2, 64);
        fig_append_kv(program,
                      FIG_OPTIONS(fig_append_kv_op, .k = new_rows, .v = new_rows, .cache = cache));
    }
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    finish(program);
    return program;
}

static void a_cache_that_a_call_writes_is_waited_for(void **state) {
    (void)state;
    fig_program *appends = program_of(0), *calls = program_of(1);
    assert_int_equal(haste_of(appends, 1), FIG_ATTENTION_EARLY);
    assert_int_equal(haste_of(calls, 1), 0);
    fig_program_destroy(appends);
    fig_program_destroy(calls);
}

/* A program with many launches and many buckets would take minutes to load otherwise. */
static void it_is_found_once_for_all_buckets(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    assert_int_equal(taken_of(program, 0, FIG_ATTENTION_EARLY), FIG_ATTENTION_EARLY);
    assert_int_equal(taken_of(program, 0, 0), 0);
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_the_append_of_a_step_attention_may_begin_early),
        cmocka_unit_test(behind_the_fetch_it_waits),
        cmocka_unit_test(a_cache_that_a_call_writes_is_waited_for),
        cmocka_unit_test(it_is_found_once_for_all_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
