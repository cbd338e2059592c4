/* test_packed_runs.c: compares runs over rows with unequal numbers of query tokens with float64.
 * The device makes the plan, because it has the lengths and query_starts.
 *
 * A program appends k and v and computes attention. One runner and one set of arrays serve rows
 * with any numbers of tokens. Invariant: no run may touch what lies behind the memory of its query
 * tokens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/ffi/run_rig.h"
#include "tests/support/kernels/reference.h"
#include "tests/support/place.h"
#include "tools/figraph/truth/truth_attention.h"

enum { ROW_LIMIT = 9, STEPS = 6 };

static uint64_t seed;

typedef struct packed_case {
    fig_dtype dtype, kv_dtype;
    int32_t q_heads, kv_heads, head_dim;
    int32_t room;      /* tokens of each sequence's cache */
    int32_t page_size; /* 0: dense */
    int32_t window;
    int hnd;        /* 1: the layout is HND */
    int together;   /* 1: one node appends and attends */
    int plan_apart; /* 1: a separate call makes the plan */
    int32_t tokens; /* the most query tokens of a row; above 16, a row may be a chunk */
} packed_case;

enum { Q, K, V, OUT, LSE, K_CACHE, V_CACHE, LENGTHS, STARTS, TABLE };

typedef struct packed_run {
    const packed_case *c;
    fig_run_rig rig;
    int32_t rows, tokens;                          /* tokens: those that q has memory for */
    int32_t lengths[ROW_LIMIT], counts[ROW_LIMIT]; /* as the device reads them */
    int32_t *table;                                /* [rows][columns]; NULL: dense */
    int32_t columns, pages;
    void *plan;
} packed_run;

/* ---- Making one */

static void record(packed_run *r) {
    const packed_case *c = r->c;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = c->dtype,
                           .kv_dtype = c->kv_dtype,
                           .q_heads = c->q_heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .page_size = c->page_size,
                           .batch_limit = ROW_LIMIT,
                           .kv_limit = c->room,
                           .row_tokens = c->tokens,
                           .query_limit = ROW_LIMIT * c->tokens};
    const int32_t page = c->page_size > 0 ? c->page_size : c->room;
    const int64_t heads[4] = {FIG_DIM_QUERIES, c->q_heads, c->head_dim};
    const int64_t kv_heads[4] = {FIG_DIM_QUERIES, c->kv_heads, c->head_dim};
    const int64_t cache[4] = {FIG_DIM_PAGES, page, c->kv_heads, c->head_dim};
    fig_run_rig *rig = &r->rig;
    fig_decode_attention_op op = {.size = sizeof op, .window = c->window, .plain = 1};
    fig_run_rig_begin(rig, &spec, seed);
    op.q = fig_run_rig_tensor(rig, "q", c->dtype, heads);
    op.k = fig_run_rig_tensor(rig, "k", c->dtype, kv_heads);
    op.v = fig_run_rig_tensor(rig, "v", c->dtype, kv_heads);
    op.out = fig_run_rig_tensor(rig, "out", c->dtype, heads);
    op.lse = fig_run_rig_tensor(rig, "lse", FIG_F32, (int64_t[4]){FIG_DIM_QUERIES, c->q_heads});
    op.cache.k = fig_run_rig_tensor(rig, "k_cache", c->kv_dtype, cache);
    op.cache.v = fig_run_rig_tensor(rig, "v_cache", c->kv_dtype, cache);
    const fig_tensor lengths =
        fig_run_rig_tensor(rig, "lengths", FIG_I32, (int64_t[4]){FIG_DIM_BATCH});
    const fig_tensor starts =
        fig_run_rig_tensor(rig, "query_starts", FIG_I32, (int64_t[4]){ROW_LIMIT + 1});
    if (c->page_size > 0)
        op.cache.page_table = fig_run_rig_tensor(
            rig, "table", FIG_I32, (int64_t[4]){ROW_LIMIT, (c->room + page - 1) / page});
    fig_program_read_queries(rig->program, lengths, (fig_tensor){0}, starts);
    if (c->together) {
        fig_decode_attention(rig->program, &op);
    } else {
        fig_append_kv(rig->program,
                      FIG_OPTIONS(fig_append_kv_op, .k = op.k, .v = op.v, .cache = op.cache));
        fig_attention(rig->program,
                      FIG_OPTIONS(fig_attention_op, .q = op.q, .out = op.out, .lse = op.lse,
                                  .cache = op.cache, .window = c->window));
    }
    fig_run_rig_open(rig);
}

static void fill_cache(packed_run *r, int32_t index) {
    const packed_case *c = r->c;
    const int64_t head = c->head_dim, width = head * c->kv_heads;
    const int64_t page = c->page_size > 0 ? c->page_size : c->room;
    fig_run_rig_fill(&r->rig, index, r->pages * page * width, 0);
    if (c->hnd) fig_run_rig_strides(&r->rig, index, page * width, head, page * head);
}

static void open_run(packed_run *r, const packed_case *c) {
    *r = (packed_run){.c = c};
    record(r);
    r->pages = ROW_LIMIT;
    if (c->page_size > 0) {
        r->columns = (c->room + c->page_size - 1) / c->page_size;
        r->pages = ROW_LIMIT * r->columns;
        r->table = fig_run_rig_memory(&r->rig, TABLE, r->pages, 0);
        for (int32_t i = 0; i < r->pages; i++)
            r->table[i] = (int32_t)((i * 5 + 2) % r->pages); /* 5 divides no number of pages here */
    }
    fill_cache(r, K_CACHE);
    fill_cache(r, V_CACHE);
}

static void close_run(packed_run *r) {
    fig_place_free(r->plan);
    fig_run_rig_close(&r->rig);
}

/* Gives the tensors of query tokens memory for exactly as many. */
static void fill_tokens(packed_run *r) {
    const packed_case *c = r->c;
    const int64_t q = (int64_t)c->q_heads * c->head_dim, k = (int64_t)c->kv_heads * c->head_dim;
    fig_run_rig_fill(&r->rig, Q, r->tokens * q, 0);
    fig_run_rig_fill(&r->rig, K, r->tokens * k, 0);
    fig_run_rig_fill(&r->rig, V, r->tokens * k, 0);
    fig_run_rig_memory(&r->rig, OUT, r->tokens * q, 0);
    fig_run_rig_memory(&r->rig, LSE, (int64_t)r->tokens * c->q_heads, 0);
    memset(r->rig.bindings[OUT].address, 0xff, r->rig.bindings[OUT].bytes);
    memset(r->rig.bindings[LSE].address, 0xff, r->rig.bindings[LSE].bytes);
}

/* Draws rows of any number of tokens, idle ones among them, and some query tokens that no row has.
 */
static void draw(packed_run *r) {
    fig_random *random = &r->rig.random;
    int32_t *lengths, *starts, all = 0;
    const int32_t most = r->c->tokens;
    r->rows = fig_random_range(random, 1, ROW_LIMIT);
    lengths = fig_run_rig_memory(&r->rig, LENGTHS, r->rows, 0);
    starts = fig_run_rig_memory(&r->rig, STARTS, r->rows + 1, 0);
    for (int32_t row = 0; row < r->rows; row++) {
        const int32_t count = fig_random_range(random, 0, most);
        const int32_t kinds[] = {0, -1, r->c->room + 1, count - 1};
        const int is_odd = fig_random_range(random, 0, 5) == 0;
        r->counts[row] = count;
        r->lengths[row] = is_odd ? kinds[fig_random_range(random, 0, 3)]
                                 : fig_random_range(random, most, r->c->room);
        lengths[row] = r->lengths[row];
        starts[row] = all;
        all += count;
    }
    starts[r->rows] = all;
    r->tokens = all + fig_random_range(random, all > 0 ? 0 : 1, 3);
    if (r->tokens > r->rows * most) r->tokens = r->rows * most;
    fill_tokens(r);
}

static fig_status run(packed_run *r) {
    fig_run *of = &r->rig.run;
    of->rows = r->rows;
    of->query_tokens = r->tokens;
    of->plan = NULL;
    fig_run_rig_scratch(&r->rig, UINT64_MAX);
    if (r->c->plan_apart) {
        fig_scratch needed = {.size = sizeof needed};
        fig_traits traits = {.size = sizeof traits};
        assert_int_equal(fig_runner_read_traits(r->rig.runner, &traits), FIG_OK);
        assert_int_equal(fig_graphs_run_scratch(r->rig.graphs, &traits, of, &needed), FIG_OK);
        fig_place_free(r->plan);
        of->plan = r->plan = fig_place_allocate(needed.plan_bytes);
        of->plan_bytes = needed.plan_bytes;
        const fig_status status = fig_run_rig_plan(&r->rig);
        if (status != FIG_OK) return status;
    }
    return fig_run_rig_run(&r->rig);
}

static void expect_run(packed_run *r) {
    if (run(r) != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- The truth */

static truth_cache cache_of(const packed_run *r, int32_t index) {
    const packed_case *c = r->c;
    const int64_t head = c->head_dim, width = head * c->kv_heads;
    const int64_t page = c->page_size > 0 ? c->page_size : c->room;
    return (truth_cache){.base = r->rig.bindings[index].address,
                         .dtype = c->kv_dtype,
                         .page_stride = page * width,
                         .token_stride = c->hnd ? head : width,
                         .head_stride = c->hnd ? page * head : head,
                         .pages = r->pages,
                         .page_size = (int32_t)page,
                         .page_table = r->table,
                         .table_stride = r->columns};
}

static int is_idle(const packed_run *r, int32_t row) {
    return r->lengths[row] < r->counts[row] || r->lengths[row] <= 0 || r->lengths[row] > r->c->room;
}

static void expect_near(double got, double want, double tolerance, int32_t row, int32_t number) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("row %d, token %d: %.9g, wanted %.9g within %.3g; seed 0x%llx", row, number, got, want,
             tolerance, (unsigned long long)seed);
}

/* A token's k and v are in the cache as append rounds them. */
static void expect_appended(const packed_run *r, int32_t row, int32_t number, int32_t token) {
    const packed_case *c = r->c;
    const int32_t place = r->lengths[row] - r->counts[row] + number;
    for (int32_t side = 0; side < 2; side++) {
        const truth_cache cache = cache_of(r, side == 0 ? K_CACHE : V_CACHE);
        const int64_t page =
            r->table != NULL ? r->table[row * r->columns + place / cache.page_size] : row;
        for (int32_t i = 0; i < c->head_dim; i++) {
            const int64_t at = page * cache.page_stride +
                               place % cache.page_size * cache.token_stride +
                               (c->kv_heads - 1) * cache.head_stride + i;
            const double given =
                truth_load(r->rig.bindings[side == 0 ? K : V].address, c->dtype,
                           ((int64_t)token * c->kv_heads + c->kv_heads - 1) * c->head_dim + i);
            expect_near(truth_load(cache.base, c->kv_dtype, at), given,
                        c->kv_dtype == c->dtype ? 0 : 0.07 * fabs(given) + 2e-3, row, number);
        }
    }
}

static void expect_head(const packed_run *r, int32_t row, int32_t number, int32_t token,
                        int32_t head) {
    const packed_case *c = r->c;
    const int32_t dim = c->head_dim;
    const int64_t at = (int64_t)token * c->q_heads + head;
    const void *out = r->rig.bindings[OUT].address;
    const float *lse = r->rig.bindings[LSE].address;
    truth_attention_result want;
    if (is_idle(r, row)) {
        for (int32_t i = 0; i < dim; i++)
            assert_true(truth_load(out, c->dtype, at * dim + i) == 0);
        assert_true(lse[at] == -INFINITY);
        return;
    }
    truth_attention(&(truth_attention_args){.q = {r->rig.bindings[Q].address, c->dtype,
                                                  (int64_t)c->q_heads * dim, dim},
                                            .k = cache_of(r, K_CACHE),
                                            .v = cache_of(r, V_CACHE),
                                            .row = token,
                                            .sequence = row,
                                            .length = r->lengths[row] - r->counts[row] + number + 1,
                                            .q_head = head,
                                            .kv_head = head / (c->q_heads / c->kv_heads),
                                            .head_dim = dim,
                                            .window = c->window,
                                            .sm_scale = (double)(float)(1 / sqrt(dim))},
                    &want);
    expect_near((double)lse[at], want.lse, 2e-3, row, number);
    for (int32_t i = 0; i < dim; i++)
        expect_near(truth_load(out, c->dtype, at * dim + i), want.out[i],
                    0.51 * truth_ulp(c->dtype, want.out[i]) + 2e-3 * want.magnitude[i], row,
                    number);
}

static void expect_truth(const packed_run *r) {
    int32_t token = 0;
    for (int32_t row = 0; row < r->rows; row++)
        for (int32_t number = 0; number < r->counts[row]; number++, token++) {
            if (!is_idle(r, row)) expect_appended(r, row, number, token);
            for (int32_t head = 0; head < r->c->q_heads; head++)
                expect_head(r, row, number, token, head);
        }
}

/* ---- Tests */

static const packed_case cases[] = {
    /* dtype, kv, heads, dim, room, page, window, hnd, together, apart, tokens */
    {FIG_F16, FIG_F16, 8, 2, 64, 120, 16, 0, 0, 0, 0, 16},
    {FIG_BF16, FIG_BF16, 8, 8, 128, 77, 0, 0, 0, 0, 1, 16},
    {FIG_BF16, FIG_BF16, 8, 2, 128, 100, 0, 9, 1, 1, 0, 16},
    {FIG_F16, FIG_F16, 16, 1, 64, 128, 4, 13, 0, 1, 1, 16},
    {FIG_BF16, FIG_E4M3, 4, 4, 128, 96, 16, 0, 1, 1, 0, 16},
    {FIG_F32, FIG_F32, 6, 3, 80, 60, 10, 0, 0, 1, 1, 16},
    {FIG_F16, FIG_F16, 8, 2, 64, 120, 16, 0, 0, 0, 0, 60},
    {FIG_BF16, FIG_BF16, 8, 8, 128, 77, 0, 0, 0, 0, 1, 17},
    {FIG_BF16, FIG_BF16, 8, 2, 128, 100, 0, 9, 1, 1, 0, 40},
    {FIG_F16, FIG_F16, 16, 1, 64, 128, 4, 13, 0, 1, 1, 33},
    {FIG_BF16, FIG_E4M3, 4, 4, 128, 96, 16, 0, 1, 1, 0, 50},
    {FIG_F32, FIG_F32, 6, 3, 80, 60, 10, 0, 0, 1, 1, 25},
};
enum { CASE_COUNT = sizeof cases / sizeof cases[0] };

static void one_runner_serves_every_mix_of_rows(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        packed_run r;
        open_run(&r, &cases[i]);
        for (int step = 0; step < STEPS; step++) {
            draw(&r);
            expect_run(&r);
            expect_truth(&r);
        }
        close_run(&r);
    }
}

/* With less scratch, attention and chunks are cut for fewer workers. */
static void the_least_scratch_is_enough(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        fig_scratch needed = {.size = sizeof needed};
        fig_traits traits = {.size = sizeof traits};
        packed_run r;
        if (cases[i].plan_apart) continue; /* needs the most */
        open_run(&r, &cases[i]);
        draw(&r);
        r.rig.run.rows = r.rows;
        r.rig.run.query_tokens = r.tokens;
        assert_int_equal(fig_runner_read_traits(r.rig.runner, &traits), FIG_OK);
        assert_int_equal(fig_graphs_run_scratch(r.rig.graphs, &traits, &r.rig.run, &needed),
                         FIG_OK);
        fig_run_rig_scratch(&r.rig, needed.least_bytes);
        if (fig_run_rig_run(&r.rig) != FIG_OK) fail_msg("%s", fig_message());
        expect_truth(&r);
        fig_run_rig_scratch(&r.rig, needed.least_bytes - 1);
        assert_int_equal(fig_run_rig_run(&r.rig), FIG_INVALID);
        close_run(&r);
    }
}

static void give_starts(packed_run *r, int32_t rows, int32_t tokens, const int32_t *starts) {
    int32_t *lengths;
    r->rows = rows;
    r->tokens = tokens;
    lengths = fig_run_rig_memory(&r->rig, LENGTHS, rows, 0);
    memcpy(fig_run_rig_memory(&r->rig, STARTS, rows + 1, 0), starts,
           (size_t)(rows + 1) * sizeof *starts);
    for (int32_t row = 0; row < rows; row++) {
        const int64_t count = (int64_t)starts[row + 1] - starts[row];
        lengths[row] = r->lengths[row] = 40;
        r->counts[row] = count >= 0 && count <= r->c->tokens ? (int32_t)count : 0;
    }
    fill_tokens(r);
}

/* The rows of such a step have more query tokens than q, so none of them is touched. */
static void a_step_with_more_query_tokens_than_memory_touches_no_row(void **state) {
    static const int32_t ramp[] = {0, 3, 6, 9}, saw[] = {0, 8, 0, 8, 0, 8};
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        packed_run r;
        open_run(&r, &cases[i]);
        for (int n = 0; n < 2; n++) {
            give_starts(&r, n == 0 ? 3 : 5, 8, n == 0 ? ramp : saw);
            const size_t bytes = r.rig.bindings[K_CACHE].bytes;
            void *before = malloc(bytes);
            assert_non_null(before);
            memcpy(before, r.rig.bindings[K_CACHE].address, bytes);
            expect_run(&r);
            assert_memory_equal(before, r.rig.bindings[K_CACHE].address, bytes);
            const uint8_t *out = r.rig.bindings[OUT].address;
            for (uint64_t at = 0; at < r.rig.bindings[OUT].bytes; at++)
                assert_int_equal(out[at], 0xff);
            free(before);
        }
        close_run(&r);
    }
}

/* A row with an impossible number of query tokens has none. */
static void impossible_starts_are_rows_without_tokens(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        const int32_t starts[] = {0, 2, 2 + cases[i].tokens + 1, 2, 2, 5};
        packed_run r;
        open_run(&r, &cases[i]);
        give_starts(&r, 5, 5, starts);
        expect_run(&r);
        expect_truth(&r);
        close_run(&r);
    }
}

static void wrong_numbers_of_query_tokens_are_refused(void **state) {
    const struct {
        int64_t tokens;
        fig_status status;
    } wrong[] = {{-1, FIG_INVALID},
                 {ROW_LIMIT * cases[0].tokens + 1, FIG_TOO_LARGE},
                 {INT64_MAX, FIG_TOO_LARGE}};
    fig_scratch needed = {.size = sizeof needed};
    packed_run r;
    (void)state;
    open_run(&r, &cases[0]);
    draw(&r);
    expect_run(&r);
    for (int i = 0; i < 3; i++) {
        r.rig.run.query_tokens = wrong[i].tokens;
        assert_int_equal(fig_run_rig_run(&r.rig), wrong[i].status);
        assert_non_null(strstr(fig_message(), "query_tokens is"));
        assert_int_equal(fig_run_rig_plan(&r.rig), wrong[i].status);
        assert_int_equal(fig_graphs_run_scratch(r.rig.graphs, NULL, &r.rig.run, &needed),
                         wrong[i].status);
    }
    /* With one token more than their memory has, the tensors of tokens are too small. */
    r.rows = r.rig.run.rows = ROW_LIMIT;
    fig_run_rig_memory(&r.rig, LENGTHS, ROW_LIMIT, 0);
    fig_run_rig_memory(&r.rig, STARTS, ROW_LIMIT + 1, 0);
    memset(r.rig.bindings[STARTS].address, 0, r.rig.bindings[STARTS].bytes);
    fill_tokens(&r);
    r.rig.run.query_tokens = r.tokens + 1;
    fig_run_rig_scratch(&r.rig, UINT64_MAX);
    assert_int_equal(fig_run_rig_run(&r.rig), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "tensor k: bytes is"));
    /* With one row more than query_starts has, query_starts is too small. */
    r.rig.run.query_tokens = r.tokens;
    fig_run_rig_memory(&r.rig, STARTS, ROW_LIMIT, 0);
    assert_int_equal(fig_run_rig_run(&r.rig), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "tensor query_starts: bytes is"));
    close_run(&r);
}

/* Where the host knows the lengths, a run has no place for its plan of chunks. */
static void only_an_engine_takes_rows_that_may_be_chunks(void **state) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .batch_limit = 4,
                           .row_tokens = 9,
                           .query_limit = 64};
    const fig_engine_options place = fig_place_options();
    fig_run_rig rig;
    (void)state;
    fig_run_rig_begin(&rig, &spec, seed);
    const fig_tensor in =
        fig_run_rig_tensor(&rig, "in", FIG_F32, (int64_t[4]){FIG_DIM_QUERIES, 16});
    const fig_tensor out =
        fig_run_rig_tensor(&rig, "out", FIG_F32, (int64_t[4]){FIG_DIM_QUERIES, 8});
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    fig_run_rig_lower(&rig);
    assert_int_equal(fig_runner_open(&rig.runner, rig.graphs,
                                     FIG_OPTIONS(fig_runner_options, .device = place.device,
                                                 .test = place.test)),
                     FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_message(), "row_tokens is 9, but only an engine"));
    assert_null(rig.runner);
    fig_run_rig_close(&rig);
}

/* No array gives the numbers of tokens, so each row has as many as it can have. */
static void without_starts_each_row_has_all_its_tokens(void **state) {
    enum { WIDTH = 24, ROWS = 3, EACH = 2, ALL = ROWS * EACH };
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .batch_limit = 4,
                           .row_tokens = EACH,
                           .query_limit = 4 * EACH};
    fig_run_rig rig;
    (void)state;
    fig_run_rig_begin(&rig, &spec, seed);
    const fig_tensor in =
        fig_run_rig_tensor(&rig, "in", FIG_F32, (int64_t[4]){FIG_DIM_QUERIES, 2 * WIDTH});
    const fig_tensor out =
        fig_run_rig_tensor(&rig, "out", FIG_F32, (int64_t[4]){FIG_DIM_QUERIES, WIDTH});
    fig_silu_and_mul(rig.program, FIG_OPTIONS(fig_gated_op, .in = in, .out = out));
    fig_run_rig_open(&rig);
    const float *x = fig_run_rig_fill(&rig, 0, ALL * 2 * WIDTH, 0);
    const float *y = fig_run_rig_memory(&rig, 1, ALL * WIDTH, 0);
    rig.run.rows = ROWS;
    for (int64_t tokens = 0; tokens <= ALL + 1; tokens++) {
        rig.run.query_tokens = tokens;
        memset(rig.bindings[1].address, 0xff, rig.bindings[1].bytes);
        if (tokens > 0 && tokens < ALL) {
            assert_int_equal(fig_run_rig_run(&rig), FIG_INVALID);
            assert_non_null(strstr(fig_message(), "3 rows of 2 tokens have 6"));
            continue;
        }
        assert_int_equal(fig_run_rig_run(&rig), FIG_OK);
        for (int32_t i = 0; i < ALL * WIDTH; i++) {
            const double gate = (double)x[i / WIDTH * 2 * WIDTH + i % WIDTH];
            const double up = (double)x[i / WIDTH * 2 * WIDTH + WIDTH + i % WIDTH];
            expect_near((double)y[i], gate / (1 + exp(-gate)) * up, 1e-5, i / WIDTH, i % WIDTH);
        }
    }
    fig_run_rig_close(&rig);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_runner_serves_every_mix_of_rows),
        cmocka_unit_test(the_least_scratch_is_enough),
        cmocka_unit_test(a_step_with_more_query_tokens_than_memory_touches_no_row),
        cmocka_unit_test(impossible_starts_are_rows_without_tokens),
        cmocka_unit_test(wrong_numbers_of_query_tokens_are_refused),
        cmocka_unit_test(only_an_engine_takes_rows_that_may_be_chunks),
        cmocka_unit_test(without_starts_each_row_has_all_its_tokens),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
