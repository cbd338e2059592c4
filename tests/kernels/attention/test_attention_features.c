/* test_attention_features.c: compares attention with float64 for each feature, alone and combined
 * with others, split and unsplit.
 *
 * Tokens that no query of a row sees are NaN in the cache, also inside tiles. So the test notices a
 * token that gets a weight of 0 instead of being left out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

enum { ALL = 1 << 20, CASES = 24 };

static uint64_t seed;

static void try_form(const fig_attention_form *form, fig_random random) {
    fig_attention_case c;
    fig_attention_case_open(&c, form, random);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, ALL);
    fig_attention_case_close(&c);
}

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* Draws form n of a test; at least one row is busy. */
static fig_attention_form form_of(fig_random *random, uint64_t test, uint64_t n) {
    *random = fig_random_seed(seed + 100000 * test + n);
    fig_attention_form form = fig_attention_form_draw(random, seed);
    form.rows = draw(random, 1, form.row_limit);
    form.lengths[0] = draw(random, 1, 100);
    for (int32_t r = 0; r < form.rows; r++)
        form.contents[r] = r;
    return form;
}

/* Gives rows row_tokens queries each, and at least that number of tokens unless they are idle. */
static void give_queries(fig_attention_form *form, int32_t row_tokens) {
    form->row_tokens = row_tokens;
    for (int32_t r = 0; r < form->rows; r++)
        if (form->lengths[r] > 0 && form->lengths[r] < row_tokens) form->lengths[r] = row_tokens;
}

static void layouts_and_pools_are_only_strides(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 1, n);
        form.layout = n % 2 ? FIG_HND : FIG_NHD;
        form.pool = (int32_t)(n / 2 % 3);
        form.packed = (int32_t)(n / 6 % 2);
        try_form(&form, random);
    }
}

/* The windows have one token, about a tile, and about the whole length. */
static void a_window_hides_what_lies_before_it(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(2 * CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 2, n);
        int32_t windows[] = {
            1, form.tile_tokens - 1 + draw(&random, 0, 2),
            fig_size_min(form.lengths[0], form.lengths[0] - 1 + draw(&random, 0, 2)),
            draw(&random, 1, 200)};
        form.window = windows[n % 4] < 1 ? 1 : windows[n % 4];
        try_form(&form, random);
    }
}

/* Tests every length from 1 to the window plus two tiles, so that the window begins at every place
 * in a tile. */
static void a_window_may_begin_anywhere_in_a_tile(void **state) {
    (void)state;
    for (int32_t row_tokens = 1; row_tokens <= 8; row_tokens += 7) {
        for (int32_t first = row_tokens; first < 45; first += 5) {
            fig_attention_form form = {.seed = seed,
                                       .dtype = FIG_F32,
                                       .kv_dtype = FIG_F32,
                                       .head_dim = 64,
                                       .kv_heads = 1,
                                       .heads_per_worker = 1,
                                       .ratio = 1,
                                       .page_size = 3,
                                       .tile_tokens = 16,
                                       .workers = 7,
                                       .row_limit = 5,
                                       .rows = 5,
                                       .row_tokens = row_tokens,
                                       .window = 9,
                                       .length_limit = 50,
                                       .contents = {0, 1, 2, 3, 4}};
            for (int32_t r = 0; r < form.rows; r++)
                form.lengths[r] = first + r;
            try_form(&form, fig_random_seed(seed + (uint64_t)first));
        }
    }
}

static void several_queries_of_a_row_see_what_lies_behind_each(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 3, n);
        if (n % 3 == 0) form.lengths[0] = form.tile_tokens + 1;
        give_queries(&form, 1 + (int32_t)(n % 8));
        try_form(&form, random);
    }
}

/* Sets K and V of a token to NaN. */
static void spoil(fig_attention_case *c, int32_t token) {
    const fig_attention_params *p = &c->params;
    int64_t k = c->sequences[0] * p->k_cache_strides.page + token * p->k_cache_strides.token;
    int64_t v = c->sequences[0] * p->v_cache_strides.page + token * p->v_cache_strides.token;
    for (int32_t i = 0; i < p->kv_heads * p->head_dim; i++) {
        int64_t head = i / p->head_dim, element = i % p->head_dim;
        fig_reference_array_set(&c->k, k + head * p->k_cache_strides.head + element, NAN);
        fig_reference_array_set(&c->v, v + head * p->v_cache_strides.head + element, NAN);
    }
}

/* Only the last query sees the last token, and only the first query sees the window's first token.
 * If both are NaN, the queries between them must not be affected. */
static void tokens_that_only_another_query_sees_do_no_harm(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 12, n);
        form.page_size = form.outside = 0;
        form.window = draw(&random, 5, 40);
        form.lengths[0] = draw(&random, 50, 120);
        give_queries(&form, draw(&random, 3, 8));
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        spoil(&c, form.lengths[0] - 1);
        spoil(&c, form.lengths[0] - form.row_tokens + 1 - form.window);
        fig_attention_case_run(&c, &c.random);
        for (int32_t query = 1; query < form.row_tokens - 1; query++)
            for (int32_t q_head = 0; q_head < c.params.q_heads; q_head++)
                fig_attention_case_check_vector(&c, 0, query, q_head);
        fig_attention_case_close(&c);
    }
}

/* Tests the greatest number of vectors of a kv head, with the largest head_dim. */
static void eight_queries_of_sixteen_heads_of_256_fit(void **state) {
    (void)state;
    fig_random random;
    fig_attention_form form = form_of(&random, 4, 0);
    form.ratio = 16;
    form.head_dim = 256;
    form.workers = 6;
    give_queries(&form, 8);
    try_form(&form, random);
}

static void a_soft_cap_bends_logits_after_the_scale(void **state) {
    (void)state;
    static const float caps[] = {1, 30, 50};
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 5, n);
        form.soft_cap = caps[n % 3];
        form.sm_scale = n % 2 ? 0.5f : 0;
        try_form(&form, random);
    }
}

static void alibi_counts_tokens_back_from_each_query(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 6, n);
        form.alibi = 1;
        give_queries(&form, 1 + (int32_t)(n % 3));
        if (n % 2) form.soft_cap = 20; /* the cap is applied after ALiBi */
        try_form(&form, random);
    }
}

/* Tests rows that are cut and rows that are not. In a cut row, a sink that joined every piece would
 * count more than once. */
static void a_sink_joins_each_vector_once(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 7, n);
        form.sinks = 1;
        form.workers = n % 2 ? 1 : 24;
        give_queries(&form, 1 + (int32_t)(n % 2));
        try_form(&form, random);
    }
}

/* Tests sinks so large that tokens get no weight, and so small that they change nothing. */
static void a_sink_may_be_anything(void **state) {
    (void)state;
    static const double values[] = {-HUGE_VAL, -1e30, -60, 0, 60, 1e30};
    for (uint64_t n = 0; n < 12; n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 8, n);
        form.sinks = 1;
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        for (int32_t h = 0; h < c.params.q_heads; h++)
            fig_reference_array_set(&c.sinks, h, values[n % 6]);
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
}

static void fp8_caches_are_stored_times_scale(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(2 * CASES); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 9, n);
        form.dtype = n % 2 ? FIG_F16 : FIG_BF16;
        form.kv_dtype = n / 2 % 2 ? FIG_E4M3 : FIG_E5M2;
        form.scales = (int32_t)(n / 4 % 3);
        try_form(&form, random);
    }
}

static void all_features_together_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(100); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 10, n);
        fig_attention_form_draw_features(&form, &random);
        try_form(&form, random);
    }
}

/* Returns a copy of a run's out as doubles. */
static double *values_of(const fig_attention_case *c) {
    double *values = malloc((size_t)c->out.count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < c->out.count; i++)
        values[i] = truth_load(c->out.data, (fig_dtype)c->out.dtype, i);
    return values;
}

/* The tolerance is 2 units in the last place of the magnitude for a 16-bit dtype, and 2e-5 of the
 * magnitude for f32. */
static void compare_with_unsplit(const fig_attention_case *c, const double *split) {
    const fig_attention_params *p = &c->params;
    const fig_attention_form *f = &c->form;
    fig_dtype dtype = (fig_dtype)p->dtype;
    truth_attention_result truth;
    for (int32_t n = 0; n < f->rows * f->row_tokens * p->q_heads; n++) {
        int32_t row = n / p->q_heads / f->row_tokens, query = n / p->q_heads % f->row_tokens;
        int64_t first = fig_attention_case_out(c, row, query, n % p->q_heads);
        fig_attention_case_truth(c, row, query, n % p->q_heads, &truth);
        for (int32_t i = 0; i < p->head_dim; i++) {
            double want = truth_load(p->out, dtype, first + i), m = truth.magnitude[i];
            double tolerance = dtype == FIG_F32 ? 2e-5 * m : 2 * truth_ulp(dtype, m);
            if (!(fabs(split[first + i] - want) <= tolerance))
                fig_attention_case_fail(c, "split out", first + i, split[first + i], want,
                                        tolerance);
        }
    }
}

static void split_attention_is_unsplit_attention_within_2_ulp(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(60); n++) {
        fig_random random;
        fig_attention_form form = form_of(&random, 11, n);
        if (n % 2) fig_attention_form_draw_features(&form, &random);
        form.workers = draw(&random, 2, 40);
        form.fixed = 0;
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        fig_attention_case_run(&c, &c.random);
        double *split = values_of(&c);
        fig_attention_case_split(&c, 1);
        fig_attention_case_run(&c, NULL);
        compare_with_unsplit(&c, split);
        free(split);
        fig_attention_case_close(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_and_pools_are_only_strides),
        cmocka_unit_test(a_window_hides_what_lies_before_it),
        cmocka_unit_test(a_window_may_begin_anywhere_in_a_tile),
        cmocka_unit_test(several_queries_of_a_row_see_what_lies_behind_each),
        cmocka_unit_test(tokens_that_only_another_query_sees_do_no_harm),
        cmocka_unit_test(eight_queries_of_sixteen_heads_of_256_fit),
        cmocka_unit_test(a_soft_cap_bends_logits_after_the_scale),
        cmocka_unit_test(alibi_counts_tokens_back_from_each_query),
        cmocka_unit_test(a_sink_joins_each_vector_once),
        cmocka_unit_test(a_sink_may_be_anything),
        cmocka_unit_test(fp8_caches_are_stored_times_scale),
        cmocka_unit_test(all_features_together_equal_float64),
        cmocka_unit_test(split_attention_is_unsplit_attention_within_2_ulp),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
