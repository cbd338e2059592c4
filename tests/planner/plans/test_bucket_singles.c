/* test_bucket_singles.c: tests which steps take buckets for single query tokens, where rows may be
 * chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/bucket.h"
#include "planner/status.h"

/* Buckets of two sizes: two variants of the first form and two for single query tokens each. The
 * last one of a size is the cheapest, then the second. */
enum { COUNT = 8 };
static fig_bucket_shape buckets[COUNT];

static void make_buckets(void) {
    for (int32_t i = 0; i < COUNT; i++) {
        const int32_t rows = i < COUNT / 2 ? 2 : 4, own = i % 4;
        fig_bucket_shape *shape = &buckets[i];
        *shape =
            (fig_bucket_shape){.caps = {rows, 512}, .variant = own, .form = own >= 2};
        shape->variants[0] = (fig_variant){
            .heads = 1, .tile_tokens = 16, .start_ns = 900 - 100 * own, .bytes_per_us = 1000};
        shape->token_bytes[0] = 1024;
        shape->plan = (fig_plan_shape){
            .row_limit = rows, .class_count = 1, .row_tokens = 100, .query_limit = 200};
        shape->plan.splits[0] = (fig_split_shape){.row_limit = rows,
                                                  .groups = 2,
                                                  .tile_tokens = 16,
                                                  .workers = 8,
                                                  .row_tokens = own >= 2 ? 1 : 8};
        fig_plan_lay_out(&shape->plan);
    }
}

static fig_plan_step step_of(int32_t rows, const int32_t *queries) {
    static const int32_t lengths[] = {100, 200, 300, 400};
    return (fig_plan_step){.rows = rows, .lengths = lengths, .queries = queries, .horizon = 1};
}

static int32_t chosen(const fig_plan_step *step) {
    int32_t index = -7;
    if (fig_bucket_choose(buckets, COUNT, step, &index) != FIG_OK) fail_msg("%s", fig_message());
    return index;
}

static void a_step_without_drafts_takes_the_cheapest_bucket_for_single_tokens(void **state) {
    (void)state;
    static const int32_t decode[] = {1, 1, 1, 1}, idle[] = {0, 0, 1, 0}, beside[] = {1, 9, 1, 100};
    fig_plan_step step = step_of(2, decode);
    make_buckets();
    assert_int_equal(chosen(&step), 3);
    step = step_of(4, decode);
    assert_int_equal(chosen(&step), 7);
    step = step_of(4, idle);
    assert_int_equal(chosen(&step), 7);
    step = step_of(4, beside);
    assert_int_equal(chosen(&step), 7);
    step = step_of(4, NULL); /* row_tokens each, so all are chunks */
    buckets[4].plan.query_limit = buckets[5].plan.query_limit = 400;
    buckets[6].plan.query_limit = buckets[7].plan.query_limit = 400;
    assert_int_equal(chosen(&step), 7);
}

static void a_step_with_a_draft_takes_another_bucket(void **state) {
    (void)state;
    for (int32_t tokens = 2; tokens <= 8; tokens++) {
        const int32_t queries[] = {1, 1, tokens, 30};
        const fig_plan_step step = step_of(4, queries);
        make_buckets();
        assert_int_equal(chosen(&step), 5);
    }
}

static void a_named_bucket_for_single_tokens_takes_no_draft(void **state) {
    (void)state;
    static const int32_t draft[] = {1, 3}, decode[] = {1, 1};
    fig_plan_step step = step_of(2, draft);
    int32_t index = 7;
    make_buckets();
    step.bucket = 2;
    assert_int_equal(chosen(&step), 1);
    step.bucket = 3;
    assert_int_equal(fig_bucket_choose(buckets, COUNT, &step, &index), FIG_TOO_LARGE);
    assert_string_equal(fig_message(),
                        "step: row 1 has 3 query tokens, bucket 3 takes 1, or 9 and more");
    assert_int_equal(index, -1);
    step.queries = decode;
    assert_int_equal(chosen(&step), 2);
}

/* Only the device knows the query tokens, so any row may be a draft. Programs that read lengths
 * have no buckets for single tokens. */
static void without_such_buckets_nothing_differs(void **state) {
    (void)state;
    static const int32_t decode[] = {1, 1};
    const fig_plan_step step = step_of(2, decode);
    make_buckets();
    for (int32_t i = 0; i < COUNT; i++)
        buckets[i].form = FIG_BUCKET_OF_ANY;
    assert_int_equal(chosen(&step), 3);
    buckets[3].variants[0].start_ns = 2000;
    assert_int_equal(chosen(&step), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_drafts_takes_the_cheapest_bucket_for_single_tokens),
        cmocka_unit_test(a_step_with_a_draft_takes_another_bucket),
        cmocka_unit_test(a_named_bucket_for_single_tokens_takes_no_draft),
        cmocka_unit_test(without_such_buckets_nothing_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
