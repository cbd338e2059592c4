/* test_invoke_packed.c: tests calls over rows with unequal numbers of query tokens.
 *
 * Each such call is compared with a call in which every token is a row of its own; both must give a
 * token the same results. Invariant: the tokens of rows that are not idle are the same in both. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/tvm/tvm.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 4, TOKENS = 15, MORE = 2, MOST = 11, HEADS = 4, KV = 2, DIM = 64, PAGE = 16 };
enum { CHUNK = 33 }; /* where a row may have so many tokens, rows of more than 8 are chunks */
enum { WIDTH = 3, PAGES = 12, ROOM = TOKENS + MORE, CACHE = PAGES * PAGE * KV * DIM };

/* Row 1 has no tokens, row 2 has more than a row beside chunks may have, and row 3 more than its
 * cache holds. */
static const int32_t starts[ROWS + 1] = {0, 2, 2, 13, 15}, lengths[ROWS] = {33, 12, 17, 49};
/* The arrays of the call in which each token of a busy row is a row of its own. */
enum { BUSY = 13 };
static const int32_t row_of[BUSY] = {0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
                     length_of[BUSY] = {32, 33, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};

static fig_fake_cuda *driver;

static int install(void **state) {
    (void)state;
    driver = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

typedef struct world {
    float q[ROOM * HEADS * DIM], k[ROOM * KV * DIM], v[ROOM * KV * DIM];
    float k_cache[CACHE], v_cache[CACHE], out[ROOM * HEADS * DIM], lse[ROOM * HEADS];
    int32_t table[ROWS * WIDTH], one_table[BUSY * WIDTH], positions[ROOM];
    int32_t lengths[ROWS], one_length[BUSY], starts[ROWS + 2];
    _Alignas(64) uint8_t plan[1 << 18], scratch[1 << 25];
} world;

static void fill(float *to, int count, uint32_t seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

static world *make(void) {
    world *w = aligned_alloc(64, sizeof *w);
    assert_non_null(w);
    memset(w, 0, sizeof *w);
    fill(w->q, ROOM * HEADS * DIM, 1);
    fill(w->k, ROOM * KV * DIM, 2);
    fill(w->v, ROOM * KV * DIM, 3);
    fill(w->k_cache, CACHE, 4);
    fill(w->v_cache, CACHE, 5);
    fill(w->out, ROOM * HEADS * DIM, 6);
    for (int i = 0; i < ROWS * WIDTH; i++)
        w->table[i] = (7 * i + 5) % PAGES;
    for (int i = 0; i < BUSY; i++)
        memcpy(w->one_table + i * WIDTH, w->table + row_of[i] * WIDTH, WIDTH * sizeof(int32_t));
    memcpy(w->lengths, lengths, sizeof w->lengths);
    memcpy(w->one_length, length_of, sizeof w->one_length);
    memcpy(w->starts, starts, sizeof starts);
    for (int i = 0; i < BUSY; i++)
        w->positions[i] = length_of[i] - 1;
    return w;
}

/* ---- Calls */

/* The way in which a call passes its tokens. */
typedef struct way {
    const char *platform;
    int is_packed;    /* 0: each token of a busy row is a row */
    int with_plan;    /* 1: a call of `plan` has made its plan */
    int by_positions; /* 1: the call gives the positions for RoPE */
    int turns;
    int most; /* tokens of a packed row; 0: MOST */
} way;

static int64_t most_of(const way *of) {
    if (!of->is_packed) return 1;
    return of->most > 0 ? of->most : MOST;
}

static int64_t rows_of(const way *of) {
    return of->is_packed ? ROWS : BUSY;
}

static int64_t tokens_of(const way *of) {
    return of->is_packed ? ROOM : BUSY;
}

static void begin(fig_xla_host *host, const way *of, const char *target) {
    fig_xla_host_init(host, fig_xla_host_find(target, of->platform));
    if (strcmp(of->platform, "CUDA") == 0)
        host->stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
}

/* Returns the launches of a sound call. */
static int64_t end(fig_xla_host *host) {
    const int64_t before = driver->stream_launches;
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
    if (host->stream != NULL) fig_fake_cuda_stream_destroy(host->stream);
    return driver->stream_launches - before;
}

static void put_heads(fig_xla_host *host, const way *of, float *data, int64_t heads,
                      int is_result) {
    const int64_t dims[] = {tokens_of(of), heads, DIM};
    (is_result ? fig_xla_host_ret : fig_xla_host_arg)(host, FIG_XLA_F32, data, 3, dims);
}

static void put_caches(fig_xla_host *host, world *w, int is_result) {
    const int64_t pages[] = {PAGES, PAGE, KV, DIM};
    (is_result ? fig_xla_host_ret : fig_xla_host_arg)(host, FIG_XLA_F32, w->k_cache, 4, pages);
    (is_result ? fig_xla_host_ret : fig_xla_host_arg)(host, FIG_XLA_F32, w->v_cache, 4, pages);
}

static void put_rows(fig_xla_host *host, world *w, const way *of) {
    const int64_t rows = rows_of(of), table[] = {rows, WIDTH};
    int32_t *lengths_of = of->is_packed ? w->lengths : w->one_length;
    fig_xla_host_arg(host, FIG_XLA_S32, lengths_of, 1, &rows);
    fig_xla_host_arg(host, FIG_XLA_S32, of->is_packed ? w->table : w->one_table, 2, table);
}

static void put_starts(fig_xla_host *host, world *w, const way *of) {
    const int64_t ends = ROWS + 1;
    if (of->is_packed) fig_xla_host_arg(host, FIG_XLA_S32, w->starts, 1, &ends);
    if (of->is_packed) fig_xla_host_integer(host, "row_tokens", most_of(of));
}

static void put_none(fig_xla_host *host, fig_xla_type type, int count) {
    const int64_t none = 0;
    while (count-- > 0)
        fig_xla_host_arg(host, type, NULL, 1, &none);
}

static int64_t scratch_of(const way *of, int64_t *plan_bytes) {
    const fig_ffi_attention asked = {.size = sizeof asked,
                                     .dtype = FIG_F32,
                                     .q_heads = HEADS,
                                     .kv_heads = KV,
                                     .head_dim = DIM,
                                     .page_size = PAGE,
                                     .rows = (int32_t)rows_of(of),
                                     .kv_length = WIDTH * PAGE,
                                     .row_tokens = (int32_t)most_of(of),
                                     .packed = of->is_packed};
    fig_ffi_scratch told = {.size = sizeof told};
    if (fig_ffi_read_scratch(&asked, &told) != FIG_OK) fail_msg("%s", fig_ffi_message());
    *plan_bytes = (int64_t)told.plan_bytes;
    return (int64_t)told.best_bytes;
}

static int64_t plan(world *w, const way *of) {
    fig_xla_host host;
    const int64_t rows = rows_of(of), none = 0, ends = ROWS + 1;
    int64_t plan_bytes;
    const int64_t scratch_bytes = scratch_of(of, &plan_bytes);
    begin(&host, of, "figraph.plan");
    fig_xla_host_arg(&host, FIG_XLA_S32, of->is_packed ? w->lengths : w->one_length, 1, &rows);
    fig_xla_host_arg(&host, FIG_XLA_S32, NULL, 1, &none);
    if (of->is_packed) fig_xla_host_arg(&host, FIG_XLA_S32, w->starts, 1, &ends);
    fig_xla_host_ret(&host, FIG_XLA_U8, w->plan, 1, &plan_bytes);
    fig_xla_host_ret(&host, FIG_XLA_U8, w->scratch, 1, &scratch_bytes);
    fig_xla_host_integer(&host, "dtype", FIG_F32);
    fig_xla_host_integer(&host, "q_heads", HEADS);
    fig_xla_host_integer(&host, "kv_heads", KV);
    fig_xla_host_integer(&host, "head_dim", DIM);
    fig_xla_host_integer(&host, "page_size", PAGE);
    fig_xla_host_integer(&host, "kv_length", WIDTH * PAGE);
    if (of->is_packed) fig_xla_host_integer(&host, "row_tokens", most_of(of));
    if (of->is_packed) fig_xla_host_integer(&host, "tokens", ROOM);
    return end(&host);
}

static void put_lent(fig_xla_host *host, world *w, const way *of) {
    int64_t plan_bytes;
    const int64_t scratch_bytes = scratch_of(of, &plan_bytes);
    if (!of->with_plan) {
        put_none(host, FIG_XLA_U8, 2);
        return;
    }
    fig_xla_host_arg(host, FIG_XLA_U8, w->plan, 1, &plan_bytes);
    fig_xla_host_arg(host, FIG_XLA_U8, w->scratch, 1, &scratch_bytes);
}

static void give_scratch(fig_xla_host *host, world *w, const way *of) {
    int64_t plan_bytes;
    const int64_t scratch_bytes = scratch_of(of, &plan_bytes);
    fig_xla_host_ret(host, FIG_XLA_U8, w->scratch, 1, &scratch_bytes);
}

static int64_t append(world *w, const way *of) {
    fig_xla_host host;
    int64_t plan_bytes;
    scratch_of(of, &plan_bytes);
    begin(&host, of, "figraph.append_kv");
    put_heads(&host, of, w->k, KV, 0), put_heads(&host, of, w->v, KV, 0);
    put_caches(&host, w, 0), put_rows(&host, w, of);
    if (of->with_plan) fig_xla_host_arg(&host, FIG_XLA_U8, w->plan, 1, &plan_bytes);
    if (!of->with_plan) put_none(&host, FIG_XLA_U8, 1);
    put_none(&host, FIG_XLA_F32, 2), put_starts(&host, w, of);
    put_caches(&host, w, 1);
    if (!of->with_plan) give_scratch(&host, w, of);
    return end(&host);
}

static int64_t attend(world *w, const way *of) {
    const int64_t lse[] = {tokens_of(of), HEADS};
    fig_xla_host host;
    begin(&host, of, "figraph.attention");
    put_heads(&host, of, w->q, HEADS, 0);
    put_caches(&host, w, 0), put_rows(&host, w, of), put_lent(&host, w, of);
    put_none(&host, FIG_XLA_F32, 4), put_starts(&host, w, of);
    put_heads(&host, of, w->out, HEADS, 1), give_scratch(&host, w, of);
    fig_xla_host_ret(&host, FIG_XLA_F32, w->lse, 2, lse);
    return end(&host);
}

static int64_t decode(world *w, const way *of) {
    const int64_t lse[] = {tokens_of(of), HEADS}, tokens = tokens_of(of), none = 0;
    fig_xla_host host;
    begin(&host, of, "figraph.decode_attention");
    put_heads(&host, of, w->q, HEADS, 0), put_heads(&host, of, w->k, KV, 0);
    put_heads(&host, of, w->v, KV, 0);
    put_caches(&host, w, 0), put_rows(&host, w, of), put_lent(&host, w, of);
    put_none(&host, FIG_XLA_F32, 4);
    fig_xla_host_arg(&host, FIG_XLA_S32, w->positions, 1, of->by_positions ? &tokens : &none);
    put_none(&host, FIG_XLA_F32, 1), put_starts(&host, w, of);
    put_heads(&host, of, w->out, HEADS, 1), put_heads(&host, of, w->q, HEADS, 1);
    put_heads(&host, of, w->k, KV, 1);
    put_caches(&host, w, 1), give_scratch(&host, w, of);
    fig_xla_host_ret(&host, FIG_XLA_F32, w->lse, 2, lse);
    if (!of->turns) fig_xla_host_integer(&host, "rope", 0);
    return end(&host);
}

/* ---- Comparisons */

static void expect_near(const float *a, const float *b, int count) {
    for (int i = 0; i < count; i++)
        if (fabsf(a[i] - b[i]) > 2e-6f * (1 + fabsf(b[i])))
            fail_msg("number %d: %.9g, wanted %.9g", i, (double)a[i], (double)b[i]);
}

/* Row 3 is idle: its tokens get zeros, and nothing of them is appended. */
static void expect_alike(const world *mine, const world *theirs) {
    const int busy = BUSY * HEADS, all = TOKENS * HEADS;
    expect_near(mine->out, theirs->out, busy * DIM);
    expect_near(mine->lse, theirs->lse, busy);
    for (int i = busy; i < all; i++)
        assert_true(mine->lse[i] == -INFINITY);
    for (int i = busy * DIM; i < all * DIM; i++)
        assert_true(mine->out[i] == 0);
    assert_memory_equal(mine->k_cache, theirs->k_cache, sizeof mine->k_cache);
    assert_memory_equal(mine->v_cache, theirs->v_cache, sizeof mine->v_cache);
}

static void each_token_is_as_if_it_were_a_row(void **state) {
    (void)state;
    for (int n = 0; n < 16; n++) {
        const way packed = {"cpu", 1, n & 1, n >> 1 & 1, n >> 2 & 1, n >= 8 ? CHUNK : 0};
        const way apart = {"cpu", 0, 0, 0, n >> 2 & 1, 0};
        world *mine = make(), *theirs = make();
        if (packed.by_positions && !packed.turns) { /* which is refused */
            free(mine), free(theirs);
            continue;
        }
        if (packed.with_plan) plan(mine, &packed);
        decode(mine, &packed);
        decode(theirs, &apart);
        /* the tokens of a row were appended one after the other, and now all are there */
        attend(theirs, &apart);
        expect_alike(mine, theirs);
        free(mine), free(theirs);
    }
}

static void append_and_attention_are_decode_attention(void **state) {
    (void)state;
    for (int n = 0; n < 4; n++) {
        const int with_plan = n & 1;
        const way of = {"cpu", 1, with_plan, 0, 0, n >= 2 ? CHUNK : 0};
        world *mine = make(), *theirs = make();
        if (with_plan) plan(mine, &of), plan(theirs, &of);
        append(mine, &of);
        attend(mine, &of);
        decode(theirs, &of);
        assert_memory_equal(mine->out, theirs->out, sizeof mine->out);
        assert_memory_equal(mine->lse, theirs->lse, sizeof mine->lse);
        assert_memory_equal(mine->k_cache, theirs->k_cache, sizeof mine->k_cache);
        free(mine), free(theirs);
    }
}

/* A plan takes one launch. A call under the plan has one launch for RoPE and append, and one for
 * attention. */
static void on_a_gpu_a_packed_call_is_two_launches_under_a_plan(void **state) {
    (void)state;
    const way alone = {"CUDA", 1, 0, 0, 1, 0}, planned = {"CUDA", 1, 1, 0, 1, 0};
    const way of_chunks = {"CUDA", 1, 1, 0, 1, CHUNK};
    world *w = make();
    assert_int_equal(plan(w, &alone), 1);
    assert_int_equal(decode(w, &alone), 3);
    assert_int_equal(decode(w, &planned), 2);
    assert_int_equal(attend(w, &planned), 1);
    assert_int_equal(append(w, &planned), 1);
    /* rows that are chunks have a launch of their own */
    assert_int_equal(plan(w, &of_chunks), 1);
    assert_int_equal(decode(w, &of_chunks), 3);
    assert_int_equal(attend(w, &of_chunks), 2);
    free(w);
}

static void a_call_without_tokens_does_nothing(void **state) {
    (void)state;
    const way of = {"CUDA", 1, 0, 0, 0, 0};
    const int64_t none[] = {0, HEADS, DIM};
    world *w = make();
    fig_xla_host host;
    begin(&host, &of, "figraph.attention");
    fig_xla_host_arg(&host, FIG_XLA_F32, NULL, 3, none);
    put_caches(&host, w, 0), put_rows(&host, w, &of), put_none(&host, FIG_XLA_F32, 6);
    put_starts(&host, w, &of);
    fig_xla_host_ret(&host, FIG_XLA_F32, NULL, 3, none), give_scratch(&host, w, &of);
    assert_int_equal(end(&host), 0);
    free(w);
}

/* ---- TVM's entry */

typedef struct tvm_call {
    fig_tvm_value values[16];
    fig_dl_tensor tensors[16];
    int64_t dims[16][4];
    int32_t count;
} tvm_call;

static void put(tvm_call *p, void *data, uint8_t code, const int64_t dims[4]) {
    const int32_t at = p->count++;
    int32_t rank = 0;
    for (; rank < 4 && dims[rank] > 0; rank++)
        p->dims[at][rank] = dims[rank];
    p->tensors[at] = (fig_dl_tensor){.data = data,
                                     .device = FIG_DL_CPU,
                                     .rank = rank,
                                     .code = code,
                                     .bits = data == NULL ? 8 : 32,
                                     .lanes = 1,
                                     .dims = p->dims[at]};
    p->values[at] = (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = &p->tensors[at]};
}
#define F32(p, data, ...) put(p, data, FIG_DL_FLOAT, (int64_t[4]){__VA_ARGS__})
#define I32(p, data, ...) put(p, data, FIG_DL_INT, (int64_t[4]){__VA_ARGS__})

static void put_integer(tvm_call *p, int64_t value) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = value};
}

static void put_real(tvm_call *p, double value) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = value};
}

static void put_absent(tvm_call *p) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_NONE};
}

static void put_scratch(tvm_call *p, world *w) {
    I32(p, w->scratch, sizeof w->scratch / 4);
}

typedef struct sizes {
    int64_t starts, lengths, q_rank, row_tokens;
} sizes;

static fig_status batch_attention(world *w, const sizes *of, int is_jax) {
    tvm_call p = {.count = 0};
    if (is_jax) F32(&p, w->out, ROOM, HEADS, DIM);
    if (is_jax) put_scratch(&p, w), F32(&p, w->lse, ROOM, HEADS);
    if (of->q_rank == 3) F32(&p, w->q, ROOM, HEADS, DIM);
    if (of->q_rank == 4) F32(&p, w->q, ROOM, 1, HEADS, DIM);
    F32(&p, w->k_cache, PAGES, PAGE, KV, DIM), F32(&p, w->v_cache, PAGES, PAGE, KV, DIM);
    I32(&p, w->table, ROWS, WIDTH), I32(&p, w->lengths, of->lengths);
    I32(&p, w->starts, of->starts);
    if (!is_jax) put_scratch(&p, w), F32(&p, w->out, ROOM, HEADS, DIM);
    if (!is_jax) F32(&p, w->lse, ROOM, HEADS);
    if (is_jax) put_absent(&p);
    put_integer(&p, 0), put_integer(&p, -1);
    if (!is_jax) put_absent(&p);
    put_real(&p, 0), put_real(&p, 0.125);
    if (of->row_tokens >= 0) put_integer(&p, of->row_tokens);
    return fig_ffi_run(FIG_OPTIONS(fig_ffi_call,
                                   .function = is_jax ? "batch_attention_jax" : "batch_attention",
                                   .arguments = p.values, .argument_count = p.count));
}

static void batch_attention_is_attention_by_its_name(void **state) {
    (void)state;
    for (int n = 0; n < 4; n++) {
        const way of = {"cpu", 1, 0, 0, 0, 0};
        const sizes sound = {ROWS + 1, ROWS, 3, n / 2 ? -1 : MOST};
        const int32_t tokens = n / 2 ? TOKENS - 3 : TOKENS;
        world *mine = make(), *theirs = make();
        /* A call that does not say row_tokens takes rows of up to 8 tokens. */
        mine->starts[3] = theirs->starts[3] = tokens - 2;
        mine->starts[ROWS] = theirs->starts[ROWS] = tokens;
        if (batch_attention(mine, &sound, n % 2) != FIG_OK) fail_msg("%s", fig_ffi_message());
        attend(theirs, &of);
        expect_near(mine->out, theirs->out, tokens * HEADS * DIM);
        expect_near(mine->lse, theirs->lse, (tokens - 2) * HEADS);
        free(mine), free(theirs);
    }
}

static void wrong_values_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        sizes of;
        const char *sentence;
    } wrong[] = {
        {{ROWS, ROWS, 3, MOST}, "query_start_loc is [4], its dim 0 must be 5"},
        {{ROWS + 2, ROWS, 3, MOST}, "query_start_loc is [6], its dim 0 must be 5"},
        {{ROWS + 1, ROWS - 1, 3, MOST}, "query_start_loc is [5], its dim 0 must be 4"},
        {{ROWS + 1, ROWS, 4, MOST}, "out is [17, 4, 64], it must be [17, 1, 4, 64] like q"},
        {{ROWS + 1, ROWS, 3, 4097}, "row_tokens is 4097, limits 0 to 4096"},
        {{ROWS + 1, ROWS, 3, INT64_MAX}, "row_tokens is 9223372036854775807, limits 0 to 4096"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        world *w = make();
        assert_int_equal(batch_attention(w, &wrong[i].of, 0), FIG_INVALID);
        assert_string_equal(fig_ffi_message(), wrong[i].sentence);
        free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_is_as_if_it_were_a_row),
        cmocka_unit_test(append_and_attention_are_decode_attention),
        cmocka_unit_test(on_a_gpu_a_packed_call_is_two_launches_under_a_plan),
        cmocka_unit_test(a_call_without_tokens_does_nothing),
        cmocka_unit_test(batch_attention_is_attention_by_its_name),
        cmocka_unit_test(wrong_values_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
