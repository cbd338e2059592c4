/* test_device_chunks.c: steps with chunks of prompts whose plans the device makes, from lengths and
 * query_starts alone.
 *
 * Results are compared with float64, and with the bits of an engine whose host plans the same
 * steps. Invariant: the host gives a step only rows and sequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum { STEPS = 2, VECTORS = 16, WAIT_US = 120000000 };
/* The first six mixes have every group, head_dim and feature. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { MIXES = 6 };
#else
enum { MIXES = 12 };
#endif

static fig_chunk_case c, host; /* too large for the stack */
static const int32_t contents[FIG_CHUNK_ROW_LIMIT] = {0, 1, 2, 3, 4, 5, 6, 7};

static fig_chunk_form form_of(fig_dtype dtype, int32_t q_heads, int32_t kv_heads,
                              int32_t head_dim) {
    return (fig_chunk_form){.dtype = dtype,
                            .kv_dtype = dtype,
                            .q_heads = q_heads,
                            .kv_heads = kv_heads,
                            .head_dim = head_dim,
                            .page_size = 16,
                            .rows = 8,
                            .kv = 500,
                            .row_tokens = 140,
                            .query_limit = 300,
                            .on_device = 1};
}

/* Draws a number of query tokens: none, a token, a draft, the shortest chunk, any chunk. */
static int32_t draw_count(const fig_chunk_form *f, fig_random *random, int32_t left) {
    int32_t count = fig_random_range(random, 9, f->row_tokens);
    switch (fig_random_range(random, 0, 5)) {
    case 0: count = 0; break;
    case 1: count = 1; break;
    case 2: count = fig_random_range(random, 2, 8); break;
    case 3: count = fig_random_range(random, 8, 17); break;
    default: break;
    }
    return fig_size_min(count, fig_size_min(f->row_tokens, left));
}

static void try_form(const fig_chunk_form *form, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    fig_chunk_case_open(&c, form, seed);
    fig_chunk_case_try(&c, &random, seed, STEPS, VECTORS, draw_count);
    fig_chunk_case_close(&c);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static void every_mix_of_rows_is_right(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 80, 96, 128, 256}, groups[] = {1, 2, 3, 5, 8, 16};
    for (uint64_t i = 0; i < MIXES; i++) {
        const int32_t kv_heads = 1 + (int32_t)(i % 3), group = groups[i % 6];
        fig_chunk_form form =
            form_of(i % 3 == 0 ? FIG_F16 : FIG_BF16, group * kv_heads, kv_heads, dims[i % 5]);
        form.window = i % 4 == 1 ? 33 : 0;
        form.sinks = i % 4 == 2;
        form.page_size = i % 5 == 4 ? 0 : 16;
        form.deterministic = i % 4 == 3;
        try_form(&form, 100 + i);
    }
}

static void caches_of_8_and_32_bits_and_alibi_are_right(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 4; i++) {
        fig_chunk_form form = form_of(i == 3 ? FIG_F32 : FIG_BF16, 8, 2, 64);
        if (i < 2) form.kv_dtype = i == 0 ? FIG_E5M2 : FIG_E4M3;
        form.scales = i == 1 ? 2 : 0;
        form.alibi = i == 2;
        try_form(&form, 200 + i);
    }
}

/* The first node's queries may see later tokens, the second node's may not: two classes. */
static void classes_with_and_without_a_mask_are_right(void **state) {
    (void)state;
    static const char *const scores[] = {"see 0:kv_length; score",
                                         "see q_pos - 29:q_pos + 1, 0:4; score * 0.5"};
    for (uint64_t i = 0; i < 2; i++) {
        fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
        form.score = scores[i];
        form.twice = 1;
        try_form(&form, 300 + i);
    }
}

/* A row of the limit's 4096 query tokens, beside decode rows. */
static void a_chunk_of_4096_tokens_is_right(void **state) {
    (void)state;
    fig_chunk_form form = form_of(FIG_BF16, 1, 1, 64);
    form.rows = 3;
    form.kv = 4200;
    form.row_tokens = 4096;
    form.query_limit = 4100;
    const fig_chunk_step step = {
        .rows = 3, .counts = {1, 4096, 3}, .lengths = {4200, 4100, 50}, .sequences = {2, 0, 1}};
    fig_chunk_case_open(&c, &form, 5);
    fig_chunk_case_fill(&c, &step, contents, 5);
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, 100);
    fig_chunk_case_close(&c);
}

/* ---- Beside the host's plans ----------------------------------------------------------------- */

/* Compares the results of all rows, or of chunks alone: decode rows may be cut by another bucket's
 * split. */
static void expect_same(const fig_chunk_step *step, int only_chunks) {
    const size_t row_bytes = (size_t)c.form.q_heads * (size_t)c.form.head_dim * 2;
    const size_t lse_bytes = (size_t)c.form.q_heads * sizeof(float);
    size_t first = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const size_t count = (size_t)step->counts[row];
        if (!only_chunks || count > 8) {
            assert_memory_equal((const uint8_t *)c.out.data + first * row_bytes,
                                (const uint8_t *)host.out.data + first * row_bytes,
                                count * row_bytes);
            assert_memory_equal((const uint8_t *)c.lse.data + first * lse_bytes,
                                (const uint8_t *)host.lse.data + first * lse_bytes,
                                count * lse_bytes);
        }
        first += count;
    }
}

/* Rows share no pages, so the host makes no groups either. */
static void steps_have_the_bits_of_the_host_s_plans(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        fig_random random = fig_random_seed(400 + i);
        fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
        int32_t ends[FIG_CHUNK_ROW_LIMIT] = {0};
        form.deterministic = i % 2 == 0;
        form.window = i % 3 == 2 ? 77 : 0;
        fig_chunk_case_open(&c, &form, i);
        form.on_device = 0;
        fig_chunk_case_open(&host, &form, i);
        for (uint64_t n = 0; n < STEPS; n++) {
            const fig_chunk_step step = fig_chunk_case_draw(&form, &random, ends, draw_count);
            fig_chunk_case_fill(&c, &step, contents, n);
            fig_chunk_case_fill(&host, &step, contents, n);
            fig_chunk_case_run(&c, &step);
            fig_chunk_case_run(&host, &step);
            expect_same(&step, !form.deterministic);
        }
        fig_chunk_case_close(&c);
        fig_chunk_case_close(&host);
    }
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

static int64_t missed(void) {
    fig_engine_stats stats = {.size = sizeof stats};
    assert_int_equal(fig_engine_read_stats(c.engine, &stats), FIG_OK);
    return stats.missed;
}

/* Launches two rows with these numbers of query tokens, as the device reads them. Returns the
 * status of the wait. */
static fig_status launch(int32_t first, int32_t second) {
    int32_t *starts = c.starts.data, *lengths = c.lengths.data;
    starts[0] = 0;
    starts[1] = first;
    starts[2] = first + second;
    lengths[0] = lengths[1] = 140;
    assert_int_equal(fig_engine_step(c.engine, FIG_OPTIONS(fig_step, .rows = 2)), FIG_OK);
    return fig_engine_wait(c.engine, WAIT_US);
}

static int is_untouched(const fig_reference_array *array, int64_t token, int64_t width) {
    const uint8_t *bytes = (const uint8_t *)array->data + token * width * 2;
    for (int64_t i = 0; i < 2 * width; i++)
        if (bytes[i] != 0xff) return 0;
    return 1;
}

/* The step has one query token more than q has memory for. */
static void a_step_with_too_many_query_tokens_runs_no_rows(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
    const fig_chunk_step step = {
        .rows = 2, .counts = {140, 1}, .lengths = {140, 140}, .sequences = {0, 1}};
    const int64_t width = (int64_t)form.q_heads * form.head_dim;
    fig_chunk_form small = form;
    small.query_limit = 150;
    fig_chunk_case_open(&c, &small, 9);
    fig_chunk_case_fill(&c, &step, contents, 9);
    memset(c.out.data, 0xff, (size_t)(c.out.count * 2));
    assert_int_equal(launch(140, 11), FIG_TOO_LARGE);
    assert_non_null(
        strstr(fig_message(), "or query tokens on the device are more than the bucket"));
    assert_int_equal(missed(), 1);
    for (int64_t token = 0; token < small.query_limit; token++)
        assert_true(is_untouched(&c.out, token, width));
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, VECTORS);
    fig_chunk_case_close(&c);
}

/* A row of 141 query tokens has more than the program allows, and counts as a row without any: the
 * other row's tokens come first. */
static void a_row_with_too_many_query_tokens_has_none(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
    const fig_chunk_step step = {
        .rows = 2, .counts = {0, 33}, .lengths = {140, 140}, .sequences = {0, 1}};
    const int64_t width = (int64_t)form.q_heads * form.head_dim;
    fig_chunk_case_open(&c, &form, 10);
    fig_chunk_case_fill(&c, &step, contents, 10);
    memset(c.out.data, 0xff, (size_t)(c.out.count * 2));
    assert_int_equal(launch(141, 33), FIG_OK);
    assert_int_equal(missed(), 0);
    fig_chunk_case_check(&c, &step, VECTORS);
    assert_true(is_untouched(&c.out, 33, width));
    fig_chunk_case_close(&c);
}

/* The device makes the plan again in each launch. */
static void each_launch_of_a_horizon_reads_the_lengths_again(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(FIG_BF16, 4, 2, 64);
    const fig_chunk_step steps[] = {
        {.rows = 2, .counts = {1, 100}, .lengths = {90, 140}, .sequences = {0, 1}},
        {.rows = 2, .counts = {50, 3}, .lengths = {140, 143}, .sequences = {0, 1}}};
    fig_chunk_case_open(&c, &form, 11);
    assert_int_equal(fig_engine_stage(c.engine, FIG_OPTIONS(fig_step, .rows = 2, .horizon = 2)),
                     FIG_OK);
    for (int32_t n = 0; n < 2; n++) {
        int32_t *starts = c.starts.data;
        fig_chunk_case_fill(&c, &steps[n], contents, 11);
        memcpy(c.lengths.data, steps[n].lengths, 2 * sizeof(int32_t));
        starts[0] = 0;
        starts[1] = steps[n].counts[0];
        starts[2] = steps[n].counts[0] + steps[n].counts[1];
        assert_int_equal(fig_engine_launch(c.engine), FIG_OK);
        assert_int_equal(fig_engine_wait(c.engine, WAIT_US), FIG_OK);
        fig_chunk_case_check(&c, &steps[n], VECTORS);
    }
    fig_chunk_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mix_of_rows_is_right),
        cmocka_unit_test(caches_of_8_and_32_bits_and_alibi_are_right),
        cmocka_unit_test(classes_with_and_without_a_mask_are_right),
        cmocka_unit_test(a_chunk_of_4096_tokens_is_right),
        cmocka_unit_test(steps_have_the_bits_of_the_host_s_plans),
        cmocka_unit_test(a_step_with_too_many_query_tokens_runs_no_rows),
        cmocka_unit_test(a_row_with_too_many_query_tokens_has_none),
        cmocka_unit_test(each_launch_of_a_horizon_reads_the_lengths_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
