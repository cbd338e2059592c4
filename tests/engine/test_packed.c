/* test_packed.c: tests that each operation gives a token the same values in two forms of a step:
 * packed, where rows may have unequal numbers of query tokens, and padded, where all rows have the
 * same number and some tokens are padding.
 *
 * Two programs with the same nodes run the same step. One is packed. The other has row_tokens
 * tensor rows for each row of the step, and the row's tokens are the last of them. Their inputs are
 * NaN where there is no token. Invariant: a value depends only on its tensor, its row and its
 * token's number in the row, so both programs hold the same numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/common/decode_attention.h"
#include "tests/support/place.h"
#include "tests/support/random.h"

enum {
    ROWS = 7,
    MANY_ROWS = 250, /* their query tokens are more than have blocks of their own */
    TOKENS = 5,
    KV = 120,
    PAGE = 16,
    PAGES_OF_ROW = 8,
    Q_HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    WIDTH = 72,
    CACHES = 3,
    OLD = 1021, /* different numbers in the caches before a step */
    STEPS = 12,
    MANY_STEPS = 1,
    WAIT_US = 60000000
};
enum { ALL_AT_ONCE = FIG_DECODE_LONG_ABREAST * FIG_DECODE_LONG_GROUPS };
static_assert((int)ALL_AT_ONCE > (int)FIG_PARAMS_ABREAST, "the most that any kernel has");

/* ---- Tensors --------------------------------------------------------------------------------- */

typedef enum kind {
    Q,
    K,
    V,
    X,
    RESIDUAL,
    GATE_UP,
    Y,    /* one row for each row of the step */
    IN_Q, /* decode_attention changes them in place */
    IN_K,
    Q_OUT,
    K_OUT,
    OUT_A,
    LSE_A,
    OUT_B,
    LSE_B,
    OUT,
    LSE,
    NORMED,
    ACT,
    Y_NORMED,
    KIND_COUNT
} kind;

static const struct {
    const char *name;
    int32_t heads, width; /* heads 0: [rows][width] */
    fig_dtype dtype;
} kinds[KIND_COUNT] = {[Q] = {"q", Q_HEADS, DIM, FIG_F16},
                       [K] = {"k", KV_HEADS, DIM, FIG_F16},
                       [V] = {"v", KV_HEADS, DIM, FIG_F16},
                       [X] = {"x", 0, WIDTH, FIG_F16},
                       [RESIDUAL] = {"residual", 0, WIDTH, FIG_F16},
                       [GATE_UP] = {"gate_up", 0, 2 * WIDTH, FIG_F16},
                       [Y] = {"y", 0, WIDTH, FIG_F16},
                       [IN_Q] = {"in_q", Q_HEADS, DIM, FIG_F16},
                       [IN_K] = {"in_k", KV_HEADS, DIM, FIG_F16},
                       [Q_OUT] = {"q_out", Q_HEADS, DIM, FIG_F16},
                       [K_OUT] = {"k_out", KV_HEADS, DIM, FIG_F16},
                       [OUT_A] = {"out_a", Q_HEADS, DIM, FIG_F16},
                       [LSE_A] = {"lse_a", 0, Q_HEADS, FIG_F32},
                       [OUT_B] = {"out_b", Q_HEADS, DIM, FIG_F16},
                       [LSE_B] = {"lse_b", 0, Q_HEADS, FIG_F32},
                       [OUT] = {"out", Q_HEADS, DIM, FIG_F16},
                       [LSE] = {"lse", 0, Q_HEADS, FIG_F32},
                       [NORMED] = {"normed", 0, WIDTH, FIG_F16},
                       [ACT] = {"act", 0, WIDTH, FIG_F16},
                       [Y_NORMED] = {"y_normed", 0, WIDTH, FIG_F16}};

static int is_of_rows(int k) {
    return k == Y || k == Y_NORMED;
}

static int32_t numbers_of(int k) {
    return (kinds[k].heads > 0 ? kinds[k].heads : 1) * kinds[k].width;
}

typedef struct side {
    int is_packed;
    int32_t rows; /* most rows of a step */
    fig_graphs *graphs;
    fig_engine *engine;
    uint8_t *tensors[KIND_COUNT], *caches[2 * CACHES]; /* k, v, k, v.. */
    uint16_t *weight;
    size_t cache_bytes;
    fig_call_args seen; /* the arguments of the last call */
} side;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

/* ---- The program ----------------------------------------------------------------------------- */

static fig_tensor declare(fig_program *program, const side *s, int k) {
    const int is_packed = s->is_packed && !is_of_rows(k);
    const int64_t rows = is_packed ? FIG_DIM_QUERIES : FIG_DIM_BATCH;
    fig_tensor_info info = {.size = sizeof info,
                            .name = kinds[k].name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = kinds[k].dtype,
                            .rank = kinds[k].heads > 0 ? 3 : 2,
                            .dims = {rows, kinds[k].width},
                            .multiple = is_packed || is_of_rows(k) ? 1 : TOKENS};
    if (kinds[k].heads > 0) {
        info.dims[1] = kinds[k].heads;
        info.dims[2] = kinds[k].width;
    }
    return fig_program_tensor(program, &info);
}

static const char *const cache_names[2 * CACHES] = {"k_cache",    "v_cache",       "in_k_cache",
                                                    "in_v_cache", "plain_k_cache", "plain_v_cache"};

static fig_cache declare_cache(fig_program *program, int number, fig_tensor page_table) {
    fig_tensor_info info = {.size = sizeof info,
                            .name = cache_names[2 * number],
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_F16,
                            .rank = 4,
                            .dims = {FIG_DIM_PAGES, PAGE, KV_HEADS, DIM}};
    fig_cache cache = {.k = fig_program_tensor(program, &info), .page_table = page_table};
    info.name = cache_names[2 * number + 1];
    cache.v = fig_program_tensor(program, &info);
    return cache;
}

static void record(fig_program *program, const side *s) {
    fig_tensor t[KIND_COUNT];
    for (int k = 0; k < KIND_COUNT; k++)
        t[k] = declare(program, s, k);
    const fig_tensor page_table = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                             .dtype = FIG_I32, .rank = 2, .dims = {s->rows, PAGES_OF_ROW}));
    const fig_cache cache = declare_cache(program, 0, page_table);
    const fig_tensor weight = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "weight", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_F16, .rank = 1, .dims = {WIDTH}));
    fig_rope(program,
             FIG_OPTIONS(fig_rope_op, .q = t[Q], .k = t[K], .q_out = t[Q_OUT], .k_out = t[K_OUT]));
    fig_append_kv(program, FIG_OPTIONS(fig_append_kv_op, .k = t[K_OUT], .v = t[V], .cache = cache));
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = t[Q_OUT], .out = t[OUT_A],
                                       .lse = t[LSE_A], .cache = cache));
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = t[Q_OUT], .out = t[OUT_B],
                                       .lse = t[LSE_B], .cache = cache, .window = 9));
    fig_merge_states(program, FIG_OPTIONS(fig_merge_states_op, .out_a = t[OUT_A], .lse_a = t[LSE_A],
                                          .out_b = t[OUT_B], .lse_b = t[LSE_B], .out = t[OUT],
                                          .lse = t[LSE]));
    fig_decode_attention(program,
                         FIG_OPTIONS(fig_decode_attention_op, .q = t[IN_Q], .k = t[IN_K], .v = t[V],
                                     .cache = declare_cache(program, 1, page_table)));
    fig_decode_attention(program,
                         FIG_OPTIONS(fig_decode_attention_op, .q = t[Q], .k = t[K], .v = t[V],
                                     .plain = 1, .cache = declare_cache(program, 2, page_table)));
    fig_add_rms_norm(program, FIG_OPTIONS(fig_rms_norm_op, .in = t[X], .weight = weight,
                                          .out = t[NORMED], .residual = t[RESIDUAL]));
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = t[GATE_UP], .out = t[ACT]));
    fig_rms_norm(program,
                 FIG_OPTIONS(fig_rms_norm_op, .in = t[Y], .weight = weight, .out = t[Y_NORMED]));
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "look", .reads = &t[ACT], .read_count = 1));
}

static int32_t look(void *user, const fig_call_args *args) {
    ((side *)user)->seen = *args;
    return 0;
}

/* ---- Sides ----------------------------------------------------------------------------------- */

static void bind(side *s, const char *name, void *address, size_t bytes) {
    const fig_binding binding = {
        .size = sizeof binding, .name = name, .address = address, .bytes = bytes};
    expect(fig_engine_bind(s->engine, &binding));
}

static size_t bytes_of(const side *s, int k) {
    return (size_t)(is_of_rows(k) ? s->rows : s->rows * TOKENS) * (size_t)numbers_of(k) *
           (size_t)fig_numeric_bytes((int32_t)kinds[k].dtype);
}

static void bind_all(side *s) {
    for (int k = 0; k < KIND_COUNT; k++) {
        s->tensors[k] = fig_place_allocate(bytes_of(s, k));
        assert_non_null(s->tensors[k]);
        bind(s, kinds[k].name, s->tensors[k], bytes_of(s, k));
    }
    s->cache_bytes = (size_t)s->rows * PAGES_OF_ROW * PAGE * KV_HEADS * DIM * 2;
    for (int i = 0; i < 2 * CACHES; i++) {
        s->caches[i] = fig_place_allocate(s->cache_bytes);
        assert_non_null(s->caches[i]);
        bind(s, cache_names[i], s->caches[i], s->cache_bytes);
    }
    s->weight = fig_place_allocate(WIDTH * sizeof *s->weight);
    assert_non_null(s->weight);
    for (int32_t i = 0; i < WIDTH; i++)
        fig_numeric_store(s->weight, FIG_F16, i, 0.5f + (float)(i % 7) / 4);
    bind(s, "weight", s->weight, WIDTH * sizeof *s->weight);
    for (int32_t row = 0; row < s->rows; row++) {
        int32_t pages[PAGES_OF_ROW];
        for (int32_t i = 0; i < PAGES_OF_ROW; i++) /* 11 divides no number of pages */
            pages[i] = (row * PAGES_OF_ROW + i) * 11 % (s->rows * PAGES_OF_ROW);
        expect(fig_engine_set_pages(s->engine,
                                    FIG_OPTIONS(fig_pages, .sequence = row, .count = PAGES_OF_ROW,
                                                .pages = pages, .table = "page_table")));
    }
}

static void open_side(side *s, int32_t rows, int is_packed) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F16,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .page_size = PAGE,
                           .batch_limit = rows,
                           .kv_limit = KV,
                           .row_tokens = TOKENS,
                           .query_limit = is_packed ? rows * TOKENS : 0};
    const fig_lower_options how = {.size = sizeof how, .traits = fig_place_traits()};
    fig_program *program;
    memset(s, 0, sizeof *s);
    s->is_packed = is_packed;
    s->rows = rows;
    expect(fig_program_create(&program, &spec));
    record(program, s);
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&s->graphs, program, &how));
    fig_program_destroy(program);
    expect(fig_place_open(&s->engine, s->graphs));
    bind_all(s);
    expect(fig_engine_register(s->engine, "look", look, s));
}

static void close_side(side *s) {
    fig_engine_close(s->engine);
    fig_graphs_destroy(s->graphs);
    for (int k = 0; k < KIND_COUNT; k++)
        fig_place_free(s->tensors[k]);
    for (int i = 0; i < 2 * CACHES; i++)
        fig_place_free(s->caches[i]);
    fig_place_free(s->weight);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef struct step {
    int32_t rows, lengths[MANY_ROWS], counts[MANY_ROWS];
} step;

static int is_idle(const step *of, int32_t row) {
    return of->lengths[row] == 0 || of->counts[row] == 0;
}

/* Returns the tensor row of a step row's token `number` in this program. */
static int32_t place_of(const side *s, const step *of, int32_t row, int32_t number) {
    int32_t first = 0;
    if (!s->is_packed) return row * TOKENS + TOKENS - of->counts[row] + number;
    for (int32_t r = 0; r < row; r++)
        first += of->counts[r];
    return first + number;
}

static int32_t count_of(const step *of) {
    int32_t count = 0;
    for (int32_t row = 0; row < of->rows; row++)
        count += of->counts[row];
    return count;
}

/* Returns 1 if each row has one token. Such a step takes a bucket that writes all its rows. */
static int is_ones(const step *of) {
    int ones = of->rows > 0;
    for (int32_t row = 0; row < of->rows; row++)
        ones &= of->counts[row] == 1;
    return ones;
}

/* Draws a step in which each row has one token, or some have none. */
static step draw_ones(fig_random *random, int32_t most) {
    step of = {.rows = fig_random_range(random, 1, most)};
    for (int32_t row = 0; row < of.rows; row++) {
        of.counts[row] = 1;
        of.lengths[row] = fig_random_range(random, 0, 5) == 0 ? 0 : fig_random_range(random, 1, KV);
    }
    return of;
}

/* Steps of many rows have many tokens, so few of their rows have none. */
static step draw_step(fig_random *random, int32_t least, int32_t most) {
    step of = {.rows = fig_random_range(random, least, most)};
    for (int32_t row = 0; row < of.rows; row++) {
        of.counts[row] = fig_random_range(random, least > 0 ? TOKENS - 1 : 0, TOKENS);
        if (fig_random_range(random, 0, 50) == 0) of.counts[row] = 0;
        of.lengths[row] = fig_random_range(random, TOKENS, least > 0 ? 2 * PAGE : KV);
        if (fig_random_range(random, 0, least > 0 ? 50 : 5) == 0) of.lengths[row] = 0;
    }
    return of;
}

static void put_row(const side *s, int k, int32_t at, fig_random random) {
    const int32_t count = numbers_of(k);
    for (int32_t i = 0; i < count; i++)
        fig_numeric_store(s->tensors[k], (int32_t)kinds[k].dtype, (int64_t)at * count + i,
                          fig_random_normal(&random));
}

static void fill(const side *s, const step *of, uint64_t seed) {
    for (int k = 0; k < KIND_COUNT; k++) {
        memset(s->tensors[k], 0xff, bytes_of(s, k));
        for (int32_t row = 0; row < of->rows && k <= IN_K; row++) {
            const int32_t tokens = is_of_rows(k) ? 1 : of->counts[row];
            for (int32_t n = 0; n < tokens; n++)
                put_row(
                    s, k, is_of_rows(k) ? row : place_of(s, of, row, n),
                    fig_random_seed(seed * 1000003 + (uint64_t)((k * MANY_ROWS + row) * 64 + n)));
        }
    }
    fig_random random = fig_random_seed(seed);
    uint16_t old[OLD];
    for (int64_t i = 0; i < OLD; i++)
        fig_numeric_store(old, FIG_F16, i, fig_random_normal(&random));
    for (int cache = 0; cache < 2 * CACHES; cache++)
        for (size_t i = 0; i < s->cache_bytes / 2; i++)
            ((uint16_t *)(void *)s->caches[cache])[i] = old[(i + (size_t)cache) % OLD];
}

/* Only counts can make a row with a length idle. A padded program has no counts, so its idle rows
 * get length 0. */
static void run(side *s, const step *of) {
    int32_t lengths[MANY_ROWS];
    for (int32_t row = 0; row < of->rows; row++)
        lengths[row] = !s->is_packed && is_idle(of, row) ? 0 : of->lengths[row];
    expect(
        fig_engine_step(s->engine, FIG_OPTIONS(fig_step, .rows = of->rows, .kv_lengths = lengths,
                                               .row_tokens = s->is_packed ? NULL : of->counts,
                                               .query_counts = s->is_packed ? of->counts : NULL)));
    expect(fig_engine_wait(s->engine, WAIT_US));
}

/* A GPU's attention adds in an order that depends on a vector's place in its tile. With many rows,
 * or with one token in each row, the host cuts some rows at other places in one form than in the
 * other. */
static double tolerance_of(const side *s, const step *of, int k, double value) {
    const int is_exact =
        fig_place_device() == FIG_DEVICE_HOST && s->rows < MANY_ROWS && !is_ones(of);
    return k >= OUT_A && k <= LSE && !is_exact ? 2e-3 * (1 + fabs(value)) : 0;
}

static void compare_row(const side *a, const side *b, const step *of, int k, int32_t row,
                        int32_t number) {
    const int32_t count = numbers_of(k), dtype = (int32_t)kinds[k].dtype;
    const int64_t one = (int64_t)(is_of_rows(k) ? row : place_of(a, of, row, number)) * count;
    const int64_t other = (int64_t)(is_of_rows(k) ? row : place_of(b, of, row, number)) * count;
    for (int32_t i = 0; i < count; i++) {
        const double x = (double)fig_numeric_load(a->tensors[k], dtype, one + i);
        const double y = (double)fig_numeric_load(b->tensors[k], dtype, other + i);
        if (x == y || fabs(x - y) <= tolerance_of(a, of, k, y)) continue;
        fail_msg("%s: row %d, token %d, number %d: %g packed, %g padded", kinds[k].name, row,
                 number, i, x, y);
    }
}

static void compare(const side *a, const side *b, const step *of) {
    for (int k = IN_Q; k < KIND_COUNT; k++) {
        /* the positions of an idle row have no meaning */
        const int turns = k <= K_OUT;
        for (int32_t row = 0; row < of->rows; row++) {
            const int32_t tokens = is_of_rows(k) ? 1 : of->counts[row];
            for (int32_t n = 0; n < tokens && !(turns && is_idle(of, row)); n++)
                compare_row(a, b, of, k, row, n);
        }
    }
    for (int i = 0; i < 2 * CACHES; i++)
        assert_memory_equal(a->caches[i], b->caches[i], a->cache_bytes);
}

static void expect_call(const side *s, const step *of) {
    const int32_t all = s->seen.bucket.batch * TOKENS;
    if (fig_place_device() == FIG_DEVICE_HOST) {
        assert_int_equal(s->seen.rows, of->rows);
        assert_int_equal(s->seen.queries, s->is_packed ? count_of(of) : 0);
    } else if (s->is_packed && s->seen.queries != s->seen.bucket.batch) { /* else: ones */
        assert_int_equal(s->seen.queries, all < s->rows * TOKENS ? all : s->rows * TOKENS);
    }
}

/* Runs steps of least to most rows in both forms. */
static void expect_equals(int32_t least, int32_t most, uint64_t steps) {
    static side packed, padded;
    open_side(&packed, most, 1);
    open_side(&padded, most, 0);
    for (uint64_t n = 0; n < steps; n++) {
        fig_random random = fig_random_seed(n + 77);
        const int takes_ones = least == 0 && n % 3 == 2;
        const step of = takes_ones ? draw_ones(&random, most) : draw_step(&random, least, most);
        assert_true(least == 0 || count_of(&of) > ALL_AT_ONCE);
        fill(&packed, &of, n);
        fill(&padded, &of, n);
        run(&packed, &of);
        run(&padded, &of);
        compare(&packed, &padded, &of);
        expect_call(&packed, &of);
        expect_call(&padded, &of);
    }
    close_side(&packed);
    close_side(&padded);
}

static void a_packed_token_gets_what_a_padded_one_gets(void **state) {
    (void)state;
    expect_equals(0, ROWS, STEPS);
}

static void a_token_of_hundreds_gets_what_a_padded_one_gets(void **state) {
    (void)state;
    expect_equals(MANY_ROWS - 3, MANY_ROWS, MANY_STEPS);
}

/* An operation that works token by token must not write tensor rows after the step's last token. A
 * kernel that went by the bucket's rows would write them. */
static void nothing_behind_the_last_token_is_written(void **state) {
    (void)state;
    static side s;
    const step of = {.rows = 6, .lengths = {9, 9, 9, 9, 9, 9}, .counts = {1, 0, 2, 1, 0, 1}};
    open_side(&s, ROWS, 1);
    fill(&s, &of, 3);
    run(&s, &of);
    for (int k = IN_Q; k < KIND_COUNT; k++) {
        if (is_of_rows(k)) continue;
        const size_t row = bytes_of(&s, k) / (ROWS * TOKENS), end = row * (size_t)count_of(&of);
        for (size_t i = end; i < bytes_of(&s, k); i++)
            if (s.tensors[k][i] != 0xff) fail_msg("%s: byte %zu was written", kinds[k].name, i);
    }
    close_side(&s);
}

/* The sum of all counts has a limit, however many rows the step has. */
static void a_step_of_too_many_query_tokens_is_refused(void **state) {
    (void)state;
    static side s;
    int32_t lengths[ROWS], counts[ROWS];
    for (int32_t row = 0; row < ROWS; row++)
        lengths[row] = counts[row] = TOKENS;
    open_side(&s, ROWS, 1);
    counts[3] = TOKENS + 1;
    assert_int_equal(
        fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths,
                                              .query_counts = counts)),
        FIG_INVALID);
    counts[3] = TOKENS;
    assert_int_equal(
        fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths,
                                              .row_tokens = counts)),
        FIG_INVALID);
    assert_int_equal(
        fig_engine_step(s.engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths,
                                              .query_counts = counts, .horizon = 2)),
        FIG_INVALID);
    close_side(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_token_gets_what_a_padded_one_gets),
        cmocka_unit_test(a_token_of_hundreds_gets_what_a_padded_one_gets),
        cmocka_unit_test(nothing_behind_the_last_token_is_written),
        cmocka_unit_test(a_step_of_too_many_query_tokens_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
