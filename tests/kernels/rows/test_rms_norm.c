/* test_rms_norm.c: compares rms_norm and add_rms_norm with float64, for random widths and strides,
 * in place and not.
 *
 * The expected norm is computed from the residual that the kernel wrote; the residual itself is
 * compared separately. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

/* In some cases, rows have more elements than a GPU's block processes at a time. */
enum { CASES = 400, NARROW_LIMIT = 700, WIDTH_LIMIT = 12000 };

static uint64_t seed;

/* One launch and its arrays. If the norm is in place, `out` has no memory of its own. */
typedef struct rms_norm_case {
    fig_reference_step step;
    fig_reference_array in, weight, residual, out;
    int in_place;
    fig_rms_norm_params params;
} rms_norm_case;

static void open_case(rms_norm_case *c, int number) {
    fig_reference_step *step = &c->step;
    memset(c, 0, sizeof *c);
    fig_reference_step_open(step, seed, number);
    int32_t width = fig_reference_step_draw(step, 1, number % 25 == 0 ? WIDTH_LIMIT : NARROW_LIMIT);
    int with_residual = fig_reference_step_draw(step, 0, 1);
    c->in_place = fig_reference_step_draw(step, 0, 1);
    c->params = (fig_rms_norm_params){.plan = step->plan,
                                      .in_stride = fig_reference_step_stride(step, width),
                                      .out_stride = fig_reference_step_stride(step, width),
                                      .residual_stride = fig_reference_step_stride(step, width),
                                      .rows = step->rows,
                                      .width = width,
                                      .dtype = step->dtype,
                                      .epsilon = number % 3 == 0 ? 0.5f : 1e-6f,
                                      .weight_offset = number % 2 == 0 ? 1.0f : 0.0f};
    if (c->in_place) c->params.out_stride = c->params.in_stride;
    c->in = fig_reference_step_array(step, c->params.in_stride, number % 7 == 0 ? 100.0f : 1.0f);
    c->out = fig_reference_step_array(step, c->params.out_stride, 0);
    c->residual = fig_reference_step_array(step, c->params.residual_stride, 2);
    c->weight = fig_reference_array_make(step->dtype, width);
    fig_reference_array_fill(&c->weight, 0, width, &step->random, 1);
    fig_reference_array_keep(&c->weight);
    c->params.in = c->in.data;
    c->params.weight = c->weight.data;
    c->params.out = c->in_place ? c->in.data : c->out.data;
    c->params.residual = with_residual ? c->residual.data : NULL;
    fig_reference_step_allow(step, c->in_place ? &c->in : &c->out,
                             (fig_row_strides){c->params.out_stride, 0}, 1, width);
    if (with_residual)
        fig_reference_step_allow(step, &c->residual,
                                 (fig_row_strides){c->params.residual_stride, 0}, 1, width);
}

static void close_case(rms_norm_case *c) {
    fig_reference_array_check(&c->in, "in");
    fig_reference_array_check(&c->weight, "weight");
    fig_reference_array_check(&c->residual, "residual");
    fig_reference_array_check(&c->out, "out");
    fig_reference_array_free(&c->in);
    fig_reference_array_free(&c->weight);
    fig_reference_array_free(&c->residual);
    fig_reference_array_free(&c->out);
    fig_reference_step_close(&c->step);
}

/* Checks the sum of two numbers of the dtype. It is rounded at most twice: to f32, with an error of
 * half a unit in the last place, and to the dtype. */
static void check_residual(const rms_norm_case *c, int32_t row) {
    const fig_dtype dtype = (fig_dtype)c->step.dtype;
    for (int32_t i = 0; i < c->params.width; i++) {
        int64_t at = row * c->params.residual_stride + i;
        double want = truth_load(c->residual.before, dtype, at) +
                      truth_load(c->in.before, dtype, row * c->params.in_stride + i);
        double lost = 0.5 * truth_ulp(FIG_F32, want);
        if (dtype == FIG_F32) lost = 0;
        fig_reference_step_expect(&c->step, "rms_norm residual", at,
                                  truth_load(c->residual.data, dtype, at), want,
                                  fig_reference_step_tolerance(&c->step, want, lost));
    }
}

/* The tolerance is four roundings in f32: of the scale, of weight + offset, and of two products. */
static void check_row(const rms_norm_case *c, int32_t row) {
    const fig_rms_norm_params *p = &c->params;
    const fig_dtype dtype = (fig_dtype)c->step.dtype;
    double want[WIDTH_LIMIT];
    truth_rms_norm_args args = {.x = {c->in.before, dtype, p->in_stride, 0},
                                .weight = p->weight,
                                .epsilon = p->epsilon,
                                .weight_offset = p->weight_offset,
                                .row = row,
                                .width = p->width};
    if (p->residual != NULL) args.x = (truth_rows){p->residual, dtype, p->residual_stride, 0};
    truth_rms_norm(&args, want);
    for (int32_t i = 0; i < p->width; i++) {
        double lost = 4 * truth_ulp(FIG_F32, want[i]);
        fig_reference_step_expect(&c->step, "rms_norm out", row * p->out_stride + i,
                                  truth_load(p->out, dtype, row * p->out_stride + i), want[i],
                                  fig_reference_step_tolerance(&c->step, want[i], lost));
    }
}

static void norm_and_residual_equal_float64_within_their_rounding(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        rms_norm_case c;
        open_case(&c, n);
        fig_reference_launch(FIG_OP_RMS_NORM, &c.params, &c.step.random);
        for (int32_t row = 0; row < c.step.tokens; row++) {
            if (c.params.residual != NULL) check_residual(&c, row);
            check_row(&c, row);
        }
        close_case(&c);
    }
}

/* Tests a row of the greatest width. Its sum of squares is so large that f32 cannot add 1 to it, or
 * overflows f32. */
static void a_row_of_a_million_loses_nothing_and_large_squares_do_not_overflow(void **state) {
    (void)state;
    enum { WIDTH = 1 << 20 };
    static const float values[] = {1.0f, 3.7f, 1e30f, 1e-30f};
    fig_reference_step step = {.seed = seed, .dtype = FIG_F32};
    fig_plan_head *head = fig_place_allocate(sizeof *head);
    float *in = fig_place_allocate(WIDTH * sizeof *in);
    float *weight = fig_place_allocate(WIDTH * sizeof *weight);
    assert_true(head != NULL && in != NULL && weight != NULL);
    *head = (fig_plan_head){.rows = 1};
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (int32_t i = 0; i < WIDTH; i++) {
            in[i] = values[v];
            weight[i] = 2;
        }
        fig_rms_norm_params params = {.in = in,
                                      .weight = weight,
                                      .out = in,
                                      .plan = (const uint8_t *)head,
                                      .in_stride = WIDTH,
                                      .out_stride = WIDTH,
                                      .rows = {1, 1},
                                      .width = WIDTH,
                                      .dtype = FIG_F32,
                                      .epsilon = 1e-12f};
        fig_reference_launch(FIG_OP_RMS_NORM, &params, NULL);
        double x = values[v], want = 2 * x / sqrt(x * x + (double)params.epsilon);
        for (int32_t i = 0; i < WIDTH; i++)
            fig_reference_step_expect(&step, "rms_norm out", i, in[i], want,
                                      4 * truth_ulp(FIG_F32, want));
    }
    fig_place_free(head);
    fig_place_free(in);
    fig_place_free(weight);
}

/* In f16, 2048 + 3 is rounded to 2052. The norm of 2052 and 0 differs from that of 2051 and 0. */
static void the_norm_is_that_of_the_residual_as_it_was_rounded(void **state) {
    (void)state;
    struct {
        fig_plan_head head;
        uint16_t in[2], residual[2], weight[2], out[2];
    } *row = fig_place_allocate(sizeof *row);
    assert_non_null(row);
    memset(row, 0, sizeof *row);
    row->head.rows = 1;
    row->in[0] = fig_numeric_f16(3);
    row->residual[0] = fig_numeric_f16(2048);
    row->weight[0] = row->weight[1] = fig_numeric_f16(1);
    fig_rms_norm_params params = {.in = row->in,
                                  .weight = row->weight,
                                  .out = row->out,
                                  .residual = row->residual,
                                  .plan = (const uint8_t *)&row->head,
                                  .rows = {1, 1},
                                  .width = 2,
                                  .dtype = FIG_F16,
                                  .epsilon = 4e6f};
    fig_reference_launch(FIG_OP_RMS_NORM, &params, NULL);
    double rounded = 2052;
    assert_true((double)fig_numeric_of_f16(row->residual[0]) == rounded);
    float want = (float)(rounded / sqrt(rounded * rounded / 2 + 4e6));
    float wrong = (float)(2051 / sqrt(2051.0 * 2051 / 2 + 4e6));
    /* `want` is 0.3 units away from a rounding boundary of f16, so errors in f32 cannot change the
     * result. */
    assert_int_equal(row->out[0], fig_numeric_f16(want));
    assert_int_not_equal(fig_numeric_f16(wrong), fig_numeric_f16(want));
    fig_place_free(row);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_and_residual_equal_float64_within_their_rounding),
        cmocka_unit_test(a_row_of_a_million_loses_nothing_and_large_squares_do_not_overflow),
        cmocka_unit_test(the_norm_is_that_of_the_residual_as_it_was_rounded),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
