/* test_many.c: compares attention over rows of many query tokens with float64, in the forms that a
 * GPU of compute capability 9.0 serves on warpgroups: 17 to 128 vectors of a kv head.
 *
 * The usual scale of logits lets few references grow, and few cases of the other tests have many
 * vectors and many pieces at once. Here logits lie far apart, and rows are cut into up to 40
 * pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "kernels/attention/many.h"
#include "kernels/common/numeric.h"
#include "planner/spec/spec.h"
#include "tests/support/kernels/attention_case.h"
#include "tests/support/place.h"

enum { CASES = 120, CUT_CASES = 24, CHECKED = 40 };

static uint64_t seed;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

/* Draws a form that the family serves, with rows of up to length_limit tokens. */
static fig_attention_form draw_form(fig_random *random, int32_t length_limit) {
    static const int32_t pages[] = {0, 16, 48, 64};
    fig_attention_form form = {.seed = seed,
                               .dtype = draw(random, 0, 1) ? FIG_BF16 : FIG_F16,
                               .head_dim = draw(random, 0, 1) ? 128 : 64,
                               .kv_heads = draw(random, 1, 2),
                               .heads_per_worker = 1,
                               .page_size = pages[draw(random, 0, 3)],
                               .layout = draw(random, 0, 1) ? FIG_HND : FIG_NHD,
                               .pool = draw(random, 0, 2),
                               .unit = 8,
                               .tile_tokens = draw(random, 0, 1) ? 64 : 128,
                               .sinks = draw(random, 0, 2) == 0,
                               .length_limit = length_limit};
    do {
        form.ratio = draw(random, 1, FIG_GROUP_LIMIT);
        form.row_tokens = draw(random, 1, FIG_ROW_TOKENS_LIMIT);
    } while (!fig_many_serves(2, form.head_dim, form.ratio * form.row_tokens));
    form.kv_dtype = form.dtype;
    if (draw(random, 0, 1)) form.sm_scale = (float)draw(random, 1, 16) / 4;
    if (draw(random, 0, 3) == 0) form.soft_cap = 20;
    if (draw(random, 0, 2) == 0) form.window = draw(random, 1, 300);
    form.fixed = draw(random, 0, 3) == 0;
    return form;
}

static void fill_rows(fig_attention_form *form, fig_random *random, int32_t least) {
    form->row_limit = form->rows;
    for (int32_t r = 0; r < form->rows; r++) {
        form->contents[r] = r;
        form->lengths[r] = draw(random, least, form->length_limit);
        if (form->lengths[r] > 0 && form->lengths[r] < form->row_tokens)
            form->lengths[r] = form->row_tokens;
    }
    if (draw(random, 0, 1)) fig_attention_form_draw_counts(form, random);
}

static void run_form(const fig_attention_form *form, fig_random random) {
    fig_attention_case c;
    fig_attention_case_open(&c, form, random);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, CHECKED);
    fig_attention_case_close(&c);
}

static void rows_of_many_vectors_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_random random = fig_random_seed(seed + n);
        fig_attention_form form = draw_form(&random, 600);
        form.rows = draw(&random, 1, 7);
        form.workers = draw(&random, 1, 24);
        fill_rows(&form, &random, 0);
        run_form(&form, random);
    }
}

/* With parts of at most 8 vectors, a warp merges a vector's pieces in lots. */
static void rows_of_many_pieces_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CUT_CASES); n++) {
        fig_random random = fig_random_seed(seed + 1000 + n);
        fig_attention_form form = draw_form(&random, 2600);
        form.rows = draw(&random, 1, 2);
        form.tile_tokens = 64;
        form.window = 0;
        form.fixed = n % 8 == 0;
        form.workers = draw(&random, 8, 40) * form.kv_heads;
        fill_rows(&form, &random, 1500);
        run_form(&form, random);
    }
}

/* Sets a number of V of a row's token, for all kv heads. Returns its dimension. */
static int32_t set_v(fig_attention_case *c, int32_t row, int32_t token, double value) {
    const fig_attention_params *p = &c->params;
    const int32_t dim = draw(&c->random, 0, p->head_dim - 1);
    const int32_t page =
        p->page_table == NULL
            ? c->sequences[row]
            : p->page_table[c->sequences[row] * p->table_stride + token / p->page_size];
    const int64_t at =
        page * p->v_cache_strides.page + token % p->page_size * p->v_cache_strides.token + dim;
    for (int32_t h = 0; h < p->kv_heads; h++)
        fig_reference_array_set(&c->v, at + h * p->v_cache_strides.head, value);
    return dim;
}

/* Draws one row whose tokens weigh about as much. */
static fig_attention_form draw_even_row(fig_random *random) {
    fig_attention_form form = draw_form(random, 300);
    form.pool = FIG_CASE_APART;
    form.window = 0;
    form.sm_scale = 1e-3f;
    form.rows = form.row_limit = form.workers = 1;
    form.lengths[0] = draw(random, 100, 300);
    return form;
}

/* Every query sees the first token. */
static void an_infinite_v_makes_the_result_infinite(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 8; n++) {
        fig_random random = fig_random_seed(seed + 2000 + n);
        const fig_attention_form form = draw_even_row(&random);
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        const int32_t dim = set_v(&c, 0, 0, INFINITY);
        fig_attention_case_run(&c, NULL);
        for (int32_t i = 0; i < form.row_tokens * c.params.q_heads; i++) {
            const int64_t at =
                fig_attention_case_out(&c, 0, i / c.params.q_heads, i % c.params.q_heads) + dim;
            const float out = fig_numeric_load(c.params.out, form.dtype, at);
            assert_true(isinf(out) && out > 0);
        }
        fig_attention_case_close(&c);
    }
}

/* Only the last query sees the last token. */
static void a_wild_v_does_not_touch_queries_that_do_not_see_it(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 24; n++) {
        fig_random random = fig_random_seed(seed + 3000 + n);
        const fig_attention_form form = draw_even_row(&random);
        fig_attention_case c;
        fig_attention_case_open(&c, &form, random);
        const double values[] = {NAN, INFINITY, form.dtype == FIG_BF16 ? 3e38 : 6e4};
        set_v(&c, 0, form.lengths[0] - 1, values[n % 3]);
        fig_attention_case_run(&c, NULL);
        for (int32_t i = 0; i < (form.row_tokens - 1) * c.params.q_heads; i++)
            fig_attention_case_check_vector(&c, 0, i / c.params.q_heads, i % c.params.q_heads);
        fig_attention_case_close(&c);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_many_vectors_equal_float64),
        cmocka_unit_test(rows_of_many_pieces_equal_float64),
        cmocka_unit_test(an_infinite_v_makes_the_result_infinite),
        cmocka_unit_test(a_wild_v_does_not_touch_queries_that_do_not_see_it),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
