/* test_attention_fixed.c: tests that with the fixed split, a row's bits depend only on the row
 * itself.
 *
 * The same row, with the same contents, runs alone and among other rows: at another place, and with
 * other numbers of workers and bucket rows, other pages and other strides. No bit of its out and
 * lse may differ. The balanced split does change bits, which shows that these cases can detect a
 * difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

enum { KEPT_CONTENT = 99 };

static uint64_t seed;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* Draws a form of one row, of any length up to a few tiles, with any features. */
static fig_attention_form draw_alone(fig_random *random) {
    static const int32_t tiles[] = {16, 64, 512};
    fig_attention_form form = fig_attention_form_draw(random, seed);
    form.tile_tokens = tiles[draw(random, 0, 2)];
    fig_attention_form_draw_features(&form, random);
    form.head_dim = draw(random, 0, 1) ? 64 : 80;
    form.ratio = draw(random, 1, 3);
    form.fixed = 1;
    form.outside = 0;
    form.workers = draw(random, 1, 3);
    form.row_limit = form.rows = 1;
    form.length_limit = form.tile_tokens == 512 ? 1700 : 5 * form.tile_tokens;
    form.lengths[0] = draw(random, form.row_tokens, form.length_limit);
    form.contents[0] = KEPT_CONTENT;
    /* Which kernel serves depends on the strides. An engine's strides do not change, so both runs
     * get strides that the same kernel accepts. */
    form.unit = 16 / fig_numeric_bytes(form.kv_dtype);
    return form;
}

/* Returns 1 if the form's pages are whole boxes of 16 tokens, as a dense cache always is. */
static int has_whole_pages(const fig_attention_form *form) {
    return form->page_size % 16 == 0;
}

/* Adds other rows, and returns the place of the original row. Which kernel serves depends on
 * whether pages are whole boxes. An engine's page size does not change, so this function keeps that
 * property. */
static int32_t add_neighbours(fig_attention_form *form, fig_random *random) {
    const int32_t length = form->lengths[0], is_whole = has_whole_pages(form);
    form->workers = draw(random, 1, 40);
    form->row_limit = draw(random, 2, 6);
    form->rows = draw(random, 2, form->row_limit);
    for (int32_t r = 0; r < form->rows; r++) {
        int idle = draw(random, 0, 3) == 0;
        form->lengths[r] = idle ? 0 : draw(random, form->row_tokens, form->length_limit / 2 + 8);
        form->contents[r] = r;
    }
    int32_t place = draw(random, 0, form->rows - 1);
    form->lengths[place] = length;
    form->contents[place] = KEPT_CONTENT;
    form->layout = draw(random, 0, 1);
    do
        form->page_size = draw(random, 0, 1) ? 0 : draw(random, 1, 70);
    while (has_whole_pages(form) != is_whole);
    return place;
}

/* Returns 1 if the row's bits are the same. If not, *at is the index of the first element of out
 * that differs, or head_dim if only lse differs. */
static int is_same(const fig_attention_case *alone, const fig_attention_case *among, int32_t place,
                   int64_t *at) {
    int32_t unit = fig_numeric_bytes(alone->params.dtype), dim = alone->params.head_dim;
    for (int32_t n = 0; n < alone->form.row_tokens * alone->params.q_heads; n++) {
        int32_t query = n / alone->params.q_heads, head = n % alone->params.q_heads;
        const char *a = alone->params.out, *b = among->params.out;
        a += fig_attention_case_out(alone, 0, query, head) * unit;
        b += fig_attention_case_out(among, place, query, head) * unit;
        for (*at = 0; *at < dim; ++*at)
            if (memcmp(a + *at * unit, b + *at * unit, (size_t)unit) != 0) return 0;
        if (memcmp(&alone->params.lse[fig_attention_case_lse(alone, 0, query, head)],
                   &among->params.lse[fig_attention_case_lse(among, place, query, head)],
                   sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

/* Runs a form alone and among other rows, with blocks in any order. Returns the result of
 * is_same(). */
static int compare(const fig_attention_form *form, fig_random random, fig_attention_case *among,
                   int64_t *at) {
    fig_attention_form crowd = *form;
    fig_attention_case alone;
    fig_attention_case_open(&alone, form, random);
    fig_attention_case_run(&alone, &alone.random);
    int32_t place = add_neighbours(&crowd, &alone.random);
    fig_attention_case_open(among, &crowd, alone.random);
    fig_attention_case_run(among, &among->random);
    int same = is_same(&alone, among, place, at);
    fig_attention_case_close(&alone);
    return same;
}

static void neighbours_change_no_bit_of_a_row(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(100); n++) {
        fig_random random = fig_random_seed(seed + n);
        fig_attention_form form = draw_alone(&random);
        fig_attention_case among;
        int64_t at;
        if (!compare(&form, random, &among, &at))
            fig_attention_case_fail(&among, "bits of the row alone and among others", at, 1, 0, 0);
        fig_attention_case_close(&among);
    }
}

static void the_balanced_split_changes_some_bits(void **state) {
    (void)state;
    int changed = 0;
    for (uint64_t n = 0; n < 30; n++) {
        fig_random random = fig_random_seed(seed + n);
        fig_attention_form form = draw_alone(&random);
        form.fixed = 0;
        form.dtype = form.kv_dtype = FIG_F32;
        form.scales = FIG_CASE_UNSCALED;
        fig_attention_case among;
        int64_t at;
        changed += !compare(&form, random, &among, &at);
        fig_attention_case_close(&among);
    }
    assert_true(changed > 0);
}

static void fixed_attention_equals_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(40); n++) {
        fig_random random = fig_random_seed(seed + 1000 + n);
        fig_attention_form form = draw_alone(&random);
        fig_attention_case c;
        add_neighbours(&form, &random);
        fig_attention_case_open(&c, &form, random);
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, 100);
        fig_attention_case_close(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_change_no_bit_of_a_row),
        cmocka_unit_test(the_balanced_split_changes_some_bits),
        cmocka_unit_test(fixed_attention_equals_float64),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
