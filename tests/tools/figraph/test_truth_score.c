/* test_truth_score.c: tests that the float64 reference of scores follows the language, and that
 * attention in float64 says how much the rounding of a logit may change its result.
 *
 * The library's own interpreter is the other side: both follow figraph_scores.h and share no
 * code. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_scores.h"
#include "tools/figraph/step/synthetic.h"
#include "tools/figraph/truth/truth_score.h"

enum { ELEMENTS = 24, PLACES = 200 };

static const float reals[ELEMENTS] = {0.5F, -3.25F, 1e9F, -1e9F, INFINITY, -INFINITY, NAN, 7};
static const int32_t wholes[ELEMENTS] = {0,         -1, 1,      31,     33,       INT32_MIN,
                                         INT32_MAX, -7, 0xffff, -65536, 123456789};
static const uint16_t halves[ELEMENTS] = {0x3f80, 0xbf80, 0x4049, 0x7f80, 0xff80};

static const char *const texts[] = {
    "score",
    "f[head] * (kv_pos - q_pos) + score",
    "30 * tanh(score / 30)",
    "h[head] + f[kv_pos] - f[q_pos % 24]",
    "select(i32a[head] < i32a[kv_head], score, -inf)",
    "float(i32a[head] + i32a[kv_head])",
    "float(i32a[head] - i32a[kv_head])",
    "float(i32a[head] * i32a[kv_head])",
    "float(i32a[head] // i32a[kv_head])",
    "float(i32a[head] % i32a[kv_head])",
    "float(i32a[head] & i32a[kv_head] | i32a[row])",
    "float(i32a[head] ^ i32a[kv_head])",
    "float(i32a[head] << i32a[kv_head])",
    "float(i32a[head] >> i32a[kv_head])",
    "float(-i32a[head] + abs(i32a[kv_head]))",
    "float(min(i32a[head], i32a[kv_head]) - max(i32a[head], row))",
    "min(f[head], 2.0) + max(h[kv_head], 1.5)",
    "abs(f[head]) - -h[kv_head]",
    "float(int(f[head] * 3.7) + int(score))",
    "f[head] / f[kv_head]",
    "float((f[head] < f[kv_head]) + 2 * (f[head] <= f[kv_head]))",
    "float((f[head] == f[kv_head]) + 2 * (f[head] != f[kv_head]))",
    "float((i32a[head] <= row) + 2 * (i32a[head] == 1) + 4 * (i32a[head] != 31))",
    "float(i32a[head]) + 16777217 * float(kv_pos)",
    "exp2(score) + log2(kv_length) + sigmoid(score) + sin(score) + cos(score)",
    "f[i32a[head]] + h[q_pos - 100] - c",
    "score + 100000000.0 - 100000000.0",
    "see q_pos - 30:q_pos + 1, i32a[head]:i32a[kv_head] + 9; score",
    "see 0:kv_length; bits i32a[head], i32a[kv_head] * 0x1357; score - 1",
    "see i32a[head] % kv_length:i32a[kv_head], kv_length - 20:q_pos; bits -2, i32a[row]; score",
};

/* Makes the score of a text over the arrays above, whose names begin as f, h, i and c. */
static fig_score *open(const char *text, truth_score *truth, fig_score_place *place) {
    static const char *const arrays[][2] = {{"f[", "f32 f[24]; "},
                                            {"h[", "bf16 h[24]; "},
                                            {"i32a[", "i32 i32a[24]; "},
                                            {"- c", "f32 c; "}};
    char whole[512] = "";
    fig_score *score;
    size_t used = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (strstr(text, arrays[i][0]) != NULL)
            used += (size_t)snprintf(whole + used, sizeof whole - used, "%s", arrays[i][1]);
    snprintf(whole + used, sizeof whole - used, "%s", text);
    if (fig_score_parse(&score, whole) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    *truth = (truth_score){.parts = {.size = sizeof truth->parts}};
    assert_int_equal(fig_score_read(score, &truth->parts), FIG_OK);
    for (int32_t i = 0; i < truth->parts.array_count; i++) {
        const char first = truth->parts.arrays[i].name[0];
        truth->arrays[i] = first == 'h'   ? (const void *)halves
                           : first == 'i' ? (const void *)wholes
                                          : (const void *)reals;
        truth->counts[i] = truth->parts.arrays[i].count;
    }
    place->arrays = truth->arrays;
    place->counts = truth->counts;
    return score;
}

static void the_reference_and_the_library_agree(void **state) {
    (void)state;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        truth_score truth;
        fig_synthetic random;
        fig_score_place place = {.size = sizeof place, .kv_length = 300};
        fig_score *score = open(texts[t], &truth, &place);
        fig_synthetic_seed(&random, t + 1);
        for (int i = 0; i < PLACES; i++) {
            place.q_pos = fig_synthetic_below(&random, 300);
            place.kv_pos = fig_synthetic_below(&random, place.q_pos + 1);
            place.head = fig_synthetic_below(&random, ELEMENTS);
            place.kv_head = fig_synthetic_below(&random, ELEMENTS);
            place.row = fig_synthetic_below(&random, 5);
            const truth_score_place at = {place.q_pos,   place.kv_pos, place.kv_length, place.head,
                                          place.kv_head, place.row,    &truth};
            float got = (float)fig_synthetic_below(&random, 1000) / 64 - 8;
            const int seen = truth.parts.mask_node_count == 0 || truth_score_sees(&at);
            const double want = seen ? truth_score_of(&at, (double)got) : -INFINITY;
            assert_int_equal(fig_score_evaluate(score, &place, &got, 1), FIG_OK);
            if (isnan(want) && isnan(got)) continue;
            const double tolerance = isinf(want) ? 0 : 1e-6 * fabs(want);
            if ((double)got == want || fabs((double)got - want) <= tolerance) continue;
            fail_msg("%s at head %d, kv_head %d: %.9g, the reference has %.9g", texts[t],
                     place.head, place.kv_head, (double)got, want);
        }
        fig_score_destroy(score);
    }
}

/* ---- Attention */

enum { TOKENS = 4, DIM = 4 };

/* Attention over four tokens whose logits are 0, 1, 2 and 3, and whose values are 1, 2, 3 and 4. */
static truth_attention_result attend(const char *text) {
    static const float q[DIM] = {1};
    float k[TOKENS][DIM] = {{0}}, v[TOKENS][DIM] = {{0}};
    truth_score truth;
    truth_attention_result result;
    fig_score_place place = {.size = sizeof place};
    fig_score *score = open(text, &truth, &place);
    const truth_cache cache = {.dtype = FIG_F32,
                               .page_stride = (ptrdiff_t)TOKENS * DIM,
                               .token_stride = DIM,
                               .pages = 1,
                               .page_size = TOKENS};
    truth_attention_args args = {.q = {.base = q, .dtype = FIG_F32},
                                 .k = cache,
                                 .v = cache,
                                 .length = TOKENS,
                                 .head_dim = DIM,
                                 .sm_scale = 1,
                                 .score = truth_score_of,
                                 .score_context = &truth,
                                 .is_sigmoid = truth.parts.weights == FIG_SCORE_SIGMOID_WEIGHTS,
                                 .kv_length = TOKENS};
    for (int i = 0; i < TOKENS; i++) {
        k[i][0] = (float)i;
        v[i][0] = (float)(i + 1);
    }
    args.k.base = k;
    args.v.base = v;
    truth_attention(&args, &result);
    fig_score_destroy(score);
    return result;
}

static void a_score_that_follows_the_logit_leaves_little_slack(void **state) {
    (void)state;
    const truth_attention_result result = attend("score * 1.0");
    const double due = (1 + 2 * exp(1) + 3 * exp(2) + 4 * exp(3)) / (1 + exp(1) + exp(2) + exp(3));
    assert_true(fabs(result.out[0] - due) < 1e-12);
    assert_true(result.slack[0] > 0 && result.slack[0] < 1e-4);
    assert_true(result.slack[1] == 0);
}

static void a_comparison_within_the_rounding_of_a_logit_is_slack(void **state) {
    (void)state;
    assert_true(attend("select(score < 2.0, 0.0, -inf)").slack[0] > 0.5);
    assert_true(attend("select(score < 1.9, 0.0, -inf)").slack[0] < 1e-6);
    assert_true(attend("select(score < 1.9, 0.0, -inf)").out[0] == 1.5);
}

static void a_magnified_logit_has_more_slack(void **state) {
    (void)state;
    const double once = attend("score * 0.001").slack[0];
    const double often = attend("score * 1000.0 - score * 999.0").slack[0];
    assert_true(often > 100 * once);
}

static void sigmoid_weights_of_small_scores_are_not_nan(void **state) {
    (void)state;
    assert_true(attend("weights sigmoid; score * 0 - 2000.0").out[0] == 0);
    assert_true(fabs(attend("weights sigmoid; 0.0 * score").out[0] - 5) < 1e-12);
    assert_true(attend("weights sigmoid; select(kv_pos < 4, -inf, score)").out[0] == 0);
}

static void a_mask_may_show_later_tokens(void **state) {
    static const float q[DIM] = {0}, v[TOKENS][DIM] = {{1}, {2}, {3}, {4}};
    fig_score_place place = {.size = sizeof place};
    truth_score truth;
    truth_attention_result result;
    (void)state;
    fig_score *score = open("see 0:1, 3:9; score", &truth, &place);
    const truth_cache cache = {.base = v,
                               .dtype = FIG_F32,
                               .page_stride = (ptrdiff_t)TOKENS * DIM,
                               .token_stride = DIM,
                               .pages = 1,
                               .page_size = TOKENS};
    truth_attention_args args = {.q = {.base = q, .dtype = FIG_F32},
                                 .k = cache,
                                 .v = cache,
                                 .length = 2, /* the query is token 1 */
                                 .head_dim = DIM,
                                 .sm_scale = 1,
                                 .score = truth_score_of,
                                 .sees = truth_score_sees,
                                 .score_context = &truth,
                                 .kv_length = TOKENS};
    truth_attention(&args, &result);
    assert_true(fabs(result.out[0] - 2.5) < 1e-12);
    args.window = 1; /* the query's own token and later ones */
    truth_attention(&args, &result);
    assert_true(fabs(result.out[0] - 4) < 1e-12);
    fig_score_destroy(score);
}

static void nothing_is_seen_where_every_score_is_minus_infinity(void **state) {
    (void)state;
    const truth_attention_result result = attend("score - inf");
    assert_true(result.out[0] == 0 && result.slack[0] == 0 && isinf(result.lse));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_and_the_library_agree),
        cmocka_unit_test(a_score_that_follows_the_logit_leaves_little_slack),
        cmocka_unit_test(a_comparison_within_the_rounding_of_a_logit_is_slack),
        cmocka_unit_test(a_magnified_logit_has_more_slack),
        cmocka_unit_test(sigmoid_weights_of_small_scores_are_not_nan),
        cmocka_unit_test(a_mask_may_show_later_tokens),
        cmocka_unit_test(nothing_is_seen_where_every_score_is_minus_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
