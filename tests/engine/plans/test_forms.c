/* test_forms.c: tests which steps of packed programs take buckets of ones, strips and drafts, that
 * all of these are right, and that such steps may follow any other.
 *
 * Invariant: sequences of one case grow from step to step, so later steps see what other buckets
 * appended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_unstable.h"
#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum { VECTORS = 24 };

static fig_chunk_case c; /* too large for the stack */

static fig_chunk_form form_of(int32_t q_heads, int32_t kv_heads, int32_t head_dim) {
    return (fig_chunk_form){.dtype = FIG_BF16,
                            .kv_dtype = FIG_BF16,
                            .q_heads = q_heads,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .page_size = 16,
                            .rows = 9,
                            .kv = 600,
                            .row_tokens = 60,
                            .query_limit = 100,
                            .share = -1};
}

static void take(const fig_chunk_step *step, uint64_t seed) {
    int32_t contents[FIG_CHUNK_ROW_LIMIT];
    for (int32_t row = 0; row < step->rows; row++)
        contents[row] = (int32_t)seed * FIG_CHUNK_ROW_LIMIT + row;
    fig_chunk_case_fill(&c, step, contents, seed);
    fig_chunk_case_run(&c, step);
    fig_chunk_case_check(&c, step, VECTORS);
}

/* Makes a step of `rows` rows, the last `idle` of which are idle. Row r continues sequence
 * rows - 1 - r. */
static fig_chunk_step ones_of(int32_t rows, int32_t idle, int32_t *ends) {
    fig_chunk_step step = {.rows = rows};
    for (int32_t row = 0; row < rows; row++) {
        const int32_t sequence = rows - 1 - row;
        step.sequences[row] = sequence;
        step.counts[row] = row < rows - idle;
        step.lengths[row] = row < rows - idle ? ++ends[sequence] : 0;
    }
    return step;
}

/* ---- Right ----------------------------------------------------------------------------------- */

/* Runs steps in each of the largest buckets of ones. */
static void try_buckets(const fig_chunk_form *form, uint64_t seed) {
    fig_bucket_info bucket = {.size = sizeof bucket};
    fig_graphs_info info = {.size = sizeof info};
    int32_t ends[FIG_CHUNK_ROW_LIMIT] = {0}, steps = 0;
    fig_chunk_case_open(&c, form, seed);
    assert_int_equal(fig_graphs_read_info(c.graphs, &info), FIG_OK);
    for (int32_t s = 0; s < form->rows; s++) /* K and V of older tokens are drawn at the opening */
        ends[s] = s == 1 ? 0 : form->kv * s / form->rows;
    for (int32_t n = 1; n <= info.bucket_count; n++) {
        assert_int_equal(fig_graphs_bucket(c.graphs, n, &bucket), FIG_OK);
        if (bucket.form != FIG_FORM_ONES || bucket.bucket.batch < form->rows ||
            bucket.bucket.kv < form->kv)
            continue;
        fig_chunk_step step = ones_of(form->rows, steps % 3, ends);
        step.bucket = n;
        take(&step, (uint64_t)steps);
        assert_int_equal(fig_chunk_case_bucket(&c).form, FIG_FORM_ONES);
        steps++;
    }
    assert_true(steps > 0);
    fig_chunk_case_close(&c);
}

static void every_bucket_of_ones_is_right(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 128, 96, 256, 80}, kv_heads[] = {8, 4, 2, 1};
    static const int32_t tokens[] = {60, 5, 1}, pages[] = {16, 8, 64, 0};
    fig_traits h200 = {.size = sizeof h200};
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    for (uint64_t i = 0; i < 15; i++) {
        const int32_t heads = kv_heads[i % 4], ratio = i % 3 == 2 ? 8 : 4;
        fig_chunk_form form = form_of(heads * ratio, heads, dims[i % 5]);
        form.kv_dtype = i % 5 == 4 ? FIG_E4M3 : form.dtype;
        form.traits = i % 2 ? &h200 : NULL;
        form.page_size = pages[i % 4];
        form.window = i % 7 == 3 ? 70 : 0;
        form.sinks = i % 7 == 4;
        form.alibi = i % 7 == 5;
        form.soft_cap = i % 7 == 6 ? 20.0f : 0.0f;
        form.row_tokens = tokens[i % 3];
        form.query_limit = 9 + 10 * (tokens[i % 3] > 1);
        try_buckets(&form, 40 + i);
    }
}

static void a_score_is_right_too(void **state) {
    (void)state;
    fig_chunk_form form = form_of(8, 2, 64);
    form.score = "score * 0.5 + 0.01 * (kv_pos - q_pos)";
    try_buckets(&form, 90);
}

/* ---- What they launch ------------------------------------------------------------------------ */

/* The program appends, then computes attention. A step also has a fetch and a look-ahead. */
static void steps_of_one_kind_have_one_launch_less(void **state) {
    (void)state;
    static const int32_t lengths[] = {50, 60}, counts[][2] = {{20, 1}, {1, 1}, {20, 9}, {3, 1}};
    static const fig_bucket_form forms[] = {FIG_FORM_ANY, FIG_FORM_ONES, FIG_FORM_STRIPS,
                                            FIG_FORM_DRAFTS};
    const fig_chunk_form form = form_of(8, 2, 64);
    fig_chunk_case_open(&c, &form, 15);
    for (int32_t i = 0; i < 4; i++) {
        const fig_step step = {
            .size = sizeof step, .rows = 2, .kv_lengths = lengths, .query_counts = counts[i]};
        const fig_measure_options how = {.size = sizeof how, .step = &step, .steps = 5};
        fig_measured measured = {.size = sizeof measured};
        fig_bucket_info bucket = {.size = sizeof bucket};
        if (fig_engine_measure(c.engine, &how, &measured) != FIG_OK) fail_msg("%s", fig_message());
        assert_int_equal(fig_graphs_bucket(c.graphs, measured.bucket, &bucket), FIG_OK);
        assert_int_equal(bucket.form > FIG_FORM_SINGLES ? bucket.form : FIG_FORM_ANY, forms[i]);
        assert_int_equal(measured.launches, i == 0 ? 5 : 4);
    }
    fig_chunk_case_close(&c);
}

/* ---- Which steps take them ------------------------------------------------------------------- */

/* Steps of all kinds follow each other; what one bucket's plan left on the device or in the host's
 * record must not reach another's. */
static void steps_of_all_kinds_follow_each_other(void **state) {
    (void)state;
    enum { N = FIG_FORM_ANY, O = FIG_FORM_ONES, S = FIG_FORM_STRIPS, D = FIG_FORM_DRAFTS };
    static const int32_t kinds[][4] = {
        {1, 1, 1, 1},   {1, 40, 1, 1}, {1, 1, 1, 1},   {3, 1, 2, 1}, {1, 1, 1, 0},  {1, 1, 0, 1},
        {20, 30, 1, 9}, {1, 1, 1, 1},  {20, 30, 9, 9}, {1, 1, 1, 1}, {0, 40, 0, 0}, {3, 0, 0, 9},
        {9, 20, 0, 11}, {0, 0, 0, 0},  {1, 0, 0, 0},   {8, 8, 8, 8}, {1, 9, 1, 2},  {0, 2, 0, 1}};
    static const fig_bucket_form forms[] = {O, N, O, D, O, N, N, O, S, O, S, N, S, O, O, D, N, D};
    fig_traits h200 = {.size = sizeof h200};
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    for (int32_t machine = 0; machine < 2; machine++) {
        fig_chunk_form form = form_of(8, 2, 64);
        int32_t ends[4] = {30, 200, 77, 410};
        form.rows = 4;
        form.traits = machine == 0 ? &h200 : NULL;
        fig_chunk_case_open(&c, &form, 7);
        for (uint64_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            fig_chunk_step step = {.rows = 4, .sequences = {2, 0, 3, 1}};
            for (int32_t row = 0; row < 4; row++) {
                const int32_t sequence = step.sequences[row];
                step.counts[row] = kinds[i][row];
                ends[sequence] += kinds[i][row];
                step.lengths[row] = kinds[i][row] > 0 ? ends[sequence] : 0;
            }
            take(&step, i);
            const fig_bucket_form form_taken = fig_chunk_case_bucket(&c).form;
            assert_int_equal(form_taken == FIG_FORM_SINGLES ? N : form_taken, forms[i]);
        }
        fig_chunk_case_close(&c);
    }
}

/* Returns the largest bucket of a form. */
static const fig_bucket_shape *largest_of(fig_bucket_form form) {
    uint32_t i = c.graphs->bucket_count;
    while (i > 0 && c.graphs->buckets[i - 1].form != form)
        i--;
    assert_true(i > 0);
    return &c.graphs->buckets[i - 1];
}

static void settle(const fig_bucket_shape *bucket, fig_plan_step step, fig_plan_held *held) {
    step.paces = bucket->paces;
    fig_plan_settle(&bucket->plan, &step, held);
}

/* In the first step some workers read rows, and others process a chunk. */
static void a_plan_without_strips_divides_no_workers(void **state) {
    (void)state;
    static const int32_t lengths[] = {240, 1307, 1314, 1321, 1328, 1335};
    static const int32_t chunk[] = {40, 1, 1, 1, 1, 1}, ones[] = {1, 1, 1, 1, 1, 1};
    fig_traits h200 = {.size = sizeof h200};
    fig_plan_held used, fresh;
    fig_chunk_form form = form_of(16, 4, 64);
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    form.traits = &h200;
    form.kv = 1500;
    fig_chunk_case_open(&c, &form, 14);
    const fig_plan_held_limits limits = fig_graphs_held_limits(c.graphs);
    fig_plan_step step = {.rows = 6, .lengths = lengths, .queries = chunk, .horizon = 1};
    assert_int_equal(fig_plan_held_init(&used, &limits), FIG_OK);
    assert_int_equal(fig_plan_held_init(&fresh, &limits), FIG_OK);
    settle(largest_of(FIG_FORM_SINGLES), step, &used);
    assert_true(used.readers[0] > 0);
    step.queries = ones;
    settle(largest_of(FIG_FORM_ONES), step, &used);
    settle(largest_of(FIG_FORM_ONES), step, &fresh);
    assert_int_equal(used.readers[0], 0);
    assert_int_equal(used.by_units, fresh.by_units);
    assert_memory_equal(used.starts[0], fresh.starts[0],
                        (size_t)largest_of(FIG_FORM_ONES)->plan.splits[0].workers *
                            sizeof *used.starts[0]);
    fig_plan_held_finish(&used);
    fig_plan_held_finish(&fresh);
    fig_chunk_case_close(&c);
}

/* A row without query tokens is idle whatever its length, and a bucket of ones would read it. */
static void an_idle_row_with_a_length_takes_another_bucket(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(8, 2, 64);
    fig_chunk_step step = {
        .rows = 3, .counts = {1, 1, 0}, .lengths = {31, 8, 20}, .sequences = {0, 1, 2}};
    fig_chunk_case_open(&c, &form, 8);
    take(&step, 0);
    assert_true(fig_chunk_case_bucket(&c).form <= FIG_FORM_SINGLES);
    step.lengths[2] = 0;
    take(&step, 1);
    assert_int_equal(fig_chunk_case_bucket(&c).form, FIG_FORM_ONES);
    fig_chunk_case_close(&c);
}

static void a_named_bucket_of_ones_takes_no_other_step(void **state) {
    (void)state;
    static const int32_t lengths[] = {50, 60}, draft[] = {1, 2}, late[] = {0, 1};
    const fig_chunk_form form = form_of(8, 2, 64);
    fig_bucket_info bucket = {.size = sizeof bucket};
    int32_t n = 1;
    fig_chunk_case_open(&c, &form, 9);
    while (bucket.form != FIG_FORM_ONES || bucket.bucket.batch < 2)
        assert_int_equal(fig_graphs_bucket(c.graphs, n++, &bucket), FIG_OK);
    fig_step step = {.size = sizeof step,
                     .rows = 2,
                     .kv_lengths = lengths,
                     .query_counts = draft,
                     .bucket = n - 1};
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "row 1 has 2 query tokens, each row of bucket"));
    step.query_counts = late;
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "row 0 has 0 query tokens"));
    step.query_counts = NULL; /* row_tokens each: more than the program's steps may have */
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_TOO_LARGE);
    fig_chunk_case_close(&c);
}

/* An idle row gets its results from the launch that strips do without. */
static void an_idle_row_with_query_tokens_takes_no_bucket_of_strips(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(8, 2, 64);
    fig_chunk_step step = {
        .rows = 3, .counts = {20, 12, 9}, .lengths = {31, 12, 0}, .sequences = {0, 1, 2}};
    fig_chunk_case_open(&c, &form, 12);
    take(&step, 0);
    assert_true(fig_chunk_case_bucket(&c).form <= FIG_FORM_SINGLES);
    step.counts[2] = 0;
    take(&step, 1);
    assert_int_equal(fig_chunk_case_bucket(&c).form, FIG_FORM_STRIPS);
    fig_chunk_case_close(&c);
}

static void a_named_bucket_of_strips_takes_no_other_step(void **state) {
    (void)state;
    static const int32_t lengths[] = {50, 60}, mixed[] = {20, 1}, chunks[] = {20, 9};
    const fig_chunk_form form = form_of(8, 2, 64);
    fig_bucket_info bucket = {.size = sizeof bucket};
    int32_t n = 1;
    fig_chunk_case_open(&c, &form, 13);
    while (bucket.form != FIG_FORM_STRIPS || bucket.bucket.batch < 2)
        assert_int_equal(fig_graphs_bucket(c.graphs, n++, &bucket), FIG_OK);
    fig_step step = {.size = sizeof step,
                     .rows = 2,
                     .kv_lengths = lengths,
                     .query_counts = mixed,
                     .bucket = n - 1};
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "row 1 is no chunk and shares no pages, bucket"));
    step.query_counts = chunks;
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_OK);
    assert_int_equal(fig_chunk_case_bucket(&c).form, FIG_FORM_STRIPS);
    fig_chunk_case_close(&c);
}

/* Deterministic graphs have one way to serve a row, and a limit below the rows leaves no room for a
 * token of each. */
static void some_graphs_have_none(void **state) {
    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        fig_chunk_form form = form_of(8, 2, 64);
        fig_graphs_info info = {.size = sizeof info};
        fig_bucket_info bucket = {.size = sizeof bucket};
        form.deterministic = i == 0;
        form.on_device = i == 1;
        if (i == 2) form.row_tokens = form.query_limit = 8;
        fig_chunk_case_open(&c, &form, 10);
        assert_int_equal(fig_graphs_read_info(c.graphs, &info), FIG_OK);
        for (int32_t n = 1; n <= info.bucket_count; n++) {
            assert_int_equal(fig_graphs_bucket(c.graphs, n, &bucket), FIG_OK);
            assert_true(bucket.form == FIG_FORM_ANY || i == 2);
            assert_true(bucket.form != FIG_FORM_ONES || bucket.bucket.batch <= 8);
        }
        fig_chunk_case_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bucket_of_ones_is_right),
        cmocka_unit_test(a_score_is_right_too),
        cmocka_unit_test(steps_of_one_kind_have_one_launch_less),
        cmocka_unit_test(steps_of_all_kinds_follow_each_other),
        cmocka_unit_test(a_plan_without_strips_divides_no_workers),
        cmocka_unit_test(an_idle_row_with_a_length_takes_another_bucket),
        cmocka_unit_test(a_named_bucket_of_ones_takes_no_other_step),
        cmocka_unit_test(an_idle_row_with_query_tokens_takes_no_bucket_of_strips),
        cmocka_unit_test(a_named_bucket_of_strips_takes_no_other_step),
        cmocka_unit_test(some_graphs_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
