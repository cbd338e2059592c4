/* test_merge_states.c: compares the merge of two attention results with float64, and with attention
 * over both sets of tokens at once. */
#include <math.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/reference_step.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth.h"

enum { CASES = 400, HEAD_LIMIT = 5 };

static uint64_t seed;

/* A vector for each head of each row, and its lse. */
typedef struct merge_side {
    fig_reference_array out, lse;
    fig_row_strides strides;
    int64_t lse_stride;
} merge_side;

typedef struct merge_case {
    fig_reference_step step;
    merge_side a, b, joined;
    fig_merge_states_params params;
} merge_case;

static merge_side open_side(merge_case *c, float deviation) {
    fig_reference_step *step = &c->step;
    merge_side side = {.strides =
                           fig_reference_step_strides(step, c->params.heads, c->params.head_dim),
                       .lse_stride = fig_reference_step_stride(step, c->params.heads)};
    side.out = fig_reference_step_array(step, side.strides.row, deviation);
    side.lse = fig_reference_array_make(FIG_F32, step->rows.row_limit * side.lse_stride);
    return side;
}

/* Draws a side's lse: near the other side's, far from it, or minus infinity. Minus infinity stands
 * for no tokens, so the vector is NaN then. */
static void draw_sums(merge_case *c, merge_side *side) {
    fig_reference_step *step = &c->step;
    for (int32_t row = 0; row < step->rows.row_limit; row++) {
        for (int32_t head = 0; head < c->params.heads; head++) {
            int32_t spread = fig_reference_step_draw(step, 0, 1) ? 3 : 200;
            double lse = spread * (double)fig_random_float(&step->random);
            if (fig_reference_step_draw(step, 0, 3) == 0) lse = -INFINITY;
            fig_reference_array_set(&side->lse, row * side->lse_stride + head, lse);
            int64_t at = row * side->strides.row + head * side->strides.head;
            for (int32_t i = 0; i < c->params.head_dim && lse == -INFINITY; i++)
                fig_reference_array_set(&side->out, at + i, NAN);
        }
    }
    fig_reference_array_keep(&side->out);
    fig_reference_array_keep(&side->lse);
}

static void open_case(merge_case *c, int number) {
    memset(c, 0, sizeof *c);
    fig_reference_step_open(&c->step, seed, number);
    c->params = (fig_merge_states_params){.plan = c->step.plan,
                                          .rows = c->step.rows,
                                          .heads = fig_reference_step_draw(&c->step, 1, HEAD_LIMIT),
                                          .head_dim = fig_reference_step_width(&c->step, 256),
                                          .dtype = c->step.dtype};
    c->a = open_side(c, 1);
    c->b = open_side(c, 1);
    c->joined = open_side(c, 0);
    draw_sums(c, &c->a);
    draw_sums(c, &c->b);
    c->params.out_a = c->a.out.data;
    c->params.out_b = c->b.out.data;
    c->params.lse_a = c->a.lse.data;
    c->params.lse_b = c->b.lse.data;
    c->params.out = c->joined.out.data;
    c->params.lse = number % 3 == 0 ? NULL : c->joined.lse.data;
    c->params.out_a_strides = c->a.strides;
    c->params.out_b_strides = c->b.strides;
    c->params.out_strides = c->joined.strides;
    c->params.lse_a_stride = c->a.lse_stride;
    c->params.lse_b_stride = c->b.lse_stride;
    c->params.lse_stride = c->params.lse == NULL ? 0 : c->joined.lse_stride;
    fig_reference_step_allow(&c->step, &c->joined.out, c->joined.strides, c->params.heads,
                             c->params.head_dim);
    if (c->params.lse != NULL)
        fig_reference_step_allow(&c->step, &c->joined.lse,
                                 (fig_row_strides){c->joined.lse_stride, 0}, 1, c->params.heads);
}

static void close_case(merge_case *c) {
    merge_side *sides[] = {&c->a, &c->b, &c->joined};
    static const char *const names[] = {"a", "b", "joined"};
    for (int i = 0; i < 3; i++) {
        fig_reference_array_check(&sides[i]->out, names[i]);
        fig_reference_array_check(&sides[i]->lse, names[i]);
        fig_reference_array_free(&sides[i]->out);
        fig_reference_array_free(&sides[i]->lse);
    }
    fig_reference_step_close(&c->step);
}

/* Returns what f32 may lose of the side whose lse is smaller, at element i: the difference of the
 * lse is rounded, which moves its weight, and weights below f32's normal numbers may become 0. It
 * shows only where the other side's value is 0. */
static double lost_of_smaller(const merge_case *c, const truth_merge_args *args, int32_t i) {
    if (isinf(args->lse_a) || isinf(args->lse_b)) return 0;
    const double gap = fabs(args->lse_a - args->lse_b);
    const bool a_is_smaller = args->lse_a < args->lse_b;
    const fig_reference_array *out = a_is_smaller ? &c->a.out : &c->b.out;
    const fig_row_strides strides = a_is_smaller ? c->a.strides : c->b.strides;
    const int64_t at = args->row * strides.row + args->head * strides.head + i;
    const double value = fabs(truth_load(out->data, (fig_dtype)c->step.dtype, at));
    return value * (gap * 0x1p-24 * exp2(-gap) + 0x1p-126);
}

/* Errors come from two weights, their quotient and two products. */
static void check_head(const merge_case *c, int32_t row, int32_t head) {
    const fig_merge_states_params *p = &c->params;
    const fig_dtype dtype = (fig_dtype)c->step.dtype;
    truth_merge_args args = {.a = {p->out_a, dtype, p->out_a_strides.row, p->out_a_strides.head},
                             .b = {p->out_b, dtype, p->out_b_strides.row, p->out_b_strides.head},
                             .lse_a = p->lse_a[row * p->lse_a_stride + head],
                             .lse_b = p->lse_b[row * p->lse_b_stride + head],
                             .row = row,
                             .head = head,
                             .head_dim = p->head_dim};
    truth_merge_result want;
    truth_merge_states(&args, &want);
    for (int32_t i = 0; i < p->head_dim; i++) {
        int64_t at = row * p->out_strides.row + head * p->out_strides.head + i;
        double lost = 0x1p-21 * want.magnitude[i] + lost_of_smaller(c, &args, i);
        fig_reference_step_expect(&c->step, "merge_states out", at, truth_load(p->out, dtype, at),
                                  want.out[i],
                                  fig_reference_step_tolerance(&c->step, want.out[i], lost));
    }
    if (p->lse == NULL) return;
    int64_t at = row * p->lse_stride + head;
    fig_reference_step_expect(&c->step, "merge_states:lse", at, p->lse[at], want.lse,
                              2 * truth_ulp(FIG_F32, fmax(fabs(want.lse), 1)));
}

static void joined_states_equal_float64_within_their_rounding(void **state) {
    (void)state;
    for (int n = 0; n < fig_place_cases(CASES); n++) {
        merge_case c;
        open_case(&c, n);
        fig_reference_launch(FIG_OP_MERGE_STATES, &c.params, &c.step.random);
        for (int32_t row = 0; row < c.step.tokens; row++)
            for (int32_t head = 0; head < c.params.heads; head++)
                check_head(&c, row, head);
        close_case(&c);
    }
}

/* Returns sum(2^logit * value) / sum(2^logit) over tokens [first, end). */
static float attend(const double *logits, const double *values, int first, int end, float *lse) {
    double weights = 0, sum = 0;
    for (int t = first; t < end; t++) {
        weights += exp2(logits[t]);
        sum += exp2(logits[t]) * values[t];
    }
    *lse = (float)log2(weights);
    return weights == 0 ? 0 : (float)(sum / weights);
}

/* The memory of a merge: one number of each side, and the result. */
typedef struct joining {
    fig_plan_head head;
    float out_a, out_b, out, lse_a, lse_b, lse;
} joining;

/* The place of the cut does not matter, even at either end, where one side has no tokens. */
static void two_parts_of_a_sequence_join_to_the_whole(void **state) {
    (void)state;
    enum { TOKENS = 50 };
    fig_reference_step step = {.seed = seed, .dtype = FIG_F32};
    joining *j = fig_place_allocate(sizeof *j);
    assert_non_null(j);
    j->head = (fig_plan_head){.rows = 1};
    fig_random random = fig_random_seed(seed);
    double logits[TOKENS], values[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        logits[t] = 4 * (double)fig_random_normal(&random);
        values[t] = fig_random_normal(&random);
    }
    for (int cut = 0; cut <= TOKENS; cut++) {
        float whole_lse, whole = attend(logits, values, 0, TOKENS, &whole_lse);
        j->out_a = attend(logits, values, 0, cut, &j->lse_a);
        j->out_b = attend(logits, values, cut, TOKENS, &j->lse_b);
        fig_merge_states_params params = {.out_a = &j->out_a,
                                          .out_b = &j->out_b,
                                          .lse_a = &j->lse_a,
                                          .lse_b = &j->lse_b,
                                          .out = &j->out,
                                          .lse = &j->lse,
                                          .plan = (const uint8_t *)&j->head,
                                          .rows = {1, 1},
                                          .heads = 1,
                                          .head_dim = 1,
                                          .dtype = FIG_F32};
        fig_reference_launch(FIG_OP_MERGE_STATES, &params, NULL);
        fig_reference_step_expect(&step, "joined out", cut, j->out, whole, 1e-5);
        fig_reference_step_expect(&step, "joined lse", cut, j->lse, whole_lse, 1e-5);
    }
    fig_place_free(j);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_states_equal_float64_within_their_rounding),
        cmocka_unit_test(two_parts_of_a_sequence_join_to_the_whole),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
