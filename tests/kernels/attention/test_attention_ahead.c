/* test_attention_ahead.c: compares each launch of a horizon with float64. One split serves all
 * launches, and rows are longer in each launch than in the one before.
 *
 * At each launch, the cache is NaN behind a row's tokens and in front of its window. So the test
 * notices if attention reads a token that the row has not reached yet, or that its window has left
 * behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

static uint64_t seed;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* Draws a form with any features, mostly with a window, and rows that grow by up to a few tiles.
 * Its lengths are those of launch 0. */
static fig_attention_form draw_form(fig_random *random) {
    fig_attention_form form = fig_attention_form_draw(random, seed);
    form.tile_tokens = draw(random, 0, 1) ? 16 : draw(random, 4, 40);
    fig_attention_form_draw_features(&form, random);
    if (draw(random, 0, 1)) form.window = draw(random, 1, 3 * form.tile_tokens);
    form.fixed = draw(random, 0, 1);
    form.head_dim = draw(random, 0, 1) ? 64 : 80;
    form.ratio = draw(random, 1, 3);
    form.horizon = draw(random, 2, 2 + 3 * form.tile_tokens / form.row_tokens);
    for (int32_t r = 0; r < form.rows; r++) {
        const int32_t most = form.length_limit - (form.horizon - 1) * form.row_tokens;
        if (form.lengths[r] > most) form.lengths[r] = most;
        if (draw(random, 0, 3) == 0) form.lengths[r] = form.row_tokens;
    }
    return form;
}

/* Returns the form that the same rows have at a later launch. */
static fig_attention_form launch_of(const fig_attention_form *first, int32_t launch) {
    fig_attention_form form = *first;
    form.launch = launch;
    for (int32_t r = 0; r < form.rows; r++)
        if (form.lengths[r] > 0) form.lengths[r] += launch * form.row_tokens;
    return form;
}

static void every_launch_of_a_horizon_equals_float64(void **state) {
    (void)state;
    int64_t windowed = 0, fixed = 0;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(60); n++) {
        fig_random random = fig_random_seed(seed + n);
        const fig_attention_form first = draw_form(&random);
        windowed += first.window > 0;
        fixed += first.fixed;
        for (int32_t launch = 0; launch < first.horizon; launch++) {
            const fig_attention_form form = launch_of(&first, launch);
            fig_attention_case c;
            fig_attention_case_open(&c, &form, random);
            fig_attention_case_run(&c, &c.random);
            fig_attention_case_check(&c, 20);
            fig_attention_case_close(&c);
        }
    }
    assert_true(windowed > 0 && fixed > 0);
}

static void expect_same_bits(const fig_attention_case *c, const fig_reference_array *under,
                             const fig_reference_array *alone, const char *what) {
    const size_t unit = (size_t)fig_numeric_bytes(under->dtype);
    for (int64_t i = 0; i < under->count; i++) {
        const size_t at = (size_t)i * unit;
        if (memcmp((const char *)under->data + at, (const char *)alone->data + at, unit) != 0)
            fig_attention_case_fail(c, what, i, 1, 0, 0);
    }
}

/* A piece without visible tokens adds nothing, so a horizon does not change the bits of a row. */
static void a_horizon_changes_no_bit_under_the_fixed_split(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(40); n++) {
        fig_random random = fig_random_seed(seed + 1000 + n);
        fig_attention_form first = draw_form(&random);
        first.fixed = 1;
        const int32_t launch = draw(&random, 0, first.horizon - 1);
        const fig_attention_form form = launch_of(&first, launch);
        fig_attention_form plain = form;
        plain.horizon = plain.launch = 0;
        fig_attention_case under, alone;
        fig_attention_case_open(&under, &form, random);
        fig_attention_case_open(&alone, &plain, random);
        fig_attention_case_run(&under, &under.random);
        fig_attention_case_run(&alone, &alone.random);
        expect_same_bits(&under, &under.out, &alone.out, "bits of out");
        expect_same_bits(&under, &under.lse, &alone.lse, "bits of lse");
        fig_attention_case_close(&under);
        fig_attention_case_close(&alone);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launch_of_a_horizon_equals_float64),
        cmocka_unit_test(a_horizon_changes_no_bit_under_the_fixed_split),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
