/* test_latent_runs.c: compares runs over latent caches with float64. The caches are paged or dense,
 * and of q's dtype or of codes. The run makes its own plan, or a separate call makes it.
 *
 * A program appends and computes attention in one node, or computes attention over a filled cache.
 * Invariant: the first 512 values of a q head do not change, and its other values are those that
 * attention read. */
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
#include "tools/figraph/truth/truth_latent.h"

enum { ROW_LIMIT = 5, STEPS = 4, KEY = TRUTH_LATENT_KEY_DIM, DIM = TRUTH_LATENT_DIM };
enum { ROPE = KEY - DIM, GAP = 8 };

static const double sm_scale = 0.0625; /* exact in float */
static uint64_t seed;

typedef struct latent_case {
    fig_dtype dtype, kv_dtype;
    int32_t q_heads, row_tokens;
    int32_t room;      /* tokens of each sequence's cache */
    int32_t page_size; /* 0: dense */
    int32_t window;
    int packed;     /* 1: rows have different numbers of query tokens */
    int decode;     /* 1: the node appends, too */
    int by_value;   /* 1: the run gives one length for all rows */
    int plan_apart; /* 1: a separate call makes the plan */
    int skewed;     /* 1: rows and tokens of the cache have gaps between them */
    int apart;      /* 1: q is in two tensors; 2: the first one has its heads outermost */
} latent_case;

enum { Q, OUT, LSE, SINKS, CACHE, FIXED };

typedef struct latent_run {
    const latent_case *c;
    fig_run_rig rig;
    int32_t rows, tokens; /* tokens: query tokens that q has memory for */
    int32_t lengths[ROW_LIMIT], counts[ROW_LIMIT];
    int32_t table_at, lengths_at, starts_at, latent_at, rope_at; /* numbers of tensors; 0: none */
    int32_t *table;                                              /* [rows][columns]; NULL: dense */
    int32_t columns, pages, width, token_stride, page_stride;
    void *plan;
} latent_run;

/* ---- Making one */

static fig_tensor add(latent_run *r, int32_t *index, const char *name, fig_dtype dtype,
                      const int64_t dims[4]) {
    if (index != NULL) *index = r->rig.count;
    return fig_run_rig_tensor(&r->rig, name, dtype, dims);
}

static void record_lengths(latent_run *r) {
    fig_tensor starts = {0};
    if (r->c->by_value) return;
    const fig_tensor lengths =
        add(r, &r->lengths_at, "lengths", FIG_I32, (int64_t[4]){FIG_DIM_BATCH});
    if (r->c->packed)
        starts = add(r, &r->starts_at, "query_starts", FIG_I32, (int64_t[4]){ROW_LIMIT + 1});
    fig_program_read_queries(r->rig.program, lengths, (fig_tensor){0}, starts);
}

static void record(latent_run *r) {
    const latent_case *c = r->c;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = c->dtype,
                           .kv_dtype = c->kv_dtype,
                           .q_heads = c->q_heads,
                           .kv_heads = 1,
                           .head_dim = KEY,
                           .latent_dim = DIM,
                           .sm_scale = (float)sm_scale,
                           .page_size = c->page_size,
                           .batch_limit = ROW_LIMIT,
                           .kv_limit = c->room,
                           .row_tokens = c->row_tokens,
                           .query_limit = c->packed ? (int64_t)ROW_LIMIT * c->row_tokens : 0};
    const int32_t page = c->page_size > 0 ? c->page_size : c->room;
    const int64_t tokens = c->packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH;
    const int64_t columns = (c->room + page - 1) / page;
    fig_latent_decode_op op = {.size = sizeof op, .window = c->window};
    fig_program *program;
    fig_run_rig_begin(&r->rig, &spec, seed);
    program = r->rig.program;
    r->rig.multiple = c->packed ? 0 : c->row_tokens;
    op.q = add(r, NULL, "q", c->dtype, (int64_t[4]){tokens, c->q_heads, c->apart ? DIM : KEY});
    op.out = add(r, NULL, "out", c->dtype, (int64_t[4]){tokens, c->q_heads, DIM});
    op.lse = add(r, NULL, "lse", FIG_F32, (int64_t[4]){tokens, c->q_heads});
    r->rig.multiple = 0;
    op.sinks = add(r, NULL, "sinks", FIG_F32, (int64_t[4]){c->q_heads});
    op.cache = add(r, NULL, "cache", c->kv_dtype, (int64_t[4]){FIG_DIM_PAGES, page, r->width});
    if (c->page_size > 0)
        op.page_table = add(r, &r->table_at, "table", FIG_I32, (int64_t[4]){ROW_LIMIT, columns});
    record_lengths(r);
    r->rig.multiple = c->packed ? 0 : c->row_tokens;
    if (c->apart)
        op.q_rope = add(r, &r->rope_at, "q_rope", c->dtype, (int64_t[4]){tokens, c->q_heads, ROPE});
    if (c->decode) {
        op.latent = add(r, &r->latent_at, "latent", c->dtype, (int64_t[4]){tokens, KEY});
        fig_latent_decode(program, &op);
    } else {
        fig_latent_attention(program, FIG_OPTIONS(fig_latent_attention_op, .q = op.q, .out = op.out,
                                                  .lse = op.lse, .sinks = op.sinks,
                                                  .cache = op.cache, .page_table = op.page_table,
                                                  .window = c->window, .q_rope = op.q_rope));
    }
    fig_run_rig_open(&r->rig);
}

/* The cache has three dims, so it has no fourth stride. */
static void set_strides(latent_run *r, int64_t page_stride) {
    fig_run_rig_strides(&r->rig, CACHE, page_stride, r->token_stride, 1);
    r->rig.bindings[CACHE].strides[3] = 0;
}

/* Fills the cache with tokens. Random bytes are tokens of codes unless a scale is NaN or large, so
 * scales are drawn. */
static void fill_cache(latent_run *r) {
    const latent_case *c = r->c;
    const int64_t count = (int64_t)r->pages * r->page_stride;
    uint8_t *bytes = fig_run_rig_fill(&r->rig, CACHE, count, 0);
    if (r->width == TRUTH_LATENT_CODES) {
        for (int64_t at = 0; at < count; at++) {
            bytes[at] = (uint8_t)fig_random_range(&r->rig.random, 0, 0x50); /* 0 to 16 */
            if (at % 2 == 0) bytes[at] |= 0x80;
        }
        const int32_t page = c->page_size > 0 ? c->page_size : c->room;
        for (int64_t t = 0; t < (int64_t)r->pages * page; t++) {
            uint8_t *token = bytes + t / page * r->page_stride + t % page * r->token_stride;
            for (int32_t i = 0; i < 4; i++) {
                const float scale = 0.01f + 0.02f * (float)fig_random_range(&r->rig.random, 1, 9);
                memcpy(token + DIM + 4 * i, &scale, sizeof scale);
            }
            for (int32_t i = 0; i < 64; i++) /* bf16 of 2^-1 to 2^1 */
                token[DIM + 16 + 2 * i + 1] = (uint8_t)(i % 2 != 0 ? 0x3f : 0xbf);
        }
    }
    if (c->skewed) set_strides(r, r->page_stride);
}

static void open_run(latent_run *r, const latent_case *c) {
    *r = (latent_run){.c = c};
    const int32_t page = c->page_size > 0 ? c->page_size : c->room;
    r->width = c->kv_dtype == FIG_E4M3 ? TRUTH_LATENT_CODES : KEY;
    r->token_stride = r->width + (c->skewed ? 16 : 0);
    r->page_stride = page * r->token_stride + (c->skewed ? 32 : 0);
    record(r);
    r->pages = ROW_LIMIT;
    if (c->page_size > 0) {
        r->columns = (c->room + page - 1) / page;
        r->pages = ROW_LIMIT * r->columns;
        r->table = fig_run_rig_memory(&r->rig, r->table_at, r->pages, 0);
        for (int32_t i = 0; i < r->pages; i++)
            r->table[i] = (i * 7 + 2) % r->pages; /* 7 divides no number of pages here */
    }
    fill_cache(r);
    fig_run_rig_fill(&r->rig, SINKS, c->q_heads, 0);
}

static void close_run(latent_run *r) {
    fig_place_free(r->plan);
    fig_run_rig_close(&r->rig);
}

/* Draws rows, some of them idle. A packed program may have more query tokens than its rows use. */
static void draw(latent_run *r) {
    const latent_case *c = r->c;
    fig_random *random = &r->rig.random;
    const int32_t value = fig_random_range(random, c->row_tokens, c->room);
    int32_t starts[ROW_LIMIT + 1] = {0};
    r->rows = fig_random_range(random, 1, ROW_LIMIT);
    for (int32_t row = 0; row < r->rows; row++) {
        const int32_t count =
            c->packed ? fig_random_range(random, 0, c->row_tokens) : c->row_tokens;
        const int32_t kinds[] = {0, -1, c->room + 1};
        const int is_odd = fig_random_range(random, 0, 4) == 0;
        r->counts[row] = count;
        r->lengths[row] = is_odd ? kinds[fig_random_range(random, 0, 2)]
                                 : fig_random_range(random, c->row_tokens, c->room);
        if (c->by_value) r->lengths[row] = value;
        starts[row + 1] = starts[row] + count;
    }
    r->tokens = starts[r->rows];
    if (c->packed && r->tokens < r->rows * c->row_tokens) r->tokens++;
    r->rig.run.kv_length = c->by_value ? value : 0;
    if (!c->by_value)
        memcpy(fig_run_rig_memory(&r->rig, r->lengths_at, r->rows, 0), r->lengths,
               (size_t)r->rows * sizeof *r->lengths);
    if (c->packed)
        memcpy(fig_run_rig_memory(&r->rig, r->starts_at, r->rows + 1, 0), starts,
               (size_t)(r->rows + 1) * sizeof *starts);
}

/* Returns how the memory of q, or of its latent part, is divided. */
static truth_rows rows_of_q(const latent_run *r) {
    const latent_case *c = r->c;
    truth_rows rows = {.base = r->rig.bindings[Q].address,
                       .dtype = c->dtype,
                       .row_stride = (int64_t)c->q_heads * KEY,
                       .head_stride = KEY};
    if (c->apart == 0) return rows;
    rows.head_stride = c->apart == 2 ? (int64_t)r->tokens * (DIM + GAP) : DIM + GAP;
    rows.row_stride = c->apart == 2 ? DIM + GAP : c->q_heads * rows.head_stride;
    return rows;
}

static truth_rows rows_of_rope(const latent_run *r) {
    const latent_case *c = r->c;
    return (truth_rows){.base = c->apart ? r->rig.bindings[r->rope_at].address : NULL,
                        .dtype = c->dtype,
                        .row_stride = (int64_t)c->q_heads * (ROPE + GAP),
                        .head_stride = ROPE + GAP};
}

static void fill_tokens(latent_run *r) {
    const int64_t vectors = (int64_t)r->tokens * r->c->q_heads;
    const truth_rows q = rows_of_q(r), rope = rows_of_rope(r);
    fig_run_rig_fill(&r->rig, Q, r->c->apart ? vectors * (DIM + GAP) - GAP : vectors * KEY, 0);
    if (r->c->apart) {
        fig_run_rig_strides(&r->rig, Q, q.row_stride, q.head_stride, 1);
        fig_run_rig_fill(&r->rig, r->rope_at, vectors * (ROPE + GAP) - GAP, 0);
        fig_run_rig_strides(&r->rig, r->rope_at, rope.row_stride, rope.head_stride, 1);
        r->rig.bindings[Q].strides[3] = r->rig.bindings[r->rope_at].strides[3] = 0;
    }
    fig_run_rig_memory(&r->rig, OUT, vectors * DIM, 0);
    fig_run_rig_memory(&r->rig, LSE, vectors, 0);
    memset(r->rig.bindings[OUT].address, 0xff, r->rig.bindings[OUT].bytes);
    memset(r->rig.bindings[LSE].address, 0xff, r->rig.bindings[LSE].bytes);
    if (r->c->decode) fig_run_rig_fill(&r->rig, r->latent_at, (int64_t)r->tokens * KEY, 0);
}

static void run(latent_run *r) {
    fig_run *of = &r->rig.run;
    of->rows = r->rows;
    of->query_tokens = r->c->packed ? r->tokens : 0;
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
        if (fig_run_rig_plan(&r->rig) != FIG_OK) fail_msg("%s", fig_message());
    }
    if (fig_run_rig_run(&r->rig) != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- The truth */

static truth_cache cache_of(const latent_run *r) {
    return (truth_cache){.base = r->rig.bindings[CACHE].address,
                         .dtype = r->c->kv_dtype,
                         .page_stride = r->page_stride,
                         .token_stride = r->token_stride,
                         .pages = r->pages,
                         .page_size = r->c->page_size > 0 ? r->c->page_size : r->c->room,
                         .page_table = r->table,
                         .table_stride = r->columns};
}

static int is_idle(const latent_run *r, int32_t row) {
    return r->lengths[row] < r->counts[row] || r->lengths[row] <= 0 || r->lengths[row] > r->c->room;
}

static void expect_near(double got, double want, double tolerance, int32_t row, int32_t number) {
    if (fabs(got - want) <= tolerance) return;
    fail_msg("row %d, token %d: %.9g, wanted %.9g within %.3g; seed 0x%llx", row, number, got, want,
             tolerance, (unsigned long long)seed);
}

/* Returns the latent of a token as append rounds it; there is no norm. */
static void expect_appended(const latent_run *r, int32_t row, int32_t number, int32_t token) {
    const truth_cache cache = cache_of(r);
    const int32_t place = r->lengths[row] - r->counts[row] + number;
    double values[KEY], given[KEY];
    truth_latent_token(&cache, truth_cache_offset(&cache, row, place), values);
    truth_load_row(r->rig.bindings[r->latent_at].address, r->c->dtype, (int64_t)token * KEY, KEY,
                   given);
    for (int32_t i = 0; i < DIM; i++)
        expect_near(values[i], given[i],
                    r->c->kv_dtype == r->c->dtype ? 0 : 0.0626 * fabs(given[i]) + 0.01, row,
                    number);
}

static void expect_head(const latent_run *r, int32_t row, int32_t number, int32_t token,
                        int32_t head) {
    const latent_case *c = r->c;
    const int64_t at = (int64_t)token * c->q_heads + head;
    const void *out = r->rig.bindings[OUT].address;
    const float *lse = r->rig.bindings[LSE].address;
    const double sink = (double)((const float *)r->rig.bindings[SINKS].address)[head];
    const double share = 2e-3 + fig_place_weight_error(c->dtype, c->kv_dtype);
    truth_latent_result want;
    if (is_idle(r, row)) {
        for (int32_t i = 0; i < DIM; i++)
            assert_true(truth_load(out, c->dtype, at * DIM + i) == 0);
        assert_true(lse[at] == -INFINITY);
        return;
    }
    truth_latent(&(truth_latent_args){.q = rows_of_q(r),
                                      .q_rope = rows_of_rope(r),
                                      .cache = cache_of(r),
                                      .row = token,
                                      .sequence = row,
                                      .length = r->lengths[row] - r->counts[row] + number + 1,
                                      .q_head = head,
                                      .window = c->window,
                                      .sm_scale = sm_scale,
                                      .sink = &sink},
                 &want);
    expect_near((double)lse[at], want.lse, 2e-3, row, number);
    for (int32_t i = 0; i < DIM; i++)
        expect_near(truth_load(out, c->dtype, at * DIM + i), want.out[i],
                    0.51 * truth_ulp(c->dtype, want.out[i]) + share * want.magnitude[i], row,
                    number);
}

static void expect_truth(latent_run *r) {
    int32_t token = 0;
    for (int32_t row = 0; row < r->rows; row++)
        for (int32_t number = 0; number < r->counts[row]; number++, token++) {
            if (r->c->decode && !is_idle(r, row)) expect_appended(r, row, number, token);
            expect_head(r, row, number, token,
                        fig_random_range(&r->rig.random, 0, r->c->q_heads - 1));
        }
}

/* ---- Tests */

static const latent_case cases[] = {
    /* dtype, kv, heads, row_tokens, room, page, window, packed, decode, by_value, plan_apart,
     * skewed, apart */
    {FIG_BF16, FIG_BF16, 16, 1, 90, 16, 0, 0, 0, 0, 0, 0, 0},
    {FIG_BF16, FIG_E4M3, 8, 1, 150, 64, 0, 0, 1, 0, 1, 0, 0},
    {FIG_F16, FIG_F16, 24, 2, 77, 5, 13, 0, 1, 0, 0, 1, 0},
    {FIG_F16, FIG_E4M3, 8, 3, 100, 1, 0, 1, 1, 0, 0, 0, 0},
    {FIG_F32, FIG_F32, 8, 1, 60, 0, 0, 0, 1, 0, 0, 0, 0},
    {FIG_BF16, FIG_BF16, 8, 8, 96, 16, 9, 1, 0, 0, 1, 0, 0},
    {FIG_BF16, FIG_E4M3, 8, 1, 80, 0, 0, 0, 0, 1, 0, 1, 0},
    {FIG_BF16, FIG_BF16, 32, 1, 70, 16, 0, 0, 1, 1, 1, 0, 0},
    {FIG_BF16, FIG_BF16, 24, 16, 90, 16, 0, 0, 1, 0, 1, 0, 0},
    {FIG_F16, FIG_E4M3, 16, 13, 90, 7, 20, 1, 1, 0, 1, 1, 0},
    {FIG_BF16, FIG_BF16, 16, 1, 90, 16, 0, 0, 0, 0, 1, 0, 2},
    {FIG_F16, FIG_F16, 24, 3, 80, 16, 11, 1, 0, 0, 0, 0, 1},
    {FIG_F32, FIG_F32, 8, 2, 60, 0, 0, 0, 1, 0, 0, 0, 2},
    {FIG_BF16, FIG_E4M3, 16, 4, 60, 5, 0, 1, 1, 0, 0, 1, 1},
};
enum { CASE_COUNT = sizeof cases / sizeof cases[0] };

static void runs_equal_float64(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        latent_run r;
        open_run(&r, &cases[i]);
        for (int step = 0; step < STEPS; step++) {
            draw(&r);
            fill_tokens(&r);
            run(&r);
            expect_truth(&r);
        }
        close_run(&r);
    }
}

/* The layers of a step share a plan: its second run finds the scratch as the first left it. */
static void runs_share_a_plan(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        latent_run r;
        if (!cases[i].plan_apart) continue;
        open_run(&r, &cases[i]);
        draw(&r);
        for (int layer = 0; layer < 3; layer++) {
            fill_tokens(&r);
            if (layer == 0) {
                run(&r);
            } else if (fig_run_rig_run(&r.rig) != FIG_OK) {
                fail_msg("%s", fig_message());
            }
            expect_truth(&r);
        }
        close_run(&r);
    }
}

/* A dense cache of one sequence never uses the stride between sequences. */
static void a_single_dense_sequence_may_have_any_stride(void **state) {
    (void)state;
    static const int64_t strides[] = {0, 1, KEY, INT64_MAX};
    const latent_case c = {FIG_F32, FIG_F32, 8, 1, 60, 0, 0, 0, 1, 0, 0, 0, 0};
    latent_run r;
    open_run(&r, &c);
    for (int i = 0; i < 4; i++) {
        do
            draw(&r);
        while (r.rows != 1);
        fill_tokens(&r);
        set_strides(&r, strides[i]);
        run(&r);
        expect_truth(&r);
    }
    close_run(&r);
}

static void too_small_memory_is_refused_by_name(void **state) {
    (void)state;
    latent_run r;
    open_run(&r, &cases[CASE_COUNT - 1]);
    for (int32_t n = 0; n < r.rig.count; n++) {
        draw(&r);
        fill_tokens(&r);
        run(&r);
        fig_binding *binding = &r.rig.bindings[n];
        const uint64_t bytes = binding->bytes;
        binding->bytes = n == CACHE ? TRUTH_LATENT_CODES - 1 : n == r.table_at ? 3 : bytes - 1;
        if (fig_run_rig_run(&r.rig) != FIG_INVALID)
            fail_msg("%s: %s", binding->name, fig_message());
        if (strstr(fig_message(), binding->name) == NULL) fail_msg("%s", fig_message());
        binding->bytes = bytes;
    }
    close_run(&r);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_equal_float64),
        cmocka_unit_test(runs_share_a_plan),
        cmocka_unit_test(a_single_dense_sequence_may_have_any_stride),
        cmocka_unit_test(too_small_memory_is_refused_by_name),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
