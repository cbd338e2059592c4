/* test_gated.c: compares silu, gelu, gelu_tanh and swiglu_limited, each applied to the gate and
 * multiplied by the other half, with float64: for random shapes and strides, and for every 16-bit
 * number as the gate and as the other half.
 *
 * Outputs are filled with poison first, so that an element that is not written is NaN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

/* In some cases, rows have more elements than a GPU's block processes at a time. */
enum { CASES = 400, NARROW_LIMIT = 600, WIDTH_LIMIT = 12000 };

static const char *const names[] = {"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul",
                                    "swiglu_limited"};
static uint64_t seed;

/* Returns the error that f32 may cause: a few units in the last place from the products, a few more
 * in proportion to the argument of the exponential, and 1e-36, below which an exponential is
 * infinite or subnormal. */
static double lost_of(const fig_gated_params *p, double gate, double up, double want) {
    if (p->activation == FIG_SWIGLU_LIMITED) {
        gate = gate > 7 ? 7 : gate;
        up = 1 + (up > 7 ? 7 : up < -7 ? -7 : up);
    }
    double fraction = want / (gate * up);
    double exponent = fraction > 0 && fraction < 1 ? -log(fraction) : 0;
    double lost = (6 + 3 * exponent) * truth_ulp(FIG_F32, want) + 1e-36 * fabs(up);
    return isfinite(lost) ? lost : 0;
}

static void check_row(const fig_reference_step *step, const fig_gated_params *p, int32_t row) {
    const fig_dtype dtype = (fig_dtype)step->dtype;
    double want[WIDTH_LIMIT];
    truth_gated_args args = {.in = {p->in, dtype, p->in_stride, 0},
                             .activation = (fig_activation)p->activation,
                             .row = row,
                             .width = p->width};
    truth_gated(&args, want);
    for (int32_t i = 0; i < p->width; i++) {
        double got = truth_load(p->out, dtype, row * p->out_stride + i);
        double gate = truth_load(p->in, dtype, row * p->in_stride + i);
        double up = truth_load(p->in, dtype, row * p->in_stride + p->width + i);
        fig_reference_step_expect(
            step, names[p->activation], row * p->out_stride + i, got, want[i],
            fig_reference_step_tolerance(step, want[i], lost_of(p, gate, up, want[i])));
    }
}

static void each_activation_equals_float64_within_its_rounding(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        fig_reference_step step;
        fig_reference_step_open(&step, seed, n);
        int32_t width = fig_reference_step_width(&step, n % 25 == 0 ? WIDTH_LIMIT : NARROW_LIMIT);
        fig_gated_params params = {.plan = step.plan,
                                   .in_stride = fig_reference_step_stride(&step, 2 * width),
                                   .out_stride = fig_reference_step_stride(&step, width),
                                   .rows = step.rows,
                                   .width = width,
                                   .dtype = step.dtype,
                                   .activation =
                                       fig_reference_step_draw(&step, 0, FIG_SWIGLU_LIMITED)};
        fig_reference_array in =
            fig_reference_step_array(&step, params.in_stride, n % 10 == 0 ? 50.0f : 3.0f);
        fig_reference_array out = fig_reference_step_array(&step, params.out_stride, 0);
        fig_reference_step_allow(&step, &out, (fig_row_strides){params.out_stride, 0}, 1, width);
        params.in = in.data;
        params.out = out.data;
        fig_reference_launch(FIG_OP_GATED, &params, &step.random);
        for (int32_t row = 0; row < step.tokens; row++)
            check_row(&step, &params, row);
        fig_reference_array_check(&in, "in");
        fig_reference_array_check(&out, "out");
        fig_reference_array_free(&in);
        fig_reference_array_free(&out);
        fig_reference_step_close(&step);
    }
}

/* Tests rows of 256 gates, each multiplied by 1. */
static void every_16_bit_gate_equals_float64_within_its_rounding(void **state) {
    (void)state;
    static const int32_t dtypes[] = {FIG_F16, FIG_BF16};
    fig_reference_step step = {.seed = seed};
    fig_plan_head *head = fig_place_allocate(sizeof *head);
    uint16_t *in = fig_place_allocate(512 * sizeof *in), *out = fig_place_allocate(512);
    assert_true(head != NULL && in != NULL && out != NULL);
    *head = (fig_plan_head){.rows = 1};
    fig_gated_params params = {.in = in,
                               .out = out,
                               .plan = (const uint8_t *)head,
                               .in_stride = 512,
                               .out_stride = 256,
                               .rows = {1, 1},
                               .width = 256};
    for (uint32_t n = 0; n < (uint32_t)fig_place_cases(2 * 4 * 256); n++) {
        params.dtype = step.dtype = dtypes[n % 2];
        params.activation = (int32_t)(n / 2 % 4);
        for (uint32_t i = 0; i < 256; i++) {
            in[i] = (uint16_t)(n / 8 * 256 + i);
            in[256 + i] = step.dtype == FIG_F16 ? 0x3c00 : 0x3f80;
        }
        fig_reference_launch(FIG_OP_GATED, &params, NULL);
        check_row(&step, &params, 0);
    }
    fig_place_free(head);
    fig_place_free(in);
    fig_place_free(out);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_activation_equals_float64_within_its_rounding),
        cmocka_unit_test(every_16_bit_gate_equals_float64_within_its_rounding),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
