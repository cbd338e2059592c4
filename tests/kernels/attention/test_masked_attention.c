/* test_masked_attention.c: compares attention under a mask with float64, for the masks that users
 * typically write. Pages, dtypes, heads, windows, splits and numbers of queries are drawn for each
 * mask.
 *
 * The reference of each mask is written in C and reads the arrays itself. */
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
    TOKENS = 512, /* elements of an array for one row of the step */
    DRAFTS = 8,   /* query tokens of a row that arrays of bits have room for */
    ROWS = FIG_CASE_ROW_LIMIT
};

static uint64_t seed;

/* The arrays that masks read. */
static struct { fig_reference_array start, prefix, image, sees, slope; } arrays;

static int32_t integer_at(const fig_reference_array *array, int32_t index) {
    const int32_t count = (int32_t)array->count;
    const int32_t at = index < 0 ? 0 : index >= count ? count - 1 : index;
    return ((const int32_t *)array->data)[at];
}

/* ---- Masks */

static int causal(const truth_score_place *at) {
    return at->kv_pos <= at->q_pos;
}

static int window(const truth_score_place *at) {
    return at->kv_pos <= at->q_pos && at->kv_pos > at->q_pos - 30;
}

static int chunked_local(const truth_score_place *at) {
    return at->kv_pos <= at->q_pos && at->kv_pos / 40 == at->q_pos / 40;
}

static int prefix_lm(const truth_score_place *at) {
    return at->kv_pos <= at->q_pos || at->kv_pos < integer_at(&arrays.prefix, at->row);
}

static int packed_documents(const truth_score_place *at) {
    const int32_t start = integer_at(&arrays.start, at->row * TOKENS + at->q_pos);
    return at->kv_pos >= start && at->kv_pos <= at->q_pos;
}

/* Tokens of one image see each other. */
static int images(const truth_score_place *at) {
    const int32_t first = integer_at(&arrays.image, 2 * at->q_pos);
    const int32_t end = integer_at(&arrays.image, 2 * at->q_pos + 1);
    return at->kv_pos <= at->q_pos || (at->kv_pos >= first && at->kv_pos < end);
}

static int sinks_and_stream(const truth_score_place *at) {
    return at->kv_pos < 4 || (at->kv_pos > at->q_pos - 30 && at->kv_pos <= at->q_pos);
}

static int has_bit(const truth_score_place *at) {
    const int32_t query = at->row * DRAFTS + at->q_pos - at->kv_length + DRAFTS;
    const int32_t bit = at->kv_pos - at->kv_length + 64;
    if (bit < 0) return 1;
    return integer_at(&arrays.sees, 2 * query + bit / 32) >> bit % 32 & 1;
}

static int tree(const truth_score_place *at) {
    return has_bit(at);
}

static int tree_and_stream(const truth_score_place *at) {
    return sinks_and_stream(at) && has_bit(at);
}

/* A mask that depends on every term, with bounds outside the row. */
static int every_term(const truth_score_place *at) {
    const int32_t first = at->head * 3 - at->kv_head - 5, end = at->kv_length / 2 + at->row;
    return (at->kv_pos >= first && at->kv_pos < end) || at->kv_pos >= at->q_pos - 2 * at->head;
}

static int everything(const truth_score_place *at) {
    (void)at;
    return 1;
}

static int nothing(const truth_score_place *at) {
    (void)at;
    return 0;
}

static double logit_itself(const truth_score_place *at, double logit) {
    (void)at;
    return logit;
}

static double alibi(const truth_score_place *at, double logit) {
    const double slope = truth_load(arrays.slope.data, FIG_F32, at->head);
    return logit + slope * (at->kv_pos - at->q_pos);
}

static double hides_odd_tokens(const truth_score_place *at, double logit) {
    return at->kv_pos % 2 == 0 ? logit : -INFINITY;
}

typedef struct variant {
    const char *text;
    int (*mask)(const truth_score_place *place);
    double (*score)(const truth_score_place *place, double logit);
    const fig_reference_array *reads[2];
} variant;

#define BITS                                                                                       \
    "i32 sees[4096]; n = 2 * (row * 8 + q_pos - kv_length + 8); bits sees[n], sees[n + 1]; "

static const variant variants[] = {
    {"see 0:q_pos + 1; score", causal, logit_itself, {NULL}},
    {"see q_pos - 29:q_pos + 1; score", window, logit_itself, {NULL}},
    {"see q_pos // 40 * 40:q_pos + 1; score", chunked_local, logit_itself, {NULL}},
    {"i32 prefix[256]; see 0:max(q_pos + 1, prefix[row]); score",
     prefix_lm,
     logit_itself,
     {&arrays.prefix}},
    {"i32 start[131072]; see start[row * 512 + q_pos]:q_pos + 1; score",
     packed_documents,
     logit_itself,
     {&arrays.start}},
    {"i32 image[1024]; see 0:q_pos + 1, image[2 * q_pos]:image[2 * q_pos + 1]; score",
     images,
     logit_itself,
     {&arrays.image}},
    {"see q_pos - 29:q_pos + 1, 0:4; score", sinks_and_stream, logit_itself, {NULL}},
    {BITS "see 0:kv_length; score", tree, logit_itself, {&arrays.sees}},
    {BITS "see q_pos - 29:q_pos + 1, 0:4; score", tree_and_stream, logit_itself, {&arrays.sees}},
    {"see head * 3 - kv_head - 5:kv_length // 2 + row, q_pos - 2 * head:0x7fffffff; score",
     every_term,
     logit_itself,
     {NULL}},
    {"f32 slope[64]; i32 start[131072]; see start[row * 512 + q_pos]:q_pos + 1; "
     "score + slope[head] * (kv_pos - q_pos)",
     packed_documents,
     alibi,
     {&arrays.slope, &arrays.start}},
    {"weights sigmoid; see q_pos - 29:q_pos + 1, 0:4; score",
     sinks_and_stream,
     logit_itself,
     {NULL}},
    {"see 0:q_pos + 1; select(kv_pos % 2 == 0, score, -inf)", causal, hides_odd_tokens, {NULL}},
    {"see -0x7fffffff:0x7fffffff; score", everything, logit_itself, {NULL}},
    {"see kv_length:kv_length + 9, 5:-5; score", nothing, logit_itself, {NULL}},
};
enum { VARIANT_COUNT = sizeof variants / sizeof variants[0] };

/* ---- Cases */

static int set_up(void **state) {
    fig_random random = fig_random_seed(seed);
    (void)state;
    arrays.start = fig_reference_array_make(FIG_I32, (int64_t)ROWS * TOKENS);
    arrays.prefix = fig_reference_array_make(FIG_I32, ROWS);
    arrays.image = fig_reference_array_make(FIG_I32, 2 * (int64_t)TOKENS);
    arrays.sees = fig_reference_array_make(FIG_I32, 2 * DRAFTS * (int64_t)ROWS);
    arrays.slope = fig_reference_array_make(FIG_F32, 64);
    fig_reference_array_fill(&arrays.slope, 0, 64, &random, 0.1f);
    for (int32_t i = 0; i < ROWS * TOKENS; i++)
        fig_reference_array_set(&arrays.start, i, i % TOKENS / 23 * 23);
    for (int32_t i = 0; i < ROWS; i++)
        fig_reference_array_set(&arrays.prefix, i, i * 7 % 60);
    for (int32_t i = 0; i < TOKENS; i++) { /* every second stretch of 20 tokens is an image */
        const int32_t is_image = i / 20 % 2;
        fig_reference_array_set(&arrays.image, 2 * i, is_image ? i / 20 * 20 : 0);
        fig_reference_array_set(&arrays.image, 2 * i + 1, is_image ? i / 20 * 20 + 20 : 0);
    }
    for (int32_t i = 0; i < 2 * DRAFTS * ROWS; i++)
        ((int32_t *)arrays.sees.data)[i] = (int32_t)fig_random_bits(&random);
    return 0;
}

static int tear_down(void **state) {
    fig_reference_array *const all[] = {&arrays.start, &arrays.prefix, &arrays.image, &arrays.sees,
                                        &arrays.slope};
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

/* Gives the form a score, with its arrays in the order in which the score has them. */
static void give_score(fig_attention_form *form, const variant *of, const fig_score *score) {
    form->score = score;
    form->score_truth = of->score;
    form->mask_truth = of->mask;
    form->alibi = 0;
    form->soft_cap = 0;
    if (score->code.weights == FIG_SCORE_SIGMOID_WEIGHTS) form->sinks = 0;
    for (int32_t i = 0; i < 2; i++)
        if (of->reads[i] != NULL) form->arrays[i] = of->reads[i]->data;
}

static void try_variant(const variant *of, uint64_t test, int32_t counted) {
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
        if (counted) fig_attention_form_draw_counts(&form, &random);
        if (counted) form.fixed = 0;
        give_score(&form, of, score);
        form.planned = n % 4 != 3;
        fig_attention_case_open(&c, &form, random);
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, ALL);
        fig_attention_case_close(&c);
    }
    fig_score_destroy(score);
}

static void every_mask_agrees_with_float64(void **state) {
    (void)state;
    for (int32_t i = 0; i < VARIANT_COUNT; i++)
        try_variant(&variants[i], (uint64_t)i, 0);
}

static void every_mask_agrees_in_packed_rows(void **state) {
    (void)state;
    for (int32_t i = 0; i < VARIANT_COUNT; i++)
        try_variant(&variants[i], (uint64_t)(VARIANT_COUNT + i), 1);
}

/* ---- Lines without hidden tiles */

/* Masks whose hidden tiles the planner knows, in rows of up to 400 tokens. */
static const variant known[] = {
    {"see q_pos - 29:q_pos + 1; score", window, logit_itself, {NULL}},
    {"see q_pos // 40 * 40:q_pos + 1; score", chunked_local, logit_itself, {NULL}},
    {"see q_pos - 29:q_pos + 1, 0:4; score", sinks_and_stream, logit_itself, {NULL}},
    {BITS "see q_pos - 29:q_pos + 1, 0:4; score", tree_and_stream, logit_itself, {&arrays.sees}},
    {"see head * 3 - kv_head - 5:kv_length // 2 + row, q_pos - 2 * head:0x7fffffff; score",
     every_term,
     logit_itself,
     {NULL}},
    {"weights sigmoid; see q_pos - 29:q_pos + 1, 0:4; score",
     sinks_and_stream,
     logit_itself,
     {NULL}},
    {"see kv_length:kv_length + 9, 5:-5; score", nothing, logit_itself, {NULL}},
};
enum { KNOWN_COUNT = sizeof known / sizeof known[0] };

static fig_attention_form long_form(const variant *of, const fig_score *score, fig_random *random) {
    fig_attention_form form = fig_attention_form_draw(random, seed);
    form.rows = fig_random_range(random, 1, form.row_limit);
    form.length_limit = 512;
    fig_attention_form_draw_features(&form, random);
    form.window = fig_random_range(random, 0, 3) == 0 ? 60 : 0;
    form.tile_tokens = fig_random_range(random, 0, 1) ? 4 : 16;
    for (int32_t r = 0; r < form.rows; r++) {
        form.contents[r] = r;
        form.lengths[r] = fig_random_range(random, 100, 400);
    }
    give_score(&form, of, score);
    form.planned = 1;
    return form;
}

static void any_number_of_workers_agrees_with_float64(void **state) {
    static const int32_t workers[] = {1, 2, 7, 40, 300};
    (void)state;
    for (int32_t i = 0; i < KNOWN_COUNT; i++) {
        fig_score *score = parse(&known[i]);
        for (uint64_t n = 0; n < (uint64_t)fig_place_cases(6); n++) {
            fig_random random = fig_random_seed(seed + 7000000 + 1000 * (uint64_t)i + n);
            fig_attention_form form = long_form(&known[i], score, &random);
            fig_attention_case c;
            fig_attention_case_open(&c, &form, random);
            for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) {
                if (w > 0) fig_attention_case_split(&c, workers[w]);
                fig_attention_case_run(&c, &c.random);
                fig_attention_case_check(&c, 40);
            }
            fig_attention_case_close(&c);
        }
        fig_score_destroy(score);
    }
}

/* Rows grow under one split, and their masks move. */
static void every_launch_of_a_horizon_agrees_with_float64(void **state) {
    (void)state;
    for (int32_t i = 0; i < KNOWN_COUNT; i++) {
        fig_score *score = parse(&known[i]);
        for (uint64_t n = 0; n < (uint64_t)fig_place_cases(12); n++) {
            fig_random random = fig_random_seed(seed + 8000000 + 1000 * (uint64_t)i + n);
            fig_attention_form form = long_form(&known[i], score, &random);
            form.row_tokens = fig_random_range(&random, 1, 3);
            form.fixed = form.fixed && form.window == 0;
            form.horizon = fig_random_range(&random, 2, 20);
            form.launch =
                n % 3 == 0 ? form.horizon - 1 : fig_random_range(&random, 0, form.horizon - 1);
            fig_attention_case c;
            fig_attention_case_open(&c, &form, random);
            fig_attention_case_run(&c, &c.random);
            fig_attention_case_check(&c, 40);
            fig_attention_case_close(&c);
        }
        fig_score_destroy(score);
    }
}

/* One row of 480 tokens over a dense f32 cache, cut in three pieces. */
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
                                .length_limit = 512,
                                .lengths = {480}};
}

/* No bit in a plan of the device says that tiles are hidden. A launch that knows the mask then
 * gives the bits of one that does not, because its workers have the same tiles. */
static void a_plan_of_the_device_has_all_tiles(void **state) {
    fig_score *score = parse(&known[2]);
    float *outs[2];
    (void)state;
    for (int32_t i = 0; i < 2; i++) {
        fig_attention_form form = plain_form();
        fig_attention_case c;
        give_score(&form, &known[2], score);
        fig_attention_case_open(&c, &form, fig_random_seed(seed));
        if (i == 1) {
            fig_mask_lines_finish(&c.lines);
            assert_int_equal(fig_mask_lines_init(&c.lines, 1, 1), FIG_OK);
            fig_mask_lines_ranges(&score->code, &c.lines.of->ranges);
        }
        fig_attention_case_run(&c, &c.random);
        fig_attention_case_check(&c, ALL);
        outs[i] = malloc(64 * sizeof **outs);
        assert_non_null(outs[i]);
        memcpy(outs[i], (float *)c.out.data + fig_attention_case_out(&c, 0, 0, 0),
               64 * sizeof **outs);
        fig_attention_case_close(&c);
    }
    assert_memory_equal(outs[0], outs[1], 64 * sizeof **outs);
    free(outs[0]);
    free(outs[1]);
    fig_score_destroy(score);
}

/* ---- Tokens that a mask hides */

/* Makes the caches' tokens from `first` to end - 1 NaN. */
static void poison(fig_attention_case *c, int32_t first, int32_t end) {
    for (int32_t token = first; token < end; token++) {
        const fig_cache_strides *k = &c->params.k_cache_strides, *v = &c->params.v_cache_strides;
        for (int32_t i = 0; i < 64; i++) {
            ((float *)c->k.data)[c->sequences[0] * k->page + token * k->token + i] = NAN;
            ((float *)c->v.data)[c->sequences[0] * v->page + token * v->token + i] = NAN;
        }
    }
}

static void a_hidden_token_affects_nothing(void **state) {
    static const variant of = {
        "see q_pos - 29:q_pos + 1, 0:4; score", sinks_and_stream, logit_itself, {NULL}};
    fig_score *score = parse(&of);
    fig_attention_form form = plain_form();
    fig_attention_case c;
    (void)state;
    give_score(&form, &of, score);
    fig_attention_case_open(&c, &form, fig_random_seed(seed));
    poison(&c, 4, 450);
    fig_attention_case_run(&c, &c.random);
    fig_attention_case_check(&c, ALL);
    fig_attention_case_close(&c);
    fig_score_destroy(score);
}

/* The page numbers of hidden tokens lead outside the cache's memory, where a read would fault. */
static void the_pages_of_hidden_tiles_are_not_read(void **state) {
    static const variant of = {"see 448:q_pos + 1, 0:32; score", NULL, logit_itself, {NULL}};
    fig_score *score = parse(&of);
    fig_attention_form form = plain_form();
    fig_attention_case c;
    (void)state;
    give_score(&form, &of, score);
    form.planned = 1;
    form.page_size = 16;
    fig_attention_case_open(&c, &form, fig_random_seed(seed));
    for (int32_t page = 2; page < 28; page++)
        ((int32_t *)c.table.data)[c.sequences[0] * c.params.table_stride + page] = INT32_MAX / 4;
    c.params.k_pages = c.params.v_pages = INT32_MAX;
    fig_attention_case_run(&c, &c.random);
    for (int32_t i = 0; i < 64; i++)
        assert_true(isfinite(((float *)c.out.data)[fig_attention_case_out(&c, 0, 0, 0) + i]));
    fig_attention_case_close(&c);
    fig_score_destroy(score);
}

static void a_query_that_sees_no_token_gets_zeros(void **state) {
    static const variant empty[] = {
        {"see 7:7; score", nothing, logit_itself, {NULL}},
        {"see kv_length:kv_length + 5, 9:3; score", nothing, logit_itself, {NULL}},
        {"weights sigmoid; see -9:0; score", nothing, logit_itself, {NULL}},
        {"bits 0, 0; see kv_length - 64:kv_length; score", nothing, logit_itself, {NULL}}};
    (void)state;
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        fig_score *score = parse(&empty[i]);
        fig_attention_form form = plain_form();
        fig_attention_case c;
        give_score(&form, &empty[i], score);
        form.planned = 1;
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
        cmocka_unit_test(every_mask_agrees_with_float64),
        cmocka_unit_test(every_mask_agrees_in_packed_rows),
        cmocka_unit_test(any_number_of_workers_agrees_with_float64),
        cmocka_unit_test(every_launch_of_a_horizon_agrees_with_float64),
        cmocka_unit_test(a_plan_of_the_device_has_all_tiles),
        cmocka_unit_test(a_hidden_token_affects_nothing),
        cmocka_unit_test(the_pages_of_hidden_tiles_are_not_read),
        cmocka_unit_test(a_query_that_sees_no_token_gets_zeros),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
