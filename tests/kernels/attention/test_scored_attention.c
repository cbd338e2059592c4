/* test_scored_attention.c: compares attention with a score with float64, for the scores that users
 * typically write. Pages, dtypes, heads, windows, splits and numbers of queries are drawn for each
 * score.
 *
 * The reference of each score is written in C and float64, and reads the arrays itself. */
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

enum {
    ALL = 1 << 20,
    CASES = 24,
    SLOPES = 64,
    BIASES = 4096,
    BUCKETS = 32 * SLOPES,
    TOKENS = 512, /* of a row of an array */
    ROWS = FIG_CASE_ROW_LIMIT
};

static uint64_t seed;

/* The arrays that variants read. */
static struct {
    fig_reference_array slope, bias, bucket, document, prefix, sees, temperature;
} arrays;

static int32_t clamp(int32_t index, int32_t count) {
    return index < 0 ? 0 : index >= count ? count - 1 : index;
}

static double real_at(const fig_reference_array *array, int32_t index) {
    return truth_load(array->data, (fig_dtype)array->dtype, clamp(index, (int32_t)array->count));
}

static int32_t integer_at(const fig_reference_array *array, int32_t index) {
    return ((const int32_t *)array->data)[clamp(index, (int32_t)array->count)];
}

/* ---- Variants */

static double alibi(const truth_score_place *at, double logit) {
    return logit + real_at(&arrays.slope, at->head) * (at->kv_pos - at->q_pos);
}

static double t5_buckets(const truth_score_place *at, double logit) {
    const int32_t far = at->q_pos - at->kv_pos;
    int32_t bucket = far;
    if (far >= 16) bucket = 16 + (int32_t)(log2(far / 16.0) / 3.0 * 16.0);
    if (bucket > 31) bucket = 31;
    return logit + real_at(&arrays.bucket, at->head * 32 + bucket);
}

static double bias_of_tokens(const truth_score_place *at, double logit) {
    return logit + real_at(&arrays.bias, at->row * 64 + at->kv_pos);
}

static double soft_cap(const truth_score_place *at, double logit) {
    (void)at;
    return 5 * tanh(logit / 5);
}

static double sigmoid(const truth_score_place *at, double logit) {
    return logit - log2(at->kv_length) * (double)0.6931472f;
}

static double chunks(const truth_score_place *at, double logit) {
    return at->kv_pos / 40 == at->q_pos / 40 ? logit : -INFINITY;
}

static double prefix_lm(const truth_score_place *at, double logit) {
    const int32_t prefix = integer_at(&arrays.prefix, at->row);
    return at->kv_pos < prefix || at->q_pos - at->kv_pos < 12 ? logit : -INFINITY;
}

static double documents(const truth_score_place *at, double logit) {
    const int32_t base = at->row * TOKENS;
    return integer_at(&arrays.document, base + at->kv_pos) ==
                   integer_at(&arrays.document, base + at->q_pos)
               ? logit
               : -INFINITY;
}

static double sinks_and_stream(const truth_score_place *at, double logit) {
    return at->kv_pos < 4 || at->kv_pos > at->q_pos - 30 ? logit : -INFINITY;
}

static double tree_bits(const truth_score_place *at, double logit) {
    const int32_t n = at->kv_pos - at->kv_length + 8;
    const int32_t bits = integer_at(&arrays.sees, at->row * 8 + at->q_pos - at->kv_length + 8);
    return n < 0 || (bits >> n & 1) ? logit : -INFINITY;
}

/* A score that depends on every term, with a scalar and a temperature. */
static double every_term(const truth_score_place *at, double logit) {
    const double warm = 1 + fabs(sin(0.1 * at->head)) + 0.25 * cos(at->kv_head);
    const double far = (at->kv_pos - at->q_pos) / (double)at->kv_length;
    return logit / warm + (double)(float)real_at(&arrays.temperature, 0) * far -
           (at->row % 3) * 0.125;
}

typedef struct variant {
    const char *text;
    double (*truth)(const truth_score_place *place, double logit);
    const fig_reference_array *reads;
} variant;

static const variant variants[] = {
    {"f32 slope[64]; score + slope[head] * (kv_pos - q_pos)", alibi, &arrays.slope},
    {"far = q_pos - kv_pos; b = 16 + int(log2(far / 16.0) / 3.0 * 16.0); f32 bucket[2048]; "
     "score + bucket[head * 32 + select(far < 16, far, min(b, 31))]",
     t5_buckets, &arrays.bucket},
    {"bf16 bias[4096]; score + bias[row * 64 + kv_pos]", bias_of_tokens, &arrays.bias},
    {"5.0 * tanh(score / 5)", soft_cap, NULL},
    {"weights sigmoid; score - log2(kv_length) * 0.6931472", sigmoid, NULL},
    {"select(kv_pos // 40 == q_pos // 40, score, -inf)", chunks, NULL},
    {"i32 prefix[256]; select((kv_pos < prefix[row]) | (q_pos - kv_pos < 12), score, -inf)",
     prefix_lm, &arrays.prefix},
    {"i32 document[131072]; base = row * 512; "
     "select(document[base + kv_pos] == document[base + q_pos], score, -inf)",
     documents, &arrays.document},
    {"select((kv_pos < 4) | (kv_pos > q_pos - 30), score, -inf)", sinks_and_stream, NULL},
    {"i32 sees[2048]; n = kv_pos - kv_length + 8; "
     "select((n < 0) | sees[row * 8 + q_pos - kv_length + 8] >> n & 1, score, -inf)",
     tree_bits, &arrays.sees},
    {"f32 temperature; warm = 1.0 + abs(sin(0.1 * head)) + 0.25 * cos(kv_head); "
     "score / warm + temperature * ((kv_pos - q_pos) / kv_length) - (row % 3) * 0.125",
     every_term, &arrays.temperature},
};
enum { VARIANT_COUNT = sizeof variants / sizeof variants[0] };

/* ---- Cases */

static int set_up(void **state) {
    fig_random random = fig_random_seed(seed);
    (void)state;
    arrays.slope = fig_reference_array_make(FIG_F32, SLOPES);
    arrays.bias = fig_reference_array_make(FIG_BF16, BIASES);
    arrays.bucket = fig_reference_array_make(FIG_F32, BUCKETS);
    arrays.document = fig_reference_array_make(FIG_I32, (int64_t)ROWS * TOKENS);
    arrays.prefix = fig_reference_array_make(FIG_I32, ROWS);
    arrays.sees = fig_reference_array_make(FIG_I32, 8 * ROWS);
    arrays.temperature = fig_reference_array_make(FIG_F32, 1);
    fig_reference_array_fill(&arrays.slope, 0, SLOPES, &random, 0.1f);
    fig_reference_array_fill(&arrays.bias, 0, BIASES, &random, 1);
    fig_reference_array_fill(&arrays.bucket, 0, BUCKETS, &random, 1);
    fig_reference_array_set(&arrays.temperature, 0, 1.5);
    for (int32_t i = 0; i < ROWS * TOKENS; i++)
        fig_reference_array_set(&arrays.document, i, i % TOKENS / 23);
    for (int32_t i = 0; i < ROWS; i++)
        fig_reference_array_set(&arrays.prefix, i, i * 7 % 60);
    for (int32_t i = 0; i < 8 * ROWS; i++) /* each query sees itself */
        fig_reference_array_set(&arrays.sees, i, fig_random_range(&random, 0, 255) | 1 << i % 8);
    return 0;
}

static int tear_down(void **state) {
    fig_reference_array *const all[] = {&arrays.slope,      &arrays.bias,   &arrays.bucket,
                                        &arrays.document,   &arrays.prefix, &arrays.sees,
                                        &arrays.temperature};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        fig_reference_array_free(all[i]);
    return 0;
}

static fig_score *parse(const variant *of) {
    fig_score *score;
    if (fig_score_parse(&score, of->text) != FIG_OK) fail_msg("%s: %s", of->text, fig_message());
    return score;
}

static void give_score(fig_attention_form *form, const variant *of, const fig_score *score) {
    form->score = score;
    form->score_truth = of->truth;
    form->alibi = 0;
    form->soft_cap = 0;
    if (score->code.weights == FIG_SCORE_SIGMOID_WEIGHTS) form->sinks = 0;
    if (of->reads != NULL) form->arrays[0] = of->reads->data;
}

static void try_variant(const variant *of, uint64_t test) {
    fig_score *score = parse(of);
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(CASES); n++) {
        fig_attention_case c;
        fig_random random = fig_random_seed(seed + 100000 * test + n);
        fig_attention_form form = fig_attention_form_draw(&random, seed);
        form.rows = fig_random_range(&random, 1, form.row_limit);
        form.lengths[0] = fig_random_range(&random, 1, 100);
        for (int32_t r = 0; r < form.rows; r++)
            form.contents[r] = r;
        fig_attention_form_draw_features(&form, &random);
        give_score(&form, of, score);
        fig_attention_case_open(&c, &form, random);
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
    fig_score_destroy(score);
}

static void every_variant_agrees_with_float64(void **state) {
    (void)state;
    for (int32_t i = 0; i < VARIANT_COUNT; i++)
        try_variant(&variants[i], (uint64_t)i);
}

/* ---- Tokens that a score hides */

/* One row of 48 tokens over a dense f32 cache, cut in three pieces. */
static fig_attention_form plain_form(void) {
    return (fig_attention_form){.seed = seed,
                                .dtype = FIG_F32,
                                .kv_dtype = FIG_F32,
                                .head_dim = 64,
                                .kv_heads = 1,
                                .heads_per_worker = 1,
                                .ratio = 2,
                                .tile_tokens = 16,
                                .workers = 3,
                                .row_limit = 1,
                                .rows = 1,
                                .row_tokens = 1,
                                .length_limit = 64,
                                .lengths = {48}};
}

static void the_value_of_a_hidden_token_is_not_read(void **state) {
    static const variant of = {"select(kv_pos // 40 == q_pos // 40, score, -inf)", chunks, NULL};
    fig_score *score = parse(&of);
    fig_attention_form form = plain_form();
    fig_attention_case c;
    (void)state;
    give_score(&form, &of, score);
    fig_attention_case_open(&c, &form, fig_random_seed(seed));
    const fig_cache_strides *strides = &c.params.v_cache_strides;
    for (int32_t token = 0; token < 40; token++) {
        const int64_t at = c.sequences[0] * strides->page + token * strides->token;
        for (int32_t i = 0; i < 64; i++)
            ((float *)c.v.data)[at + i] = NAN;
    }
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, ALL);
    fig_attention_case_close(&c);
    fig_score_destroy(score);
}

static double nothing(const truth_score_place *at, double logit) {
    (void)at;
    (void)logit;
    return -INFINITY;
}

static void a_query_that_sees_no_token_gets_zeros(void **state) {
    static const variant softmax = {"select(head < 0, score, -inf)", nothing, NULL};
    static const variant sigmoids = {"weights sigmoid; select(head < 0, score, -inf)", nothing,
                                     NULL};
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        const variant *of = i == 0 ? &softmax : &sigmoids;
        fig_score *score = parse(of);
        fig_attention_form form = plain_form();
        fig_attention_case c;
        give_score(&form, of, score);
        fig_attention_case_open(&c, &form, fig_random_seed(seed));
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, ALL);
        assert_true(c.params.lse[fig_attention_case_lse(&c, 0, 0, 1)] == -INFINITY);
        fig_attention_case_close(&c);
        fig_score_destroy(score);
    }
}

int main(int argc, char **argv) {
    seed = fig_reference_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_agrees_with_float64),
        cmocka_unit_test(the_value_of_a_hidden_token_is_not_read),
        cmocka_unit_test(a_query_that_sees_no_token_gets_zeros),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
