/* test_runner_attention.c: compares runs of attention with float64: over caches whose size in bytes
 * gives their length, with lengths on the device or by value, and in scratch of any size and
 * contents. */
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

enum { ROW_LIMIT = 12 };

static uint64_t seed;

typedef struct attention_case {
    fig_dtype dtype, kv_dtype;
    int32_t rows, q_heads, kv_heads, head_dim;
    int32_t kv_limit;  /* the program's kv_limit */
    int32_t tokens;    /* tokens of each row in the cache */
    int32_t page_size; /* 0: dense */
    int32_t window;
    int hnd;        /* 1: the layout is HND */
    int by_value;   /* 1: the run gives one length for all rows */
    int plan_apart; /* 1: a separate call makes the plan before the run */
    int64_t skew;   /* q, k, v and out begin this many elements after a multiple of 64 bytes */
} attention_case;

enum { Q, OUT, LSE, K, V, LENGTHS, TABLE };

typedef struct attention_run {
    const attention_case *c;
    fig_run_rig rig;
    int32_t lengths[ROW_LIMIT]; /* equal to the lengths on the device */
    int32_t *table;             /* [rows][columns]; NULL: dense */
    int32_t columns, pages;
    void *plan;
} attention_run;

/* ---- Making one */

static void record(attention_run *r) {
    const attention_case *c = r->c;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = c->dtype,
                           .kv_dtype = c->kv_dtype,
                           .q_heads = c->q_heads,
                           .kv_heads = c->kv_heads,
                           .head_dim = c->head_dim,
                           .page_size = c->page_size,
                           .batch_limit = ROW_LIMIT,
                           .kv_limit = c->kv_limit};
    const int32_t page = c->page_size > 0 ? c->page_size : c->kv_limit;
    const int64_t heads[4] = {FIG_DIM_BATCH, c->q_heads, c->head_dim};
    const int64_t cache[4] = {FIG_DIM_PAGES, page, c->kv_heads, c->head_dim};
    fig_run_rig *rig = &r->rig;
    fig_attention_op op = {.size = sizeof op, .window = c->window};
    fig_run_rig_begin(rig, &spec, seed);
    op.q = fig_run_rig_tensor(rig, "q", c->dtype, heads);
    op.out = fig_run_rig_tensor(rig, "out", c->dtype, heads);
    op.lse = fig_run_rig_tensor(rig, "lse", FIG_F32, (int64_t[4]){FIG_DIM_BATCH, c->q_heads});
    op.cache.k = fig_run_rig_tensor(rig, "k", c->kv_dtype, cache);
    op.cache.v = fig_run_rig_tensor(rig, "v", c->kv_dtype, cache);
    const fig_tensor lengths =
        fig_run_rig_tensor(rig, "lengths", FIG_I32, (int64_t[4]){FIG_DIM_BATCH});
    if (c->page_size > 0)
        op.cache.page_table = fig_run_rig_tensor(
            rig, "table", FIG_I32, (int64_t[4]){ROW_LIMIT, (c->kv_limit + page - 1) / page});
    if (!c->by_value) fig_program_read_lengths(rig->program, lengths, (fig_tensor){0});
    fig_attention(rig->program, &op);
    fig_run_rig_open(rig);
}

/* Assigns the pages in a scattered order. The table has only as many columns as the tokens need. */
static void fill_table(attention_run *r) {
    const attention_case *c = r->c;
    if (c->page_size == 0) return;
    r->columns = (c->tokens + c->page_size - 1) / c->page_size;
    r->pages = c->rows * r->columns;
    r->table = fig_run_rig_memory(&r->rig, TABLE, r->pages, 0);
    for (int32_t i = 0; i < r->pages; i++)
        /* a permutation, since no number of pages in these cases is a multiple of 7 */
        r->table[i] = (int32_t)((i * 7 + 3) % r->pages);
}

static void fill_cache(attention_run *r, int32_t index) {
    const attention_case *c = r->c;
    const int64_t head = c->head_dim, width = head * c->kv_heads;
    const int64_t page = c->page_size > 0 ? c->page_size : c->tokens;
    const int64_t pages = c->page_size > 0 ? r->pages : c->rows;
    fig_run_rig_fill(&r->rig, index, pages * page * width, c->skew);
    if (c->hnd) fig_run_rig_strides(&r->rig, index, page * width, head, page * head);
}

/* Fills in lengths of every kind: 0, 1, the largest, too large, and negative. */
static void fill_lengths(attention_run *r) {
    const attention_case *c = r->c;
    const int32_t kinds[] = {c->tokens, 1, 0, c->tokens + 1, INT32_MAX, -1, c->tokens / 2};
    int32_t *lengths = fig_run_rig_memory(&r->rig, LENGTHS, c->rows, 0);
    for (int32_t row = 0; row < c->rows; row++) {
        r->lengths[row] = c->by_value ? c->tokens - 1 : kinds[row % 7];
        if (!c->by_value && row >= 7)
            r->lengths[row] = fig_random_range(&r->rig.random, 0, c->tokens);
        lengths[row] = r->lengths[row];
    }
}

static void make(attention_run *r, const attention_case *c) {
    *r = (attention_run){.c = c};
    record(r);
    fill_table(r);
    fill_cache(r, K);
    fill_cache(r, V);
    fill_lengths(r);
    fig_run_rig_fill(&r->rig, Q, (int64_t)c->rows * c->q_heads * c->head_dim, c->skew);
    fig_run_rig_memory(&r->rig, OUT, (int64_t)c->rows * c->q_heads * c->head_dim, c->skew);
    fig_run_rig_memory(&r->rig, LSE, (int64_t)c->rows * c->q_heads, 0);
    r->rig.run.rows = c->rows;
    r->rig.run.kv_length = c->by_value ? c->tokens - 1 : 0;
    fig_run_rig_scratch(&r->rig, UINT64_MAX);
}

static void finish(attention_run *r) {
    fig_place_free(r->plan);
    fig_run_rig_close(&r->rig);
}

static void run(attention_run *r) {
    const fig_binding *out = &r->rig.bindings[OUT], *lse = &r->rig.bindings[LSE];
    memset(out->address, 0xff, out->bytes);
    memset(lse->address, 0xff, lse->bytes);
    if (r->c->plan_apart) {
        fig_scratch needed = {.size = sizeof needed};
        assert_int_equal(fig_graphs_scratch(r->rig.graphs, NULL, r->rig.run.rows, 0, &needed),
                         FIG_OK);
        fig_place_free(r->plan);
        r->rig.run.plan = r->plan = fig_place_allocate(needed.plan_bytes + 4096);
        r->rig.run.plan_bytes = needed.plan_bytes + 4096;
        r->rig.run.kv_length = r->c->tokens;
        /* the scratch that a run of this kv_length needs */
        fig_run_rig_scratch(&r->rig, UINT64_MAX);
        if (fig_run_rig_plan(&r->rig) != FIG_OK) fail_msg("%s", fig_message());
    }
    if (fig_run_rig_run(&r->rig) != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- The truth */

static truth_cache cache_of(const attention_run *r, int32_t index) {
    const attention_case *c = r->c;
    const int64_t head = c->head_dim, width = head * c->kv_heads;
    const int64_t page = c->page_size > 0 ? c->page_size : c->tokens;
    return (truth_cache){.base = r->rig.bindings[index].address,
                         .dtype = c->kv_dtype,
                         .page_stride = page * width,
                         .token_stride = c->hnd ? head : width,
                         .head_stride = c->hnd ? page * head : head,
                         .pages = c->page_size > 0 ? r->pages : c->rows,
                         .page_size = (int32_t)page,
                         .page_table = r->table,
                         .table_stride = r->columns};
}

static void expect_near(double got, double want, double tolerance, int32_t row, int32_t head) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("row %d, head %d: %.9g, wanted %.9g within %.3g; seed 0x%llx", row, head, got, want,
             tolerance, (unsigned long long)seed);
}

static void expect_head(const attention_run *r, int32_t row, int32_t head) {
    const attention_case *c = r->c;
    const int32_t length = r->lengths[row], dim = c->head_dim;
    const int64_t at = (int64_t)row * c->q_heads + head;
    const void *out = r->rig.bindings[OUT].address;
    const float *lse = r->rig.bindings[LSE].address;
    truth_attention_result want;
    if (length <= 0 || length > c->tokens) {
        for (int32_t i = 0; i < dim; i++)
            assert_true(truth_load(out, c->dtype, at * dim + i) == 0);
        assert_true(lse[at] == -INFINITY);
        return;
    }
    truth_attention(&(truth_attention_args){.q = {r->rig.bindings[Q].address, c->dtype,
                                                  (int64_t)c->q_heads * dim, dim},
                                            .k = cache_of(r, K),
                                            .v = cache_of(r, V),
                                            .row = row,
                                            .sequence = row,
                                            .length = length,
                                            .q_head = head,
                                            .kv_head = head / (c->q_heads / c->kv_heads),
                                            .head_dim = dim,
                                            .window = c->window,
                                            .sm_scale = (double)(float)(1 / sqrt(dim))},
                    &want);
    expect_near((double)lse[at], want.lse, 2e-3, row, head);
    for (int32_t i = 0; i < dim; i++)
        expect_near(truth_load(out, c->dtype, at * dim + i), want.out[i],
                    0.51 * truth_ulp(c->dtype, want.out[i]) + 2e-3 * want.magnitude[i], row, head);
}

static void expect_truth(const attention_run *r) {
    for (int32_t row = 0; row < r->c->rows; row++)
        for (int32_t head = 0; head < r->c->q_heads; head++)
            expect_head(r, row, head);
}

/* ---- Tests */

static const attention_case cases[] = {
    /* dtype, kv, rows, heads, dim, limit, tokens, page, window, hnd, value, apart, skew */
    {FIG_F16, FIG_F16, 1, 16, 4, 64, 512, 400, 0, 0, 0, 1, 0, 0},
    {FIG_F16, FIG_F16, 1, 16, 4, 64, 512, 401, 0, 0, 1, 1, 0, 0},
    {FIG_BF16, FIG_BF16, 8, 8, 2, 128, 512, 300, 0, 0, 0, 0, 0, 0},
    {FIG_BF16, FIG_BF16, 9, 8, 2, 128, 512, 77, 0, 0, 1, 0, 0, 0},
    {FIG_BF16, FIG_BF16, 12, 8, 8, 128, 512, 320, 16, 0, 0, 0, 0, 0},
    {FIG_BF16, FIG_BF16, 12, 8, 8, 128, 1024, 150, 16, 0, 1, 0, 1, 0},
    {FIG_BF16, FIG_E4M3, 8, 8, 2, 128, 512, 240, 16, 0, 0, 0, 0, 0},
    {FIG_F32, FIG_F32, 7, 4, 2, 64, 256, 111, 0, 0, 0, 0, 1, 1},
    {FIG_F16, FIG_F16, 8, 4, 1, 80, 256, 250, 10, 100, 0, 0, 0, 1},
    {FIG_F16, FIG_F16, 3, 4, 2, 256, 256, 2, 0, 0, 1, 0, 0, 3},
    {FIG_BF16, FIG_BF16, 1, 4, 1, 128, 64, 2, 0, 0, 0, 1, 0, 0},
};
enum { CASE_COUNT = sizeof cases / sizeof cases[0] };

static void a_cache_is_as_long_as_its_bytes_say(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        attention_run r;
        make(&r, &cases[i]);
        run(&r);
        expect_truth(&r);
        run(&r); /* again, with scratch that holds what the first run left */
        expect_truth(&r);
        finish(&r);
    }
}

/* Any size of scratch between the least and the best allows a correct run. */
static void with_less_scratch_a_run_is_cut_into_fewer_pieces(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i += 2) {
        attention_run r;
        fig_traits traits = {.size = sizeof traits};
        fig_scratch needed = {.size = sizeof needed};
        make(&r, &cases[i]);
        assert_int_equal(fig_runner_read_traits(r.rig.runner, &traits), FIG_OK);
        assert_int_equal(
            fig_graphs_scratch(r.rig.graphs, &traits, r.rig.run.rows, r.rig.run.kv_length, &needed),
            FIG_OK);
        for (int part = 0; part <= 4; part++) {
            const uint64_t between = (needed.best_bytes - needed.least_bytes) * (uint64_t)part / 4;
            fig_run_rig_scratch(&r.rig, needed.least_bytes + between);
            run(&r);
            expect_truth(&r);
        }
        fig_run_rig_scratch(&r.rig, needed.least_bytes - 1);
        assert_int_equal(fig_run_rig_run(&r.rig), FIG_INVALID);
        assert_non_null(strstr(fig_message(), "scratch_bytes is"));
        finish(&r);
    }
}

/* The host passes the same arrays each time; only the lengths on the device change. */
static void lengths_change_from_run_to_run(void **state) {
    (void)state;
    attention_run r;
    make(&r, &cases[4]);
    for (int n = 0; n < 20; n++) {
        int32_t *lengths = r.rig.bindings[LENGTHS].address;
        for (int32_t row = 0; row < r.c->rows; row++)
            lengths[row] = r.lengths[row] = fig_random_range(&r.rig.random, -3, r.c->tokens + 20);
        run(&r);
        expect_truth(&r);
    }
    finish(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_is_as_long_as_its_bytes_say),
        cmocka_unit_test(with_less_scratch_a_run_is_cut_into_fewer_pieces),
        cmocka_unit_test(lengths_change_from_run_to_run),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
