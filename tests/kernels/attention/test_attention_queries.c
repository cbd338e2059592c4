/* test_attention_queries.c: compares attention over rows with unequal numbers of queries with
 * float64: every feature, each number of q heads that share a kv head, idle rows and padding. The
 * queries of all rows are packed without gaps.
 *
 * Arrays have room for exactly the step's query tokens, and the cache is NaN behind each row. So
 * the test notices a kernel that takes more queries or tokens than a row has. */
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

enum { CASES = 250, CHECKED = 40 };
/* A sanitizer sees the same code for the numbers between. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { QUERY_STRIDE = 5 };
#else
enum { QUERY_STRIDE = 1 };
#endif

static uint64_t seed;

static void run_form(const fig_attention_form *form, fig_random random, int32_t checked) {
    fig_attention_case c;
    fig_attention_case_open(&c, form, random);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, checked);
    fig_attention_case_close(&c);
}

static void unequal_rows_with_any_feature_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random = fig_random_seed(seed + n);
        fig_attention_form form = fig_attention_form_draw(&random, seed + n);
        fig_attention_form_draw_features(&form, &random);
        fig_attention_form_draw_counts(&form, &random);
        run_form(&form, random, CHECKED);
    }
}

/* Returns a form with pages, strides and dtypes that every family accepts, so that a GPU runs its
 * fastest family. With 1 to 16 q heads per kv head, a warp gets all, some or none of a row's
 * vectors. */
static fig_attention_form form_of_group(fig_random *random, int32_t ratio, int32_t row_tokens) {
    const int is_fp8 = fig_random_range(random, 0, 2) == 0;
    fig_attention_form form = {.seed = seed,
                               .dtype = fig_random_range(random, 0, 1) ? FIG_BF16 : FIG_F16,
                               .head_dim = fig_random_range(random, 0, 1) ? 128 : 64,
                               .kv_heads = 2,
                               .ratio = ratio,
                               .heads_per_worker = fig_random_range(random, 1, 2),
                               .page_size = 16,
                               .unit = 16,
                               .tile_tokens = 64,
                               .workers = fig_random_range(random, 1, 20),
                               .row_limit = 9,
                               .rows = 9,
                               .row_tokens = row_tokens,
                               .window = fig_random_range(random, 0, 1) ? 0 : 70,
                               .fixed = fig_random_range(random, 0, 3) == 0,
                               .length_limit = 700};
    form.kv_dtype = is_fp8 ? FIG_E4M3 : form.dtype;
    for (int32_t r = 0; r < form.rows; r++) {
        form.contents[r] = r;
        form.lengths[r] = fig_random_range(random, 0, r % 3 == 0 ? 700 : 90);
    }
    fig_attention_form_draw_counts(&form, random);
    return form;
}

static void rows_of_each_group_of_heads_equal_float64(void **state) {
    (void)state;
    for (int32_t ratio = 1; ratio <= 16; ratio++) {
        for (int32_t row_tokens = 1; row_tokens <= FIG_ROW_TOKENS_LIMIT;
             row_tokens += QUERY_STRIDE) {
            fig_random random = fig_random_seed(seed + (uint64_t)(ratio * 16 + row_tokens));
            const fig_attention_form form = form_of_group(&random, ratio, row_tokens);
            run_form(&form, random, CHECKED);
        }
    }
}

/* If all rows have equal numbers of queries, a packed program gives the same bits as one that is
 * not packed. */
static void equal_counts_give_the_bits_that_no_counts_give(void **state) {
    (void)state;
    for (int32_t ratio = 1; ratio <= 8; ratio++) {
        fig_random random = fig_random_seed(seed + (uint64_t)ratio), again;
        fig_attention_form form = form_of_group(&random, ratio, 1 + ratio % 8 * 2);
        fig_attention_case counted, plain;
        for (int32_t r = 0; r < form.rows; r++) {
            form.counts[r] = form.row_tokens;
            if (form.lengths[r] < form.row_tokens) form.lengths[r] = 0;
        }
        again = random;
        fig_attention_case_open(&counted, &form, random);
        form.counted = 0;
        fig_attention_case_open(&plain, &form, again);
        fig_attention_case_run(&counted, NULL);
        fig_attention_case_run(&plain, NULL);
        const size_t bytes =
            (size_t)(form.rows * form.row_tokens) * (size_t)plain.params.out_strides.row * 2;
        assert_int_equal(plain.params.out_strides.row, counted.params.out_strides.row);
        assert_memory_equal(counted.params.out, plain.params.out, bytes);
        fig_attention_case_close(&counted);
        fig_attention_case_close(&plain);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_rows_with_any_feature_equal_float64),
        cmocka_unit_test(rows_of_each_group_of_heads_equal_float64),
        cmocka_unit_test(equal_counts_give_the_bits_that_no_counts_give),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
