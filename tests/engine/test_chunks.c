/* test_chunks.c: compares steps that hold decode rows, drafts and chunks of prompts with float64,
 * vector by vector, in every form of attention.
 *
 * Invariant: sequences of one case grow from step to step, so later chunks see earlier ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum { STEPS = 3, VECTORS = 24 };
/* Sanitizers look for races and wrong accesses, not for wrong numbers, and slow kernels down up to
 * thirty times. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { SMALLER = 5 };
#else
enum { SMALLER = 1 };
#endif

static fig_chunk_case c; /* too large for the stack */

static fig_chunk_form whole_form_of(fig_dtype dtype, int32_t q_heads, int32_t kv_heads,
                                    int32_t head_dim) {
    return (fig_chunk_form){.dtype = dtype,
                            .kv_dtype = dtype,
                            .q_heads = q_heads,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .page_size = 16,
                            .rows = 7,
                            .kv = 700,
                            .row_tokens = 200,
                            .query_limit = 420};
}

/* Returns a form whose steps are drawn at random. */
static fig_chunk_form form_of(fig_dtype dtype, int32_t q_heads, int32_t kv_heads,
                              int32_t head_dim) {
    fig_chunk_form form = whole_form_of(dtype, q_heads, kv_heads, head_dim);
    form.kv /= SMALLER;
    form.row_tokens /= SMALLER;
    form.query_limit /= SMALLER;
    return form;
}

/* Draws a number of query tokens: none, a token, a draft, the shortest chunk, any chunk. */
static int32_t draw_count(const fig_chunk_form *f, fig_random *random, int32_t left) {
    const int32_t most = fig_size_min(f->row_tokens, left);
    int32_t count = 0;
    switch (fig_random_range(random, 0, 5)) {
    case 0: count = 0; break;
    case 1: count = 1; break;
    case 2: count = fig_random_range(random, 2, 8); break;
    case 3: count = fig_random_range(random, 8, 10); break;
    default: count = fig_random_range(random, 9, f->row_tokens); break;
    }
    return fig_size_min(count, most);
}

static void try_form(const fig_chunk_form *form, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    fig_chunk_case_open(&c, form, seed);
    fig_chunk_case_try(&c, &random, seed, STEPS, VECTORS, draw_count);
    fig_chunk_case_close(&c);
}

/* ---- Forms ----------------------------------------------------------------------------------- */

static void every_head_dim_and_group_is_right(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 80, 96, 128, 256}, groups[] = {1, 2, 3, 5, 8, 16};
    for (uint64_t i = 0; i < 10; i++) {
        const int32_t group = groups[i % 6], kv_heads = 1 + (int32_t)(i % 2);
        fig_chunk_form form =
            form_of(i % 3 == 0 ? FIG_F16 : FIG_BF16, group * kv_heads, kv_heads, dims[i % 5]);
        if (group == 16) form.query_limit = 260 / SMALLER;
        try_form(&form, 100 + i);
    }
}

static void every_page_size_is_right(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 2, 3, 4, 8, 16, 24, 32, 64, 0};
    for (uint64_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
        form.page_size = sizes[i];
        form.hnd = i % 2 != 0;
        try_form(&form, 200 + i);
    }
}

static void windows_caps_sinks_and_alibi_are_right(void **state) {
    (void)state;
    static const int32_t windows[] = {0, 1, 5, 33, 128, 300, 100000};
    for (uint64_t i = 0; i < 14; i++) {
        fig_chunk_form form = form_of(i % 2 ? FIG_F16 : FIG_BF16, 6, 2, i % 4 == 3 ? 128 : 64);
        form.window = windows[i % 7];
        form.soft_cap = i % 3 == 1 ? 20.0f : 0.0f;
        form.sinks = i % 4 == 1;
        form.alibi = i % 5 == 2;
        try_form(&form, 300 + i);
    }
}

static void caches_of_8_bits_are_right(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        fig_chunk_form form = form_of(FIG_BF16, 8, 2, i % 2 ? 128 : 64);
        form.kv_dtype = i % 3 == 0 ? FIG_E5M2 : FIG_E4M3;
        form.scales = i % 3 == 2 ? 0 : i % 3 == 1 ? 2 : 1;
        form.window = i == 4 ? 77 : 0;
        try_form(&form, 400 + i);
    }
}

static void caches_of_32_bits_are_right(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        fig_chunk_form form = form_of(FIG_F32, 4, 2, i ? 128 : 64);
        form.sinks = form.alibi = (int32_t)i;
        try_form(&form, 500 + i);
    }
}

static void a_chunk_of_4096_tokens_is_right(void **state) {
    (void)state;
    fig_chunk_form form = form_of(FIG_BF16, 1, 1, 64);
    const int32_t contents[3] = {0, 1, 2};
    const int32_t chunk = 4096 / SMALLER;
    form.rows = 3;
    form.kv = chunk + 104;
    form.row_tokens = chunk;
    form.query_limit = chunk + 4;
    const fig_chunk_step step = {.rows = 3,
                                 .counts = {1, chunk, 3},
                                 .lengths = {chunk + 104, chunk + 4, 50},
                                 .sequences = {2, 0, 1}};
    fig_chunk_case_open(&c, &form, 5);
    fig_chunk_case_fill(&c, &step, contents, 5);
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, 200);
    fig_chunk_case_close(&c);
}

/* ---- Rows beside other rows ------------------------------------------------------------------ */

/* Copies the results of a row of the step. */
static uint8_t *take_row(const fig_chunk_step *step, int32_t row, size_t *bytes) {
    const fig_chunk_form *f = &c.form;
    const size_t width = (size_t)f->q_heads * (size_t)f->head_dim * 2;
    size_t first = 0;
    for (int32_t r = 0; r < row; r++)
        first += (size_t)step->counts[r];
    *bytes = (size_t)step->counts[row] * width;
    uint8_t *copy = malloc(*bytes + 1);
    assert_non_null(copy);
    memcpy(copy, (const uint8_t *)c.out.data + first * width, *bytes);
    return copy;
}

/* In deterministic graphs, the bits of a row do not depend on other rows. */
static void a_fixed_row_has_its_bits_whatever_stands_beside_it(void **state) {
    (void)state;
    fig_chunk_form form = whole_form_of(FIG_BF16, 4, 2, 64);
    const fig_chunk_step among = {.rows = 4,
                                  .counts = {1, 150, 4, 120},
                                  .lengths = {600, 650, 90, 130},
                                  .sequences = {3, 5, 0, 1}};
    const fig_chunk_step alone = {.rows = 1, .counts = {150}, .lengths = {650}, .sequences = {5}};
    const int32_t contents[4] = {0, 1, 2, 3}, own[1] = {1};
    size_t bytes, own_bytes;
    form.deterministic = 1;
    fig_chunk_case_open(&c, &form, 9);
    fig_chunk_case_fill(&c, &among, contents, 3);
    fig_chunk_case_run(&c, &among);
    fig_chunk_case_check(&c, &among, VECTORS);
    uint8_t *first = take_row(&among, 1, &bytes);
    fig_chunk_case_fill(&c, &alone, own, 3);
    fig_chunk_case_run(&c, &alone);
    uint8_t *second = take_row(&alone, 0, &own_bytes);
    assert_int_equal(bytes, own_bytes);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
    fig_chunk_case_close(&c);
}

/* A step without chunks must not run the strips of the step before it, which had chunks. */
static void strips_of_an_older_step_are_not_run_again(void **state) {
    (void)state;
    const fig_chunk_form form = whole_form_of(FIG_F16, 4, 2, 64);
    const fig_chunk_step steps[] = {
        {.rows = 2, .counts = {100, 1}, .lengths = {100, 40}, .sequences = {0, 1}},
        {.rows = 2, .counts = {1, 1}, .lengths = {101, 41}, .sequences = {0, 1}},
        {.rows = 0},
        {.rows = 2, .counts = {1, 1}, .lengths = {102, 42}, .sequences = {0, 1}},
        {.rows = 2, .counts = {8, 9}, .lengths = {110, 51}, .sequences = {0, 1}},
        {.rows = 2, .counts = {8, 9}, .lengths = {110, 51}, .sequences = {1, 0}},
        {.rows = 1, .counts = {9}, .lengths = {0}, .sequences = {0}}};
    const int32_t contents[2] = {0, 1};
    fig_chunk_case_open(&c, &form, 11);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        fig_chunk_case_fill(&c, &steps[i], contents, i);
        fig_chunk_case_run(&c, &steps[i]);
        fig_chunk_case_check(&c, &steps[i], VECTORS);
    }
    fig_chunk_case_close(&c);
}

/* ---- Division -------------------------------------------------------------------------------- */

/* Returns what the planner makes of the step. */
static fig_plan_report report_of(const fig_chunk_step *step) {
    fig_plan_report report = {.size = sizeof report};
    const fig_status status =
        fig_graphs_plan(c.graphs,
                        FIG_OPTIONS(fig_step, .rows = step->rows, .kv_lengths = step->lengths,
                                    .sequences = step->sequences, .query_counts = step->counts),
                        &report);
    if (status != FIG_OK) fail_msg("%s", fig_message());
    return report;
}

/* Runs and checks a chunk, an idle row and decode rows, and expects the step to be divided. */
static void try_divided(const fig_chunk_form *form, int32_t chunk, uint64_t n) {
    fig_chunk_step step = {.rows = form->rows};
    int32_t contents[FIG_CHUNK_ROW_LIMIT];
    for (int32_t row = 0; row < step.rows; row++) {
        step.counts[row] = row == 0 ? chunk : row > 1;
        step.lengths[row] = row == 0 ? chunk + 200 : 1300 + 7 * row + (int32_t)n;
        step.sequences[row] = row;
        contents[row] = (int32_t)n * FIG_CHUNK_ROW_LIMIT + row;
    }
    const fig_plan_report report = report_of(&step);
    fig_bucket_info bucket = {.size = sizeof bucket};
    assert_int_equal(fig_graphs_bucket(c.graphs, report.bucket, &bucket), FIG_OK);
    assert_int_equal(bucket.row_queries, 1);
    assert_true(report.readers > 0);
    fig_chunk_case_fill(&c, &step, contents, n);
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, VECTORS);
}

/* Graphs for an H200 divide its workers between rows and chunks, on whatever device they run. */
static void rows_and_chunks_of_a_divided_machine_are_right(void **state) {
    (void)state;
    fig_traits h200 = {.size = sizeof h200};
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    for (uint64_t i = 0; i < (SMALLER > 1 ? 1 : 3); i++) {
        fig_chunk_form form = whole_form_of(i % 2 ? FIG_F16 : FIG_BF16, 16, 4, 64);
        form.traits = &h200;
        form.rows = 12;
        form.kv = 1500;
        form.sinks = i == 2;
        fig_chunk_case_open(&c, &form, 600 + i);
        try_divided(&form, 40, 0);
        try_divided(&form, 100, 1);
        try_divided(&form, 9, 2);
        fig_chunk_case_close(&c);
    }
}

/* ---- Single query tokens --------------------------------------------------------------------- */

/* Draws a decode row, a chunk or an idle row. */
static int32_t draw_no_draft(const fig_chunk_form *f, fig_random *random, int32_t left) {
    const int32_t most = fig_size_min(f->row_tokens, left);
    if (most < 9 || fig_random_range(random, 0, 3) > 0)
        return fig_size_min(most, fig_random_range(random, 0, 4) > 0);
    return fig_random_range(random, 9, most);
}

/* Runs a step without drafts in each of the largest buckets for single query tokens. Returns the
 * number of these buckets. */
static int32_t try_singles(const fig_chunk_form *form, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    fig_bucket_info bucket = {.size = sizeof bucket};
    int32_t ends[FIG_CHUNK_ROW_LIMIT] = {0}, contents[FIG_CHUNK_ROW_LIMIT], steps = 0;
    fig_chunk_case_open(&c, form, seed);
    fig_graphs_info info = {.size = sizeof info};
    assert_int_equal(fig_graphs_read_info(c.graphs, &info), FIG_OK);
    assert_int_equal(fig_graphs_bucket(c.graphs, info.bucket_count, &bucket), FIG_OK);
    for (int32_t n = bucket.size_first; n <= info.bucket_count; n++) {
        assert_int_equal(fig_graphs_bucket(c.graphs, n, &bucket), FIG_OK);
        if (bucket.form != FIG_FORM_SINGLES) continue;
        fig_chunk_step step = fig_chunk_case_draw(form, &random, ends, draw_no_draft);
        step.bucket = n;
        for (int32_t row = 0; row < step.rows; row++)
            contents[row] = steps * FIG_CHUNK_ROW_LIMIT + row;
        fig_chunk_case_fill(&c, &step, contents, seed);
        fig_chunk_case_run(&c, &step);
        fig_chunk_case_check(&c, &step, VECTORS);
        steps++;
    }
    fig_chunk_case_close(&c);
    return steps;
}

static void every_variant_for_single_query_tokens_is_right(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 128, 96, 256}, kv_heads[] = {8, 4, 2, 1};
    fig_traits h200 = {.size = sizeof h200};
    assert_int_equal(fig_traits_named(&h200, "h200"), FIG_OK);
    for (uint64_t i = 0; i < 12; i++) {
        const int32_t heads = kv_heads[i % 4], ratio = i % 3 == 2 ? 8 : 4;
        fig_chunk_form form =
            form_of(i % 2 ? FIG_F16 : FIG_BF16, heads * ratio, heads, dims[i < 8 ? i / 4 : i % 4]);
        form.kv_dtype = i % 5 == 4 ? FIG_E4M3 : form.dtype;
        form.traits = &h200;
        form.window = i == 3 ? 70 : 0;
        form.row_tokens = 40;
        form.query_limit = 90;
        assert_true(try_singles(&form, 700 + i) > 0);
    }
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void programs_that_chunks_do_not_support_are_refused(void **state) {
    (void)state;
    const fig_chunk_form form = whole_form_of(FIG_F16, 2, 1, 64);
    const int32_t lengths[] = {300}, counts[] = {201};
    fig_chunk_case_open(&c, &form, 13);
    assert_int_equal(
        fig_engine_step(c.engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = lengths,
                                              .query_counts = counts)),
        FIG_INVALID);
    assert_non_null(strstr(fig_message(), "limits 0 to 200"));
    assert_int_equal(fig_engine_step(c.engine, FIG_OPTIONS(fig_step, .rows = 1,
                                                           .kv_lengths = lengths, .horizon = 2)),
                     FIG_INVALID);
    assert_non_null(strstr(fig_message(), "row_tokens, 200"));
    fig_chunk_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_dim_and_group_is_right),
        cmocka_unit_test(every_page_size_is_right),
        cmocka_unit_test(windows_caps_sinks_and_alibi_are_right),
        cmocka_unit_test(caches_of_8_bits_are_right),
        cmocka_unit_test(caches_of_32_bits_are_right),
        cmocka_unit_test(a_chunk_of_4096_tokens_is_right),
        cmocka_unit_test(a_fixed_row_has_its_bits_whatever_stands_beside_it),
        cmocka_unit_test(strips_of_an_older_step_are_not_run_again),
        cmocka_unit_test(rows_and_chunks_of_a_divided_machine_are_right),
        cmocka_unit_test(every_variant_for_single_query_tokens_is_right),
        cmocka_unit_test(programs_that_chunks_do_not_support_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
