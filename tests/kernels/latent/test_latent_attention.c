/* test_latent_attention.c: compares split attention over a latent cache with float64, for random
 * shapes, for each number of heads, and for long rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/latent/latent.h"
#include "kernels/latent/latent_narrow.h"
#include "kernels/latent/latent_short.h"
#include "kernels/latent/latent_wide.h"
#include "kernels/table/reference_kernels.h"
#include "tests/support/kernels/latent_case.h"
#include "tests/support/place.h"

enum { ALL = 1 << 20, SOME = 12, ROWS = 5 };
/* A sanitizer sees the same code in shorter rows. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { LONG = 8000 };
#else
enum { LONG = 40000 };
#endif

static uint64_t seed;
static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};

static fig_random try_form(const fig_latent_form *form, fig_random random, int32_t most) {
    fig_latent_case c;
    fig_latent_case_open(&c, form, random);
    fig_latent_case_run(&c, &c.random);
    fig_latent_case_check(&c, most);
    random = c.random;
    fig_latent_case_close(&c);
    return random;
}

static void split_attention_over_latents_equals_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(60); n++) {
        fig_random random = fig_random_seed(seed + n);
        const fig_latent_form form = fig_latent_form_draw(&random, seed + n);
        try_form(&form, random, SOME);
    }
}

/* Runs the cases under each of the flags that decide which blocks may wait for others. The second
 * run of a case uses the workspace as the first run left it. */
static void launches_on_warpgroups_equal_float64(void **state) {
    (void)state;
    static const uint32_t rules[] = {0, FIG_ATTENTION_IN_ORDER, FIG_ATTENTION_APART,
                                     FIG_ATTENTION_EARLY};
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(48); n++) {
        fig_random random = fig_random_seed(seed + 7000 + n);
        const fig_latent_form form = fig_latent_form_draw_wide(&random, seed + n);
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        c.params.flags = rules[n % 4];
        fig_latent_case_run(&c, &c.random);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_run(&c, NULL);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_close(&c);
    }
}

/* Kernels take weights relative to a reference that is not the greatest logit. Here, many logits
 * are so far above the first ones that references must rise. */
static void logits_far_above_the_first_ones_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(16); n++) {
        fig_random random = fig_random_seed(seed + 8000 + n);
        fig_latent_form form = fig_latent_form_draw_wide(&random, seed + n);
        form.dtype = form.kv_dtype = n % 2 ? FIG_BF16 : FIG_F16;
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        c.params.sm_scale *= 100;
        fig_latent_case_run(&c, NULL);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_close(&c);
    }
}

/* Draws a cell of heads x query tokens x pages x length whose work takes the host less than a
 * second. */
static fig_latent_form draw_cell(fig_random *random, int32_t number) {
    static const int32_t heads[] = {8, 16, 32, 64, 128}, tokens[] = {1, 4, 16},
                         pages[] = {1, 16, 64};
    static const int32_t lengths[] = {1, 63, 64, 65, 700, 5000, LONG};
    const int32_t count = sizeof lengths / sizeof lengths[0];
    fig_latent_form form = {.seed = seed + (uint64_t)number,
                            .dtype = dtypes[fig_random_range(random, 0, 2)],
                            .q_heads = heads[number % 5],
                            .page_size = pages[number / 5 % 3],
                            .tile_tokens = 64,
                            .workers = fig_random_range(random, 1, 20),
                            .row_limit = ROWS,
                            .rows = ROWS,
                            .row_tokens = tokens[number % 3],
                            .sinks = fig_random_range(random, 0, 1),
                            .contents = {0, 1, 2, 3, 4}};
    form.kv_dtype = form.dtype != FIG_F32 && fig_random_range(random, 0, 1) ? FIG_E4M3 : form.dtype;
    int32_t longest = lengths[fig_random_range(random, 0, count - 1)];
    while (longest > 64 && longest * form.q_heads * form.row_tokens > 150000)
        longest /= 2;
    longest = longest < form.row_tokens ? form.row_tokens : longest;
    form.length_limit = longest;
    form.lengths[fig_random_range(random, 0, ROWS - 1)] = longest;
    for (int32_t r = 0; r < ROWS; r++)
        if (form.lengths[r] == 0 && fig_random_range(random, 0, 2) > 0)
            form.lengths[r] =
                fig_random_range(random, form.row_tokens, longest < 200 ? longest : 200);
    return form;
}

static void every_number_of_heads_tokens_and_pages_agrees(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 1000);
    for (int32_t number = 0; number < fig_place_cases(45); number++) {
        const fig_latent_form form = draw_cell(&random, number);
        random = try_form(&form, random, SOME);
    }
}

static void a_row_of_forty_thousand_tokens_agrees(void **state) {
    (void)state;
    static const int32_t kinds[] = {FIG_BF16, FIG_E4M3};
    for (int32_t i = 0; i < 2; i++) {
        const fig_latent_form form = {.seed = seed,
                                      .dtype = FIG_BF16,
                                      .kv_dtype = kinds[i],
                                      .q_heads = 16,
                                      .page_size = 64,
                                      .tile_tokens = 64,
                                      .workers = 7,
                                      .row_limit = 2,
                                      .rows = 2,
                                      .row_tokens = 1,
                                      .length_limit = LONG,
                                      .lengths = {LONG, 3},
                                      .contents = {0, 1}};
        try_form(&form, fig_random_seed(seed + 1500 + (uint64_t)i), 4);
    }
}

/* Returns vector [query][head] number n of a row of out. */
static const uint8_t *vector_of(const fig_latent_case *c, int32_t row, int32_t n) {
    const int32_t heads = c->form.q_heads;
    return (const uint8_t *)c->out.data +
           fig_latent_case_out(c, row, n / heads, n % heads) * fig_numeric_bytes(c->form.dtype);
}

static void freeze(fig_latent_case *c) {
    fig_reference_array_keep(&c->out);
    fig_reference_array_keep(&c->lse);
    memset(c->out.free, 0, (size_t)c->out.count);
    memset(c->lse.free, 0, (size_t)c->lse.count);
}

/* Each run uses the workspace as the run before it left it. */
static void the_order_of_blocks_changes_no_bit(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(12); n++) {
        fig_random random = fig_random_seed(seed + 2000 + n);
        fig_latent_form form = fig_latent_form_draw(&random, seed);
        form.workers = fig_random_range(&random, 8, 40);
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        fig_latent_case_run(&c, NULL);
        freeze(&c);
        for (int i = 0; i < 3; i++)
            fig_latent_case_run(&c, &c.random);
        fig_latent_case_close(&c);
    }
}

/* In a fixed split, a row has the same bits alone and among other rows. */
static void a_fixed_split_s_bits_depend_on_the_row_alone(void **state) {
    (void)state;
    fig_latent_form alone = {.seed = seed,
                             .dtype = FIG_BF16,
                             .kv_dtype = FIG_BF16,
                             .q_heads = 16,
                             .page_size = 16,
                             .tile_tokens = 64,
                             .workers = 3,
                             .row_limit = 1,
                             .rows = 1,
                             .row_tokens = 1,
                             .fixed = 1,
                             .length_limit = 500,
                             .lengths = {450},
                             .contents = {7}};
    fig_latent_form among = alone;
    among.workers = 9;
    among.row_limit = among.rows = 4;
    const int32_t lengths[] = {10, 450, 0, 333}, contents[] = {1, 7, 2, 3};
    memcpy(among.lengths, lengths, sizeof lengths);
    memcpy(among.contents, contents, sizeof contents);
    fig_latent_case a, b;
    fig_latent_case_open(&a, &alone, fig_random_seed(seed + 3000));
    fig_latent_case_open(&b, &among, fig_random_seed(seed + 3001));
    fig_latent_case_run(&a, NULL);
    fig_latent_case_run(&b, NULL);
    for (int32_t head = 0; head < alone.q_heads; head++) {
        const uint16_t *one = (const uint16_t *)a.out.data + fig_latent_case_out(&a, 0, 0, head);
        const uint16_t *other = (const uint16_t *)b.out.data + fig_latent_case_out(&b, 1, 0, head);
        assert_memory_equal(one, other, FIG_LATENT_DIM * sizeof *one);
    }
    fig_latent_case_close(&a);
    fig_latent_case_close(&b);
}

static void idle_rows_get_zeros_and_minus_infinity_whoever_works(void **state) {
    (void)state;
    for (int32_t workers = 1; workers <= 6; workers++) {
        fig_latent_form form = {.seed = seed,
                                .dtype = dtypes[workers % 3],
                                .kv_dtype = dtypes[workers % 3],
                                .q_heads = 8,
                                .page_size = 16,
                                .tile_tokens = 16,
                                .workers = workers,
                                .row_limit = ROWS,
                                .rows = ROWS - 1,
                                .row_tokens = 1 + workers % 3,
                                .sinks = workers % 2,
                                .length_limit = 40,
                                .contents = {0, 1, 2, 3, 4}};
        for (int32_t busy = -1; busy < form.rows; busy++) { /* at -1 every row is idle */
            memset(form.lengths, 0, sizeof form.lengths);
            if (busy >= 0) form.lengths[busy] = 40;
            try_form(&form, fig_random_seed(seed + 4000 + (uint64_t)workers), ALL);
        }
    }
}

/* If a fetch finds no plan, the plan's head has 0 rows, and the sections of the old plan remain
 * behind it. */
static void no_rows_over_a_stale_plan_do_nothing(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 5000);
    fig_latent_form form = fig_latent_form_draw(&random, seed);
    form.counted = 0;
    form.rows = form.row_limit;
    form.lengths[0] = 50;
    fig_latent_case c;
    fig_latent_case_open(&c, &form, random);
    memset(c.plan, 0, sizeof(fig_plan_head));
    freeze(&c);
    fig_latent_case_run(&c, &c.random);
    fig_latent_case_close(&c);
}

static void without_lse_out_is_the_same(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 6000);
    fig_latent_form form = fig_latent_form_draw(&random, seed);
    fig_latent_case c;
    fig_latent_case_open(&c, &form, random);
    fig_latent_case_run(&c, NULL);
    freeze(&c);
    c.params.lse = NULL;
    fig_latent_case_run(&c, NULL);
    fig_latent_case_close(&c);
}

/* One run has q in one tensor. The others have the same q in two, and the same split. */
static void q_in_two_tensors_gives_the_bits_of_one(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(24); n++) {
        fig_random random = fig_random_seed(seed + 9000 + n);
        fig_latent_form form = n % 2 ? fig_latent_form_draw(&random, seed + n)
                                     : fig_latent_form_draw_wide(&random, seed + n);
        const size_t bytes = FIG_LATENT_DIM * (size_t)fig_numeric_bytes(form.dtype);
        fig_latent_case one, two;
        form.outside = 0; /* each case draws its pages */
        form.apart = 0;
        fig_latent_case_open(&one, &form, random);
        fig_latent_case_run(&one, NULL);
        for (form.apart = 1; form.apart <= 2; form.apart++) {
            fig_latent_case_open(&two, &form, random);
            fig_latent_case_run(&two, NULL);
            for (int32_t row = 0; row < form.rows; row++)
                for (int32_t i = 0; i < fig_latent_form_queries(&form, row).count * form.q_heads;
                     i++)
                    assert_memory_equal(vector_of(&one, row, i), vector_of(&two, row, i), bytes);
            fig_latent_case_close(&two);
        }
        fig_latent_case_close(&one);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_attention_over_latents_equals_float64),
        cmocka_unit_test(launches_on_warpgroups_equal_float64),
        cmocka_unit_test(logits_far_above_the_first_ones_equal_float64),
        cmocka_unit_test(every_number_of_heads_tokens_and_pages_agrees),
        cmocka_unit_test(a_row_of_forty_thousand_tokens_agrees),
        cmocka_unit_test(the_order_of_blocks_changes_no_bit),
        cmocka_unit_test(a_fixed_split_s_bits_depend_on_the_row_alone),
        cmocka_unit_test(idle_rows_get_zeros_and_minus_infinity_whoever_works),
        cmocka_unit_test(no_rows_over_a_stale_plan_do_nothing),
        cmocka_unit_test(without_lse_out_is_the_same),
        cmocka_unit_test(q_in_two_tensors_gives_the_bits_of_one),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
