/* test_scored_chunks.c: compares attention with a score or a mask with float64, in steps that hold
 * decode rows, drafts and chunks of prompts. Pages, dtypes, heads, windows and numbers of query
 * tokens are drawn for each score.
 *
 * The float64 reference evaluates the nodes of the score by code of its own. Invariant: sequences
 * of one case grow from step to step, so later chunks see earlier ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { STEPS = 3, VECTORS = 16 };
/* Sanitizers look for races and wrong accesses, not for wrong numbers, and slow kernels down up to
 * thirty times. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { SMALLER = 5 };
#else
enum { SMALLER = 1 };
#endif

static fig_chunk_case c; /* too large for the stack */
static uint64_t seed;

static const char *const scores[] = {
    "f32 slope[16]; score + slope[head] * (kv_pos - q_pos)",
    "score * 0.5 + 0.001 * (kv_pos - q_pos)",
    "far = q_pos - kv_pos; b = 16 + int(log2(far / 16.0) / 3.0 * 16.0); f32 bucket[512]; "
    "score + bucket[head * 32 + select(far < 16, far, min(b, 31))]",
    "bf16 bias[4096]; score + bias[row * 64 + kv_pos]",
    "5.0 * tanh(score / 5) * 0.75",
    "weights sigmoid; score - log2(kv_length) * 0.6931472",
    "select(kv_pos // 40 == q_pos // 40, score, -inf)",
    "i32 document[1024]; select(document[kv_pos] % 3 == document[q_pos] % 3, score, -inf)",
    "select((kv_pos < 4) | (kv_pos > q_pos - 30), score, -inf)",
    "f32 temperature; warm = 1.5 + abs(sin(0.1 * head)) + 0.25 * cos(kv_head); "
    "score / warm + temperature * ((kv_pos - q_pos) / kv_length) - (row % 3) * 0.125",
};

#define BITS "i32 sees[2048]; n = 2 * (q_pos % 128 + row * 128); bits sees[n], sees[n + 1]; "
#define DOCUMENTS "i32 start[1024]; see start[q_pos]:q_pos + 1; "
static const char *const masks[] = {
    "see 0:q_pos + 1; score",
    "see 0:kv_length; score",
    "see q_pos - 29:q_pos + 1; score * 0.5",
    "see q_pos // 40 * 40:q_pos + 1; score",
    "see q_pos // 40 * 40:q_pos // 40 * 40 + 40; score",
    "i32 prefix[8]; see 0:max(q_pos + 1, prefix[row]); score",
    DOCUMENTS "score",
    "i32 image[2048]; see 0:q_pos + 1, image[2 * q_pos]:image[2 * q_pos + 1]; score",
    "see q_pos - 29:q_pos + 1, 0:4; score",
    "see q_pos:kv_length; score", /* a query sees itself and later tokens */
    BITS "see 0:kv_length; score",
    BITS "see q_pos - 29:q_pos + 1, 0:4; score",
    "see head * 3 - kv_head - 5:kv_length // 2 + row, q_pos - 2 * head:0x7fffffff; score",
    DOCUMENTS "f32 slope[16]; score + slope[head] * (kv_pos - q_pos)",
    "weights sigmoid; see q_pos - 29:q_pos + 1, 0:4; score",
    "see 0:q_pos + 9; select(kv_pos % 2 == 0, score, -inf)",
    "see kv_length:kv_length + 9, 5:-5; score", /* nothing */
};

/* ---- Cases ----------------------------------------------------------------------------------- */

static int32_t draw_of(fig_random *random, const int32_t *of, int32_t count) {
    return of[fig_random_range(random, 0, count - 1)];
}

static fig_chunk_form draw_form(fig_random *random, const char *score) {
    static const int32_t dims[] = {64, 64, 80, 96, 128, 256}, pages[] = {1, 16, 64, 0};
    static const int32_t groups[] = {1, 2, 3, 4, 5, 8}, windows[] = {0, 0, 1, 33, 128};
    static const fig_dtype dtypes[] = {FIG_F16, FIG_BF16, FIG_BF16, FIG_F32};
    const fig_dtype dtype = dtypes[fig_random_range(random, 0, 3)];
    fig_chunk_form form = {.dtype = dtype,
                           .kv_dtype = dtype,
                           .kv_heads = fig_random_range(random, 1, 2),
                           .head_dim = draw_of(random, dims, COUNT(dims)),
                           .page_size = draw_of(random, pages, COUNT(pages)),
                           .rows = fig_random_range(random, 1, 7),
                           .kv = 500 / SMALLER,
                           .row_tokens = fig_random_range(random, 9, 250 / SMALLER),
                           .query_limit = 300 / SMALLER,
                           .window = draw_of(random, windows, COUNT(windows)),
                           .hnd = fig_random_range(random, 0, 1),
                           .deterministic = fig_random_range(random, 0, 3) == 0,
                           .twice = fig_random_range(random, 0, 3) == 0,
                           .score = score};
    form.q_heads = form.kv_heads * draw_of(random, groups, COUNT(groups));
    form.sinks = strstr(score, "sigmoid") == NULL && fig_random_range(random, 0, 2) == 0;
    if (dtype != FIG_F32 && fig_random_range(random, 0, 3) == 0) {
        form.kv_dtype = fig_random_range(random, 0, 1) ? FIG_E4M3 : FIG_E5M2;
        form.scales = fig_random_range(random, 0, 1) ? form.kv_heads : 1;
    }
    form.on_device = fig_random_range(random, 0, 2) == 0;
    return form;
}

/* Draws a number of query tokens: none, a token, a draft, the shortest chunk, any chunk. */
static int32_t draw_count(const fig_chunk_form *f, fig_random *random, int32_t left) {
    int32_t count = 0;
    switch (fig_random_range(random, 0, 5)) {
    case 0: count = 0; break;
    case 1: count = 1; break;
    case 2: count = fig_random_range(random, 2, 8); break;
    case 3: count = fig_random_range(random, 8, 10); break;
    default: count = fig_random_range(random, 9, f->row_tokens); break;
    }
    return fig_size_min(count, fig_size_min(f->row_tokens, left));
}

static void try_form(const fig_chunk_form *form, fig_random random) {
    fig_chunk_case_open(&c, form, fig_random_bits(&random));
    fig_chunk_case_try(&c, &random, seed, STEPS, VECTORS, draw_count);
    fig_chunk_case_close(&c);
}

static void try_texts(const char *const *texts, size_t count, uint64_t test) {
    for (size_t i = 0; i < count; i++) {
        for (uint64_t n = 0; n < (uint64_t)fig_place_cases(2); n++) {
            fig_random random = fig_random_seed(seed + 100000 * test + 1000 * i + n);
            const fig_chunk_form form = draw_form(&random, texts[i]);
            try_form(&form, random);
        }
    }
}

static void every_score_agrees_with_float64(void **state) {
    (void)state;
    try_texts(scores, COUNT(scores), 1);
}

static void every_mask_agrees_with_float64(void **state) {
    (void)state;
    try_texts(masks, COUNT(masks), 2);
}

static void every_head_dim_and_page_size_is_right(void **state) {
    static const int32_t dims[] = {64, 80, 96, 128, 256}, pages[] = {1, 16, 64, 0};
    (void)state;
    for (uint64_t i = 0; i < COUNT(dims) * COUNT(pages); i++) {
        fig_random random = fig_random_seed(seed + 300000 + i);
        fig_chunk_form form = draw_form(&random, masks[i % COUNT(masks)]);
        form.head_dim = dims[i % COUNT(dims)];
        form.page_size = pages[i / COUNT(dims)];
        try_form(&form, random);
    }
}

/* A draft tree in the last rows of a chunk: bits of the mask hide single tokens of the last 64. */
static void a_chunk_of_64_tokens_may_be_a_tree(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 400000);
    fig_chunk_form form =
        draw_form(&random, "i32 sees[1024]; n = 2 * (row * 64 + q_pos - kv_length + 64); "
                           "bits sees[n], sees[n + 1]; see 0:kv_length; score");
    const int32_t contents[4] = {0, 1, 2, 3};
    form.rows = 4;
    form.row_tokens = 64;
    form.kv = 300;
    form.query_limit = 128;
    form.window = 0;
    const fig_chunk_step step = {.rows = 4,
                                 .counts = {64, 8, 33, 1},
                                 .lengths = {300, 90, 33, 64},
                                 .sequences = {2, 0, 3, 1}};
    fig_chunk_case_open(&c, &form, seed);
    fig_chunk_case_fill(&c, &step, contents, seed);
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, 64);
    fig_chunk_case_close(&c);
}

/* ---- Tokens that nobody sees ----------------------------------------------------------------- */

static void tokens_that_nobody_sees_are_not_used(void **state) {
    static const char *const texts[] = {
        "see q_pos - 29:q_pos + 1, 0:4; score * 0.5",
        "see q_pos // 40 * 40:q_pos + 1; score",
        "see 0:9, kv_length - 100:kv_length; score",
        "select((kv_pos < 4) | (kv_pos > q_pos - 30), score, -inf)",
        "see 3:kv_length; select(kv_pos % 4 == 0, score, -inf)",
    };
    const fig_chunk_step step = {.rows = 4,
                                 .counts = {60, 1, 9, 8},
                                 .lengths = {320, 300, 199, 150},
                                 .sequences = {1, 0, 3, 2}};
    const int32_t contents[4] = {0, 1, 2, 3};
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        fig_random random = fig_random_seed(seed + 500000 + i);
        fig_chunk_form form = draw_form(&random, texts[i]);
        form.kv_dtype = form.dtype;
        form.rows = 4;
        form.row_tokens = 60;
        form.kv = 320;
        form.query_limit = 128;
        form.window = form.scales = form.twice = 0;
        fig_chunk_case_open(&c, &form, seed);
        fig_chunk_case_fill(&c, &step, contents, seed);
        assert_true(fig_chunk_case_spoil(&c, &step) > 20);
        fig_chunk_case_run(&c, &step);
        fig_chunk_case_check(&c, &step, VECTORS);
        fig_chunk_case_close(&c);
    }
}

static void a_query_that_sees_no_token_gets_zeros(void **state) {
    static const char *const texts[] = {"see 0:0; score", "weights sigmoid; see 7:7; score",
                                        "select(head < 0, score, -inf)",
                                        "weights sigmoid; select(head < 0, score, -inf)"};
    const fig_chunk_step step = {
        .rows = 2, .counts = {20, 1}, .lengths = {90, 80}, .sequences = {1, 0}};
    const int32_t contents[2] = {0, 1};
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        fig_random random = fig_random_seed(seed + 600000 + i);
        fig_chunk_form form = draw_form(&random, texts[i]);
        form.rows = 2;
        form.row_tokens = 20;
        form.sinks = 0;
        fig_chunk_case_open(&c, &form, seed);
        fig_chunk_case_fill(&c, &step, contents, seed);
        fig_chunk_case_run(&c, &step);
        fig_chunk_case_check(&c, &step, 1000);
        for (int32_t n = 0; n < 21 * form.q_heads; n++)
            assert_true(((const float *)c.lse.data)[n] == -INFINITY);
        for (int64_t n = 0; n < 21 * form.q_heads * form.head_dim; n++)
            assert_true(truth_load(c.out.data, form.dtype, n) == 0);
        fig_chunk_case_close(&c);
    }
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static fig_tensor declare(fig_program *program, const char *name, int64_t rows, int64_t a,
                          int64_t b, int64_t d) {
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F32,
                            .rank = d > 0   ? 4
                                    : b > 0 ? 3
                                            : 1,
                            .dims = {rows, a, b, d}};
    return fig_program_tensor(program, &info);
}

/* Records attention with a score of a program with chunks; returns the status. */
static fig_status record(const char *text, float soft_cap, int has_alibi, int has_sinks) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = 4,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .page_size = 0,
                           .batch_limit = 2,
                           .kv_limit = 64,
                           .row_tokens = 30,
                           .query_limit = 40};
    fig_program *program;
    fig_score *score;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    assert_int_equal(fig_score_parse(&score, text), FIG_OK);
    const fig_cache cache = {.k = declare(program, "k_cache", FIG_DIM_PAGES, 64, 2, 64),
                             .v = declare(program, "v_cache", FIG_DIM_PAGES, 64, 2, 64)};
    const fig_tensor heads = declare(program, "heads", 4, 0, 0, 0), none = {0};
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .cache = cache, .score = score,
                                       .q = declare(program, "q", FIG_DIM_QUERIES, 4, 64, 0),
                                       .out = declare(program, "out", FIG_DIM_QUERIES, 4, 64, 0),
                                       .alibi = has_alibi ? heads : none,
                                       .sinks = has_sinks ? heads : none, .soft_cap = soft_cap));
    const fig_status status = fig_program_finish(program);
    fig_score_destroy(score);
    fig_program_destroy(program);
    return status;
}

static void fields_that_a_score_excludes_are_refused_by_name(void **state) {
    (void)state;
    assert_int_equal(record("score * 2.0", 0, 0, 1), FIG_OK);
    assert_int_equal(record("score * 2.0", 20, 0, 0), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "soft_cap is 20"));
    assert_int_equal(record("see 0:4; score", 0, 1, 0), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "alibi"));
    assert_int_equal(record("weights sigmoid; score", 0, 0, 1), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "sinks"));
    assert_int_equal(record("score + bias[kv_pos]", 0, 0, 0), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "bias"));
}

int main(int argc, char **argv) {
    seed = fig_reference_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_score_agrees_with_float64),
        cmocka_unit_test(every_mask_agrees_with_float64),
        cmocka_unit_test(every_head_dim_and_page_size_is_right),
        cmocka_unit_test(a_chunk_of_64_tokens_may_be_a_tree),
        cmocka_unit_test(tokens_that_nobody_sees_are_not_used),
        cmocka_unit_test(a_query_that_sees_no_token_gets_zeros),
        cmocka_unit_test(fields_that_a_score_excludes_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
