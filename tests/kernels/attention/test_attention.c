/* test_attention.c: compares split and unsplit attention with each other and with float64, for
 * random shapes. test_attention_features.c tests windows, sinks, ALiBi and the other features. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/spec/spec.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

enum { ROWS = 7, ALL = 1 << 20, CASES = 120, CUT_BY_UNITS = 6 };

static uint64_t seed;
static int32_t cut_by_units; /* the number of plans that were cut by units */
static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};

/* Opens a case of this form, runs its blocks in random order, compares all results with float64 and
 * closes it. Returns a generator for the next case. */
static fig_random try_form(const fig_attention_form *form, fig_random random) {
    fig_attention_case c;
    fig_attention_case_open(&c, form, random);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, ALL);
    cut_by_units += (((const fig_plan_head *)(void *)c.plan)->sections & FIG_PLAN_BY_UNITS) != 0;
    random = c.random;
    fig_attention_case_close(&c);
    return random;
}

static void split_attention_equals_float64(void **state) {
    (void)state;
    for (int n = 0; fig_place_wants_case(n, CASES, cut_by_units, CUT_BY_UNITS); n++) {
        fig_random random = fig_random_seed(seed + (uint64_t)n);
        fig_attention_form form = fig_attention_form_draw(&random, seed);
        try_form(&form, random);
    }
    assert_true(cut_by_units >= CUT_BY_UNITS);
}

/* Stores out and lse; from here on, a change of any bit is an error. */
static void freeze(fig_attention_case *c) {
    fig_reference_array_keep(&c->out);
    fig_reference_array_keep(&c->lse);
    memset(c->out.free, 0, (size_t)c->out.count);
    memset(c->lse.free, 0, (size_t)c->lse.count);
}

/* Each run also finds the workspace as the run before left it: old partials, and counters that have
 * returned to 0. */
static void the_order_of_blocks_changes_no_bit(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(40); n++) {
        fig_random random = fig_random_seed(seed + 2000 + n);
        fig_attention_form form = fig_attention_form_draw(&random, seed);
        fig_attention_form_draw_features(&form, &random);
        form.workers = fig_random_range(&random, 8, 40);
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        fig_attention_case_run(&c, NULL);
        freeze(&c);
        for (int i = 0; i < 4; i++)
            fig_attention_case_run(&c, &c.random);
        fig_attention_case_close(&c);
    }
}

static void every_group_size_head_dim_dtype_and_head_count_agrees(void **state) {
    (void)state;
    static const int32_t head_dims[] = {64, 80, 96, 128, 256};
    fig_random random = fig_random_seed(seed + 3000);
    for (int32_t ratio = 1; ratio <= FIG_GROUP_LIMIT; ratio++) {
        for (int32_t i = 0; i < 15; i++) {
            fig_attention_form form = {.seed = seed,
                                       .dtype = dtypes[i % 3],
                                       .kv_dtype = dtypes[i % 3],
                                       .head_dim = head_dims[i % 5],
                                       .kv_heads = 2,
                                       .heads_per_worker = 1 + (i + ratio) % 2,
                                       .ratio = ratio,
                                       .page_size = 16,
                                       .tile_tokens = 16,
                                       .workers = 5,
                                       .row_limit = 3,
                                       .rows = 3,
                                       .row_tokens = 1,
                                       .length_limit = 50,
                                       .lengths = {37, 0, 50},
                                       .contents = {0, 1, 2}};
            random = try_form(&form, random);
        }
    }
}

/* Runs seven lengths at a time: near 0, and near one tile, two tiles, one page or two pages. */
static void lengths_beside_tile_and_page_boundaries_agree(void **state) {
    (void)state;
    static const int32_t page_sizes[] = {0, 1, 3, 8, 16, 64, 128}, tiles[] = {16, 64, 128};
    fig_random random = fig_random_seed(seed + 4000);
    for (int32_t i = 0; i < 7 * 3; i++) {
        fig_attention_form form = {.seed = seed,
                                   .dtype = dtypes[i % 3],
                                   .kv_dtype = dtypes[i % 3],
                                   .head_dim = 64,
                                   .kv_heads = 2,
                                   .heads_per_worker = 1,
                                   .ratio = 2,
                                   .page_size = page_sizes[i / 3],
                                   .tile_tokens = tiles[i % 3],
                                   .row_limit = ROWS,
                                   .rows = ROWS,
                                   .row_tokens = 1,
                                   .length_limit = 300,
                                   .contents = {0, 1, 2, 3, 4, 5, 6}};
        int32_t edges[] = {form.tile_tokens, form.page_size, 2 * form.tile_tokens,
                           2 * form.page_size};
        for (int32_t edge = 0; edge < 4; edge++) {
            int32_t at = edges[edge];
            int32_t lengths[ROWS] = {0, 1, at - 1, at, at + 1, 2, 0};
            for (int32_t r = 0; r < ROWS; r++)
                form.lengths[r] = lengths[r] < 0 ? 0 : lengths[r];
            form.workers = fig_random_range(&random, 1, 30);
            random = try_form(&form, random);
        }
    }
}

static void page_numbers_outside_the_cache_read_as_page_0(void **state) {
    (void)state;
    static const int32_t page_sizes[] = {0, 1, 3, 16};
    for (uint64_t n = 0; n < 24; n++) {
        fig_random random = fig_random_seed(seed + 5000 + n);
        fig_attention_form form = fig_attention_form_draw(&random, seed);
        form.page_size = page_sizes[n % 4];
        form.outside = 8;
        try_form(&form, random);
    }
}

static void idle_rows_get_zeros_and_minus_infinity_whoever_works(void **state) {
    (void)state;
    for (int32_t workers = 1; workers <= 9; workers++) {
        fig_attention_form form = {.seed = seed,
                                   .dtype = dtypes[workers % 3],
                                   .kv_dtype = dtypes[workers % 3],
                                   .head_dim = 64,
                                   .kv_heads = 2,
                                   .heads_per_worker = 1,
                                   .ratio = 3,
                                   .page_size = 16,
                                   .tile_tokens = 16,
                                   .workers = workers,
                                   .row_limit = ROWS,
                                   .rows = ROWS - 1,
                                   .row_tokens = 1 + workers % 3,
                                   .sinks = workers % 2,
                                   .length_limit = 40,
                                   .contents = {0, 1, 2, 3, 4, 5, 6}};
        for (int32_t busy = -1; busy < form.rows; busy++) { /* at -1 every row is idle */
            memset(form.lengths, 0, sizeof form.lengths);
            if (busy >= 0) form.lengths[busy] = 40;
            try_form(&form, fig_random_seed(seed + 6000 + (uint64_t)workers));
        }
    }
}

/* If a fetch finds no plan, the plan's head has 0 rows, and the sections of the old plan remain
 * behind it. */
static void no_rows_over_a_stale_plan_do_nothing(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 7500);
    fig_attention_form form = fig_attention_form_draw(&random, seed);
    form.rows = form.row_limit;
    form.lengths[0] = 50;
    fig_attention_case c;
    fig_attention_case_open(&c, &form, random);
    memset(c.plan, 0, sizeof(fig_plan_head));
    freeze(&c);
    fig_attention_case_run(&c, &c.random);
    fig_reference_array_check(&c.partials, "attention partials");
    fig_attention_case_close(&c);
}

static void without_lse_out_is_the_same(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 7000);
    fig_attention_form form = fig_attention_form_draw(&random, seed);
    fig_attention_case c;
    form.rows = form.row_limit;
    fig_attention_case_open(&c, &form, random);
    fig_attention_case_run(&c, NULL);
    freeze(&c);
    c.params.lse = NULL;
    fig_attention_case_run(&c, NULL);
    fig_attention_case_close(&c);
}

/* Opens one row of 256 tokens, whose q is 1 in its first element and 0 elsewhere. */
static void open_axis(fig_attention_case *c, int32_t dtype, int32_t workers) {
    fig_attention_form form = {.seed = seed,
                               .dtype = dtype,
                               .kv_dtype = dtype,
                               .head_dim = 64,
                               .kv_heads = 1,
                               .heads_per_worker = 1,
                               .ratio = 1,
                               .page_size = 16,
                               .tile_tokens = 16,
                               .workers = workers,
                               .row_limit = 1,
                               .rows = 1,
                               .row_tokens = 1,
                               .length_limit = 256,
                               .lengths = {256}};
    fig_attention_case_open(c, &form, fig_random_seed(seed + 8000));
    for (int32_t d = 0; d < 64; d++)
        fig_reference_array_set(&c->q, d, d == 0);
}

/* Sets element d of a token's K. */
static void set_k(fig_attention_case *c, int32_t token, int32_t d, double value) {
    const fig_cache_strides *strides = &c->params.k_cache_strides;
    int64_t table = c->sequences[0] * c->params.table_stride + token / 16;
    int64_t page = ((const int32_t *)c->table.data)[table];
    fig_reference_array_set(&c->k, page * strides->page + token % 16 * strides->token + d, value);
}

/* Token t's logit is exactly 5 t. The logits grow up to 1275, and each new one makes the kernel
 * scale its earlier sums down again. */
static void logits_of_a_thousand_neither_overflow_nor_drown_the_last_token(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        fig_attention_case c;
        open_axis(&c, i % 2 ? FIG_F16 : FIG_BF16, i + 1);
        /* if it is negative, the first token has the greatest logit */
        c.params.sm_scale = i % 3 == 0 ? -5.0f : 5.0f;
        for (int32_t t = 0; t < 256; t++)
            set_k(&c, t, 0, t);
        fig_attention_case_run(&c, NULL);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
}

/* K may hold infinities after an overflow. A token with such a logit has no weight, even if it is
 * the first token. */
static void logits_of_minus_infinity_weigh_nothing(void **state) {
    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        fig_attention_case c;
        open_axis(&c, i % 2 ? FIG_F16 : FIG_BF16, i + 1);
        for (int32_t t = 0; t < 256; t++)
            set_k(&c, t, 0, t < 100 || t % 3 == 0 ? -INFINITY : 1);
        fig_attention_case_run(&c, NULL);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
}

/* All logits are far below -5e4, which some kernels use as minus infinity. They must count as
 * ordinary numbers. */
static void logits_far_below_zero_do_not_count_as_masked(void **state) {
    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        fig_attention_case c;
        open_axis(&c, i % 2 ? FIG_F16 : FIG_BF16, i + 1);
        c.params.sm_scale = -1000.0f;
        for (int32_t t = 0; t < 256; t++)
            set_k(&c, t, 0, t % 7 == 3 ? 100 : 200);
        fig_attention_case_run(&c, NULL);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_attention_equals_float64),
        cmocka_unit_test(the_order_of_blocks_changes_no_bit),
        cmocka_unit_test(every_group_size_head_dim_dtype_and_head_count_agrees),
        cmocka_unit_test(lengths_beside_tile_and_page_boundaries_agree),
        cmocka_unit_test(page_numbers_outside_the_cache_read_as_page_0),
        cmocka_unit_test(idle_rows_get_zeros_and_minus_infinity_whoever_works),
        cmocka_unit_test(no_rows_over_a_stale_plan_do_nothing),
        cmocka_unit_test(without_lse_out_is_the_same),
        cmocka_unit_test(logits_of_a_thousand_neither_overflow_nor_drown_the_last_token),
        cmocka_unit_test(logits_of_minus_infinity_weigh_nothing),
        cmocka_unit_test(logits_far_below_zero_do_not_count_as_masked),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
