/* test_latent.c: tests that an engine runs latent nodes from a file. The results of its steps are
 * compared with float64, and the bits of a deterministic program must not depend on other rows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "kernels/common/numeric.h"
#include "tests/support/place.h"
#include "tests/support/random.h"
#include "tools/figraph/truth/truth_latent.h"

enum {
    ROWS = 4,
    HEADS = 24,
    KV = 300,
    PAGE = 16,
    PAGES = 20,
    Q = 576,
    OUT = 512,
    ROPE = Q - OUT,
    STEPS = 6,
    WAIT_US = 60000000
};
/* Sanitizers look for races and wrong accesses, not for wrong numbers, and slow kernels down up to
 * thirty times. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { RIGS = 3, MOST_TOKENS = 2, MOST_IN_PARTS = 1 };
#else
enum { RIGS = 8, MOST_TOKENS = 16, MOST_IN_PARTS = 2 };
#endif

typedef struct rig {
    fig_dtype cache_dtype;
    int32_t tokens, width; /* query tokens of a row; elements of a token of the cache */
    fig_graphs *graphs;
    fig_engine *engine;
    int32_t apart; /* 1: q is in two tensors, of which the first has its heads outermost */
    uint16_t *q, *q_rope, *latent, *out, *norm;
    float *lse;
    uint8_t *cache;
    int32_t table[ROWS * PAGES];
} rig;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static fig_tensor rows(fig_program *program, const rig *r, const char *name, int64_t heads,
                       int64_t width, fig_dtype dtype) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype,
                             .rank = width > 0 ? 3 : 2, .dims = {FIG_DIM_BATCH, heads, width},
                             .multiple = r->tokens));
}

static void record(fig_program *program, const rig *r) {
    const fig_tensor cache = fig_program_tensor(
        program,
        FIG_OPTIONS(fig_tensor_info, .name = "cache", .role = FIG_ROLE_BOUND,
                    .dtype = r->cache_dtype, .rank = 3, .dims = {FIG_DIM_PAGES, PAGE, r->width}));
    const fig_tensor table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {ROWS, PAGES}));
    const fig_tensor norm = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "norm", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_BF16, .rank = 1, .dims = {OUT}));
    fig_tensor q_rope = {0};
    if (r->apart) q_rope = rows(program, r, "q_rope", HEADS, ROPE, FIG_BF16);
    fig_latent_decode(
        program,
        FIG_OPTIONS(fig_latent_decode_op,
                    .q = rows(program, r, "q", HEADS, r->apart ? OUT : Q, FIG_BF16),
                    .q_rope = q_rope, .latent = rows(program, r, "latent", Q, 0, FIG_BF16),
                    .out = rows(program, r, "out", HEADS, OUT, FIG_BF16),
                    .lse = rows(program, r, "lse", HEADS, 0, FIG_F32), .norm = norm, .cache = cache,
                    .page_table = table, .rope = &(fig_rope_spec){.interleaved = 1, .theta = 1e4f},
                    .sm_scale = 0.05f));
}

static void *take(rig *r, const char *name, size_t bytes) {
    void *address = fig_place_allocate(bytes);
    assert_non_null(address);
    memset(address, 0, bytes);
    const fig_binding binding = {
        .size = sizeof binding, .name = name, .address = address, .bytes = bytes};
    expect(fig_engine_bind(r->engine, &binding));
    return address;
}

/* Binds q, or its two parts. */
static void bind_q(rig *r, int64_t count) {
    if (!r->apart) {
        r->q = take(r, "q", (size_t)count * HEADS * Q * 2);
        return;
    }
    const size_t bytes = (size_t)count * HEADS * OUT * 2;
    r->q = fig_place_allocate(bytes);
    assert_non_null(r->q);
    expect(
        fig_engine_bind(r->engine, FIG_OPTIONS(fig_binding, .name = "q", .address = r->q,
                                               .bytes = bytes, .strides = {OUT, count * OUT, 1})));
    r->q_rope = take(r, "q_rope", (size_t)count * HEADS * ROPE * 2);
}

static void bind_all(rig *r) {
    const size_t count = (size_t)ROWS * (size_t)r->tokens;
    const size_t unit = r->cache_dtype == FIG_E4M3 ? 1 : 2;
    bind_q(r, (int64_t)count);
    r->latent = take(r, "latent", count * Q * 2);
    r->out = take(r, "out", count * HEADS * OUT * 2);
    r->lse = take(r, "lse", count * HEADS * 4);
    r->norm = take(r, "norm", OUT * 2);
    r->cache = take(r, "cache", (size_t)ROWS * PAGES * PAGE * (size_t)r->width * unit);
    memset(r->cache, 0xff, (size_t)ROWS * PAGES * PAGE * (size_t)r->width * unit); /* NaN */
    for (int32_t i = 0; i < OUT; i++)
        fig_numeric_store(r->norm, FIG_BF16, i, 0.5f + (float)(i % 9) / 8);
    for (int32_t row = 0; row < ROWS; row++) {
        for (int32_t i = 0; i < PAGES; i++)
            r->table[row * PAGES + i] = (row * PAGES + i) * 9 % (ROWS * PAGES);
        expect(fig_engine_set_pages(
            r->engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = PAGES,
                                   .pages = &r->table[row * PAGES], .table = "page_table")));
    }
}

/* Makes graphs of the program by way of a file. */
static void make_graphs(rig *r, int deterministic) {
    char path[] = "/tmp/test_latent.XXXXXX";
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .page_size = PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = KV,
                           .row_tokens = r->tokens};
    const fig_lower_options how = {
        .size = sizeof how, .traits = fig_place_traits(), .deterministic = deterministic};
    fig_program *program;
    fig_graphs *made;
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    expect(fig_program_create(&program, &spec));
    record(program, r);
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&made, program, &how));
    fig_program_destroy(program);
    expect(fig_graphs_save(made, path));
    fig_graphs_destroy(made);
    expect(fig_graphs_load(&r->graphs, path));
    unlink(path);
}

/* parts: the number of tensors that q is in. */
static void open_parts(rig *r, fig_dtype cache_dtype, int32_t tokens, int deterministic,
                       int32_t parts) {
    memset(r, 0, sizeof *r);
    r->apart = parts - 1;
    r->cache_dtype = cache_dtype;
    r->tokens = tokens;
    r->width = cache_dtype == FIG_E4M3 ? 656 : Q;
    make_graphs(r, deterministic);
    expect(fig_place_open(&r->engine, r->graphs));
    bind_all(r);
}

static void open_rig(rig *r, fig_dtype cache_dtype, int32_t tokens, int deterministic) {
    open_parts(r, cache_dtype, tokens, deterministic, 1);
}

static void close_rig(rig *r) {
    fig_engine_close(r->engine);
    fig_graphs_destroy(r->graphs);
    fig_place_free(r->q);
    fig_place_free(r->q_rope);
    fig_place_free(r->latent);
    fig_place_free(r->out);
    fig_place_free(r->norm);
    fig_place_free(r->lse);
    fig_place_free(r->cache);
}

/* ---- Steps */

static truth_rows rows_of_q(const rig *r) {
    const int64_t count = (int64_t)ROWS * r->tokens;
    truth_rows rows = {r->q, FIG_BF16, HEADS * Q, Q};
    if (r->apart) rows = (truth_rows){r->q, FIG_BF16, OUT, count * OUT};
    return rows;
}

static truth_rows rows_of_rope(const rig *r) {
    return (truth_rows){r->q_rope, FIG_BF16, HEADS * ROPE, ROPE};
}

static void store_q(const rig *r, int32_t token, int32_t head, int32_t i, float value) {
    const int is_rope = r->apart && i >= OUT;
    const truth_rows to = is_rope ? rows_of_rope(r) : rows_of_q(r);
    fig_numeric_store(is_rope ? r->q_rope : r->q, FIG_BF16,
                      token * to.row_stride + head * to.head_stride + (is_rope ? i - OUT : i),
                      value);
}

/* Fills q and latent of a step with values that depend only on sequence and position. */
static void fill(const rig *r, const int32_t *lengths, int32_t count) {
    for (int32_t i = 0; i < count * r->tokens; i++) {
        const int32_t row = i / r->tokens;
        const int32_t place = lengths[row] - r->tokens + i % r->tokens;
        fig_random random = fig_random_seed((uint64_t)(row * 1000 + place));
        for (int32_t n = 0; n < HEADS * Q; n++)
            store_q(r, i, n / Q, n % Q, fig_random_float(&random));
        for (int32_t n = 0; n < Q; n++)
            fig_numeric_store(r->latent, FIG_BF16, (int64_t)i * Q + n, fig_random_float(&random));
    }
}

static void step(rig *r, const int32_t *lengths, int32_t count) {
    fill(r, lengths, count);
    expect(fig_engine_step(r->engine, FIG_OPTIONS(fig_step, .rows = count, .kv_lengths = lengths)));
    expect(fig_engine_wait(r->engine, WAIT_US));
}

/* Runs steps that append the tokens of all sequences, up to `lengths`. */
static void prefill(rig *r, const int32_t *lengths) {
    int32_t now[ROWS] = {0}, left = 1;
    while (left > 0) {
        left = 0;
        for (int32_t row = 0; row < ROWS; row++) {
            const int more = now[row] + r->tokens <= lengths[row] - r->tokens;
            now[row] = more ? now[row] + r->tokens : now[row];
            left += more;
        }
        if (left > 0) step(r, now, ROWS);
    }
}

/* Compares some vectors of the last step. The cache and q hold what attention read. */
static void check(rig *r, const int32_t *lengths, fig_random *random) {
    truth_latent_result want;
    const double of_codes = fig_place_code_error(FIG_BF16, r->cache_dtype);
    truth_latent_args args = {.q = rows_of_q(r),
                              .q_rope = rows_of_rope(r),
                              .cache = {.base = r->cache,
                                        .dtype = r->cache_dtype,
                                        .page_stride = PAGE * r->width,
                                        .token_stride = r->width,
                                        .pages = ROWS * PAGES,
                                        .page_size = PAGE,
                                        .page_table = r->table,
                                        .table_stride = PAGES},
                              .sm_scale = (double)0.05f};
    for (int32_t i = 0; i < ROWS * r->tokens; i++) {
        const int32_t head = fig_random_range(random, 0, HEADS - 1), row = i / r->tokens;
        args.row = i;
        args.sequence = row;
        args.q_head = head;
        args.length = lengths[row] == 0 ? 0 : lengths[row] - r->tokens + 1 + i % r->tokens;
        truth_latent(&args, &want);
        for (int32_t n = 0; n < OUT; n++) {
            const double got = truth_load(r->out, FIG_BF16, ((int64_t)i * HEADS + head) * OUT + n);
            const double tolerance =
                truth_ulp(FIG_BF16, want.magnitude[n]) + 4 * of_codes * want.magnitude[n];
            if (fabs(got - want.out[n]) <= tolerance) continue;
            fail_msg("out[%d][%d][%d] is %g, it must be %g", i, head, n, got, want.out[n]);
        }
        if (lengths[row] > 0)
            assert_true(fabs((double)r->lse[i * HEADS + head] - want.lse) <=
                        1e-3 + of_codes * (1 + fabs(want.lse)));
    }
}

static void take_steps(rig *r, uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    int32_t lengths[ROWS] = {37, 4, 0, 130};
    lengths[1] = r->tokens * 2;
    lengths[0] = r->tokens * (r->tokens < 8 ? 18 : 7);
    lengths[3] -= lengths[3] % r->tokens;
    prefill(r, lengths);
    for (int32_t n = 0; n < STEPS; n++) {
        step(r, lengths, ROWS);
        check(r, lengths, &random);
        for (int32_t row = 0; row < ROWS; row++)
            if (lengths[row] > 0) lengths[row] += r->tokens;
    }
}

static void steps_append_and_attend(void **state) {
    (void)state;
    static const fig_dtype dtypes[] = {FIG_BF16, FIG_E4M3};
    static const int32_t tokens[] = {1, 2, 11, 16};
    for (int i = 0; i < RIGS; i++) {
        rig r;
        open_rig(&r, dtypes[i % 2], tokens[i / 2], 0);
        take_steps(&r, (uint64_t)i);
        close_rig(&r);
    }
}

/* The results have the bits of a program with q in one tensor. */
static void q_may_be_in_two_tensors(void **state) {
    (void)state;
    static const fig_dtype dtypes[] = {FIG_BF16, FIG_E4M3};
    for (int32_t tokens = 1; tokens <= MOST_IN_PARTS; tokens++) {
        rig one, two;
        open_parts(&one, dtypes[tokens - 1], tokens, 0, 1);
        open_parts(&two, dtypes[tokens - 1], tokens, 0, 2);
        take_steps(&one, 0);
        take_steps(&two, 0);
        assert_memory_equal(one.out, two.out, (size_t)ROWS * (size_t)tokens * HEADS * OUT * 2);
        close_rig(&one);
        close_rig(&two);
    }
}

/* Returns 1 if the last message names the tensor. */
static int is_named(const char *tensor) {
    char first[32], second[32];
    snprintf(first, sizeof first, "tensor %s:", tensor);
    snprintf(second, sizeof second, "tensor %s,", tensor);
    return strstr(fig_message(), first) != NULL || strstr(fig_message(), second) != NULL;
}

/* The node writes q_rope, so no other tensor may lie there. */
static void parts_of_q_that_overlap_are_refused_by_name(void **state) {
    (void)state;
    static const char *const others[] = {"q", "out", "cache"};
    rig r;
    open_parts(&r, FIG_BF16, 1, 0, 2);
    void *const addresses[] = {r.q, r.out, r.cache};
    const int32_t length = 1;
    for (int i = 0; i < 3; i++) {
        expect(fig_engine_bind(r.engine,
                               FIG_OPTIONS(fig_binding, .name = "q_rope", .address = addresses[i],
                                           .bytes = (size_t)ROWS * HEADS * ROPE * 2)));
        const fig_status status =
            fig_engine_step(r.engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length));
        assert_int_equal(status, FIG_INVALID);
        if (!is_named("q_rope") || !is_named(others[i]))
            fail_msg("%s: %s", others[i], fig_message());
    }
    expect(fig_engine_bind(r.engine, FIG_OPTIONS(fig_binding, .name = "q_rope", .address = r.q_rope,
                                                 .bytes = (size_t)ROWS * HEADS * ROPE * 2)));
    step(&r, &length, 1);
    expect(fig_engine_bind(r.engine, FIG_OPTIONS(fig_binding, .name = "latent", .address = r.q_rope,
                                                 .bytes = (size_t)ROWS * Q * 2)));
    const fig_status status =
        fig_engine_step(r.engine, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = &length));
    assert_int_equal(status, FIG_INVALID);
    assert_true(is_named("q_rope") && is_named("latent"));
    close_rig(&r);
}

static void deterministic_bits_depend_on_the_row_alone(void **state) {
    (void)state;
    static const int32_t alone[ROWS] = {90, 0, 0, 0}, among[ROWS] = {90, 31, 130, 16};
    rig a, b;
    for (int32_t tokens = 1; tokens <= MOST_TOKENS; tokens += 15) {
        open_rig(&a, FIG_BF16, tokens, 1);
        open_rig(&b, FIG_BF16, tokens, 1);
        prefill(&a, among);
        prefill(&b, among);
        step(&a, alone, 1);
        step(&b, among, ROWS);
        assert_memory_equal(a.out, b.out, (size_t)tokens * HEADS * OUT * 2);
        close_rig(&a);
        close_rig(&b);
    }
}

/* A node has two launches, and inspection names both. On compute capability 9.0, the warpgroup
 * kernel computes attention. */
static void inspection_shows_both_launches(void **state) {
    (void)state;
    rig r;
    fig_launch_info info = {.size = sizeof info};
    fig_engine_stats stats = {.size = sizeof stats};
    int decodes = 0, attentions = 0;
    open_rig(&r, FIG_BF16, 1, 0);
    step(&r, (const int32_t[]){1}, 1);
    fig_engine_read_stats(r.engine, &stats);
    for (int32_t i = 0; fig_engine_launch_info(r.engine, stats.last_bucket, i, &info) == FIG_OK;
         i++) {
        decodes += info.operation != NULL && strcmp(info.operation, "latent_decode") == 0;
        if (info.operation == NULL || strcmp(info.operation, "latent_attention") != 0) continue;
        attentions++;
        const int is_hopper = strcmp(fig_place_name(), "cuda.hopper") == 0;
        assert_string_equal(info.family, is_hopper ? "short" : "plain");
    }
    assert_int_equal(decodes, 1);
    assert_int_equal(attentions, 1);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_append_and_attend),
        cmocka_unit_test(q_may_be_in_two_tensors),
        cmocka_unit_test(parts_of_q_that_overlap_are_refused_by_name),
        cmocka_unit_test(deterministic_bits_depend_on_the_row_alone),
        cmocka_unit_test(inspection_shows_both_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
