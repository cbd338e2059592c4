/* test_bucket_forms.c: tests which steps of packed programs take buckets of which form. */
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
/* As above, with rows of 2; the second size has more query tokens, and behind it is one of ones. */
enum { WITH_ONES = 9, WITH_STRIPS = 10 };
static fig_bucket_shape all[WITH_STRIPS];

static void make_buckets(void) {
    for (int32_t i = 0; i < COUNT; i++) {
        const int32_t rows = i < COUNT / 2 ? 2 : 4, own = i % 4;
        fig_bucket_shape *shape = &buckets[i];
        *shape = (fig_bucket_shape){.caps = {rows, 512}, .variant = own, .form = own >= 2};
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
        buckets[i].form = FIG_FORM_ANY;
    assert_int_equal(chosen(&step), 3);
    buckets[3].variants[0].start_ns = 2000;
    assert_int_equal(chosen(&step), 2);
}

/* ---- Ones ------------------------------------------------------------------------------------ */

static void make_ones(void) {
    make_buckets();
    for (int32_t i = 0; i < WITH_ONES; i++) {
        all[i] = buckets[i % 4];
        all[i].queries = i < 4 ? 60 : 0;
        if (i < 4) all[i].plan.query_limit = 60;
    }
    all[8].form = FIG_FORM_ONES;
    all[8].variant = 4;
    all[8].variants[0].start_ns = 5000; /* never chosen by its costs */
    all[8].plan.query_limit = 0;
    all[8].plan.row_tokens = 1;
    fig_plan_lay_out(&all[8].plan);
}

static int32_t chosen_of_all(const fig_plan_step *step) {
    int32_t index = -7;
    if (fig_bucket_choose(all, WITH_ONES, step, &index) != FIG_OK) fail_msg("%s", fig_message());
    return index;
}

static void a_step_of_ones_takes_the_bucket_of_ones(void **state) {
    (void)state;
    static const int32_t one[] = {1, 1}, last_idle[] = {1, 0}, none[] = {0, 0},
                         first_idle[] = {0, 1};
    static const int32_t chunk[] = {1, 30}, large[] = {1, 100}, lengths[] = {100, 0};
    make_ones();
    fig_plan_step step = step_of(2, one);
    assert_int_equal(chosen_of_all(&step), 8);
    step = step_of(2, last_idle); /* the idle row has a length */
    assert_int_equal(chosen_of_all(&step), 3);
    step.lengths = lengths;
    assert_int_equal(chosen_of_all(&step), 8);
    step = step_of(2, first_idle);
    assert_int_equal(chosen_of_all(&step), 3);
    step = step_of(2, none);
    assert_int_equal(chosen_of_all(&step), 3);
    step = step_of(0, NULL);
    assert_int_equal(chosen_of_all(&step), 8);
    step = step_of(2, chunk);
    assert_int_equal(chosen_of_all(&step), 3);
    step = step_of(2, large);
    assert_int_equal(chosen_of_all(&step), 7);
    step = step_of(2, NULL);
    step.row_tokens = 1;
    assert_int_equal(chosen_of_all(&step), 8);
}

/* Groups need strips, which the plan of such a bucket has not. */
static void a_step_with_groups_takes_another_bucket(void **state) {
    (void)state;
    static const int32_t one[] = {1, 1};
    static const int32_t order[] = {1, 0};
    static const fig_strip_group both = {.rows = 2, .to = 64};
    const fig_plan_groups groups = {.count = 1, .of = &both, .order = order};
    make_ones();
    fig_plan_step step = step_of(2, one);
    step.groups = &groups;
    assert_int_equal(chosen_of_all(&step), 3);
}

/* Returns the bucket that a step of four rows takes among those of rows of four, if the last one is
 * for strips. */
static int32_t chosen_beside_strips(const int32_t *queries, const int32_t *lengths,
                                    const fig_plan_groups *groups, int32_t class_count) {
    int32_t index = -7;
    make_buckets();
    for (int32_t i = 0; i < 4; i++)
        all[i] = buckets[4 + i];
    all[4] = buckets[4];
    all[4].form = FIG_FORM_STRIPS;
    all[4].variant = 12;
    for (int32_t i = 0; i < 5; i++)
        all[i].plan.class_count = class_count;
    for (int32_t i = 0; i < 5; i++)
        all[i].variants[1] = all[i].variants[0], all[i].plan.splits[1] = all[i].plan.splits[0];
    fig_plan_step step = step_of(4, queries);
    step.lengths = lengths;
    step.groups = groups;
    if (fig_bucket_choose(all, 5, &step, &index) != FIG_OK) fail_msg("%s", fig_message());
    return index;
}

/* If the last bucket of the size is for drafts, steps without chunks and groups take it, but not
 * those without drafts. */
static void a_step_with_drafts_and_no_chunk_takes_the_bucket_of_drafts(void **state) {
    (void)state;
    static const int32_t lengths[] = {100, 200, 300, 400}, drafts[] = {2, 1, 8, 0};
    static const int32_t ones[] = {1, 0, 1, 1}, chunk[] = {2, 1, 9, 0}, order[] = {3, 1, 0, 2};
    static const fig_strip_group two_rows[] = {{.rows = 2, .to = 64}};
    const fig_plan_groups groups = {1, two_rows, order};
    const struct {
        const int32_t *queries;
        const fig_plan_groups *groups;
        int32_t due;
    } steps[] = {{drafts, NULL, 4}, {ones, NULL, 3}, {chunk, NULL, 1}, {drafts, &groups, 1}};
    int32_t index;
    make_buckets();
    for (int32_t i = 0; i < 5; i++)
        all[i] = buckets[4 + i % 4];
    all[4].form = FIG_FORM_DRAFTS;
    all[4].variant = 16;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        fig_plan_step step = step_of(4, steps[i].queries);
        step.lengths = lengths;
        step.groups = steps[i].groups;
        assert_int_equal(fig_bucket_choose(all, 5, &step, &index), FIG_OK);
        assert_int_equal(index, steps[i].due);
    }
    fig_plan_step step = step_of(4, chunk);
    step.bucket = 5;
    assert_int_equal(fig_bucket_choose(all, 5, &step, &index), FIG_TOO_LARGE);
    assert_string_equal(fig_message(), "step: row 2 has 9 query tokens, bucket 5 takes at most 8");
}

/* Groups may lie in each other; those of the second level have rows of the first. In a program of
 * several classes, only one class shares. */
static void a_step_without_rows_on_the_line_takes_the_bucket_of_strips(void **state) {
    (void)state;
    static const int32_t lengths[] = {100, 200, 300, 400}, idle[] = {100, 200, 0, 400};
    static const int32_t ones[] = {1, 1, 1, 1}, mixed[] = {9, 1, 0, 1}, drafts[] = {2, 8, 20, 1};
    static const int32_t chunks[] = {9, 20, 0, 50}, order[] = {3, 1, 0, 2};
    static const fig_strip_group all_rows[] = {{.rows = 4, .to = 64},
                                               {.first = 1, .rows = 2, .from = 64, .to = 80}};
    static const fig_strip_group two_rows[] = {{.rows = 2, .to = 64}};
    const fig_plan_groups all_four = {2, all_rows, order}, last_two = {1, two_rows, order};
    assert_int_equal(chosen_beside_strips(chunks, lengths, NULL, 1), 4);
    assert_int_equal(chosen_beside_strips(chunks, idle, NULL, 1), 4);
    assert_int_equal(chosen_beside_strips(chunks, lengths, NULL, 2), 4);
    assert_int_equal(chosen_beside_strips(mixed, lengths, NULL, 1), 3);
    assert_int_equal(chosen_beside_strips(ones, lengths, &all_four, 1), 4);
    assert_int_equal(chosen_beside_strips(drafts, lengths, &all_four, 1), 4);
    assert_int_equal(chosen_beside_strips(ones, lengths, &all_four, 2), 3);
    assert_int_equal(chosen_beside_strips(ones, lengths, &last_two, 1), 3);
    assert_int_equal(chosen_beside_strips(mixed, lengths, &last_two, 1), 4);
    static const int32_t idle_chunk[] = {9, 20, 10, 50};
    assert_int_equal(chosen_beside_strips(idle_chunk, idle, NULL, 1), 3);
}

/* All rows share 64 tokens. Bucket 3 is for singles, bucket 4 for strips; the launches of bucket 3,
 * or of bucket 2, which is dearer, read tails. A token has 2 KB. */
static void a_step_with_long_tails_takes_a_bucket_that_reads_them(void **state) {
    (void)state;
    static const int32_t order[] = {3, 1, 0, 2}, ones[] = {1, 1, 1, 1}, draft[] = {1, 2, 1, 1};
    static const int32_t lengths[] = {20000, 15536, 15000, 15256}; /* 65536 tokens of tails */
    static const int32_t fewer[] = {20000, 15536, 15000, 15255};
    static const fig_strip_group all_rows = {.rows = 4, .to = 64};
    const fig_plan_groups groups = {1, &all_rows, order};
    const struct {
        const int32_t *lengths, *queries;
        int32_t reader, class_count, due;
    } steps[] = {{lengths, ones, 3, 1, 3}, {fewer, ones, 3, 1, 4},    {lengths, ones, 2, 1, 2},
                 {lengths, ones, 1, 1, 4}, {lengths, draft, 3, 1, 4}, {lengths, ones, 3, 2, 3}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int32_t index = -7;
        make_buckets();
        for (int32_t n = 0; n < 5; n++) {
            all[n] = buckets[4 + n % 4];
            all[n].caps.kv = 20000;
            all[n].paces[0].serves_tails = n == steps[i].reader;
            all[n].plan.class_count = steps[i].class_count;
            all[n].variants[1] = all[n].variants[0];
            all[n].plan.splits[1] = all[n].plan.splits[0];
        }
        all[4].form = FIG_FORM_STRIPS;
        fig_plan_step step = step_of(4, steps[i].queries);
        step.lengths = steps[i].lengths;
        step.groups = &groups;
        assert_int_equal(fig_bucket_choose(all, 5, &step, &index), FIG_OK);
        assert_int_equal(index, steps[i].due);
    }
}

/* Bucket 3 is for singles and reads tails, bucket 4 is for strips. A token has 2 KB, so tails of
 * 65536 tokens are long enough. Only rows with a single query token have tails. */
static void tokens_of_other_rows_are_no_tails(void **state) {
    (void)state;
    static const int32_t order[] = {3, 1, 0, 2}, lengths[] = {70000, 40000, 40000, 70000};
    static const int32_t few[] = {70000, 400, 400, 70000};
    static const int32_t ones[] = {1, 1, 1, 1}, chunks[] = {9, 9, 9, 9}, chunk[] = {9, 1, 1, 0};
    static const fig_strip_group all_rows[] = {{.rows = 4, .to = 320},
                                               {.first = 1, .rows = 2, .from = 320, .to = 384}};
    static const fig_strip_group ones_only = {.first = 1, .rows = 2, .to = 64};
    static const int32_t ones_order[] = {0, 1, 2, 3};
    const fig_plan_groups all_four = {2, all_rows, order}, none = {.count = 0};
    const fig_plan_groups two = {1, &ones_only, ones_order};
    const struct {
        const int32_t *lengths, *queries;
        const fig_plan_groups *groups;
        int32_t due;
    } steps[] = {{lengths, ones, &all_four, 3}, {lengths, chunks, &all_four, 4},
                 {lengths, chunks, &none, 4},   {lengths, NULL, &all_four, 4},
                 {lengths, chunk, &two, 3},     {few, chunk, &two, 4}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        int32_t index = -7;
        make_buckets();
        for (int32_t n = 0; n < 5; n++) {
            all[n] = buckets[4 + n % 4];
            all[n].caps.kv = 70000;
            all[n].paces[0].serves_tails = n == 3;
        }
        all[4].form = FIG_FORM_STRIPS;
        fig_plan_step step = step_of(4, steps[i].queries);
        step.row_tokens = 9;
        step.lengths = steps[i].lengths;
        step.groups = steps[i].groups;
        assert_int_equal(fig_bucket_choose(all, 5, &step, &index), FIG_OK);
        assert_int_equal(index, steps[i].due);
    }
}

static void a_named_bucket_of_ones_takes_only_ones(void **state) {
    (void)state;
    static const int32_t one[] = {1, 1}, late[] = {0, 1}, last_idle[] = {1, 0}, draft[] = {1, 3};
    int32_t index;
    make_ones();
    fig_plan_step step = step_of(2, one);
    step.bucket = 9;
    assert_int_equal(chosen_of_all(&step), 8);
    step.queries = late;
    assert_int_equal(fig_bucket_choose(all, WITH_ONES, &step, &index), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "step: row 0 has 0 query tokens, each row of bucket 9"));
    step.queries = last_idle;
    assert_int_equal(fig_bucket_choose(all, WITH_ONES, &step, &index), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "step: row 1 has 0 query tokens"));
    step.queries = draft;
    assert_int_equal(fig_bucket_choose(all, WITH_ONES, &step, &index), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "step: row 1 has 3 query tokens"));
    step.queries = NULL;
    step.row_tokens = 100;
    assert_int_equal(fig_bucket_choose(all, WITH_ONES, &step, &index), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "step: row 0 has 100 query tokens"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_drafts_takes_the_cheapest_bucket_for_single_tokens),
        cmocka_unit_test(a_step_with_a_draft_takes_another_bucket),
        cmocka_unit_test(a_named_bucket_for_single_tokens_takes_no_draft),
        cmocka_unit_test(without_such_buckets_nothing_differs),
        cmocka_unit_test(a_step_of_ones_takes_the_bucket_of_ones),
        cmocka_unit_test(a_step_with_groups_takes_another_bucket),
        cmocka_unit_test(a_step_with_long_tails_takes_a_bucket_that_reads_them),
        cmocka_unit_test(tokens_of_other_rows_are_no_tails),
        cmocka_unit_test(a_step_with_drafts_and_no_chunk_takes_the_bucket_of_drafts),
        cmocka_unit_test(a_step_without_rows_on_the_line_takes_the_bucket_of_strips),
        cmocka_unit_test(a_named_bucket_of_ones_takes_only_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
