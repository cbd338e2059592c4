/* test_invoke_serving.c: tests the calls that servers make: without RoPE, with several tokens per
 * row, and with page tables that have more rows than the call.
 *
 * The fake driver plays the GPU. Most tests here do the same work in two ways, which must give the
 * same bytes; tests/python/python_torch_servers.py compares the numbers with float64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 3, TOKENS = 2, HEADS = 4, KV = 2, DIM = 64, PAGE = 16, WIDTH = 3, PAGES = 12 };
enum { Q = ROWS * TOKENS * HEADS * DIM, K = ROWS * TOKENS * KV * DIM };
enum { CACHE = PAGES * PAGE * KV * DIM };

static fig_fake_cuda *driver;

static int install(void **state) {
    (void)state;
    driver = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

/* The arrays that a call reads and writes, in f16. */
typedef struct world {
    uint16_t q[Q], k[K], v[K], k_cache[CACHE], v_cache[CACHE], out[Q];
    int32_t table[(ROWS + 1) * WIDTH], lengths[ROWS], positions[ROWS * TOKENS];
    float lse[ROWS * TOKENS * HEADS];
    _Alignas(64) uint8_t scratch[1 << 18];
} world;

static void fill(uint16_t *to, int count, uint32_t seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        /* magnitudes from 1/16 to 1 */
        to[i] = (uint16_t)(0x2c00 + (seed >> 20) % 0x1000 + (seed >> 31 << 15));
    }
}

static world *make(void) {
    world *w = aligned_alloc(64, sizeof *w);
    assert_non_null(w);
    memset(w, 0, sizeof *w);
    fill(w->q, Q, 1);
    fill(w->k, K, 2);
    fill(w->v, K, 3);
    fill(w->k_cache, CACHE, 4);
    fill(w->v_cache, CACHE, 5);
    for (int i = 0; i < (ROWS + 1) * WIDTH; i++)
        w->table[i] = (7 * i + 5) % PAGES;
    memcpy(w->lengths, (const int32_t[]){40, 0, 17}, sizeof w->lengths);
    return w;
}

typedef struct way {
    const char *platform;
    int tokens; /* 0: q has no token dim */
    int table_rows;
    int turns, by_positions, with_lse;
} way;

static int64_t dims_of(const way *of, int64_t heads, int64_t dims[4]) {
    const int64_t with[] = {ROWS, of->tokens, heads, DIM}, without[] = {ROWS, heads, DIM};
    memcpy(dims, of->tokens > 0 ? with : without, of->tokens > 0 ? sizeof with : sizeof without);
    return of->tokens > 0 ? 4 : 3;
}

static void put_tokens(fig_xla_host *host, const way *of, uint16_t *data, int64_t heads) {
    int64_t dims[4];
    const int rank = (int)dims_of(of, heads, dims);
    fig_xla_host_arg(host, FIG_XLA_F16, data, rank, dims);
}

static void put_cache(fig_xla_host *host, world *w) {
    const int64_t pages[] = {PAGES, PAGE, KV, DIM}, rows = ROWS;
    fig_xla_host_arg(host, FIG_XLA_F16, w->k_cache, 4, pages);
    fig_xla_host_arg(host, FIG_XLA_F16, w->v_cache, 4, pages);
    fig_xla_host_arg(host, FIG_XLA_S32, w->lengths, 1, &rows);
}

static void give_tokens(fig_xla_host *host, const way *of, uint16_t *data, int64_t heads) {
    int64_t dims[4];
    const int rank = (int)dims_of(of, heads, dims);
    fig_xla_host_ret(host, FIG_XLA_F16, data, rank, dims);
}

static void begin(fig_xla_host *host, const way *of, const char *target) {
    fig_xla_host_init(host, fig_xla_host_find(target, of->platform));
    if (strcmp(of->platform, "CUDA") == 0)
        host->stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
}

/* Makes a correct call and returns the number of its launches. */
static int64_t end(fig_xla_host *host) {
    const int64_t before = driver->stream_launches;
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
    if (host->stream != NULL) fig_fake_cuda_stream_destroy(host->stream);
    return driver->stream_launches - before;
}

static void describe_decode(fig_xla_host *host, world *w, const way *of) {
    const int64_t table[] = {of->table_rows, WIDTH}, bytes = sizeof w->scratch;
    const int64_t pages[] = {PAGES, PAGE, KV, DIM}, none = 0;
    const int64_t all = (int64_t)ROWS * (of->tokens > 0 ? of->tokens : 1);
    int64_t dims[4];
    begin(host, of, "figraph.decode_attention");
    put_tokens(host, of, w->q, HEADS);
    put_tokens(host, of, w->k, KV);
    put_tokens(host, of, w->v, KV);
    put_cache(host, w);
    fig_xla_host_arg(host, FIG_XLA_S32, w->table, 2, table);
    for (int i = 0; i < 6; i++) /* the operands plan, scratch, alibi, sinks, k_scale and v_scale */
        fig_xla_host_arg(host, i < 2 ? FIG_XLA_U8 : FIG_XLA_F32, NULL, 1, &none);
    if (of->by_positions) fig_xla_host_arg(host, FIG_XLA_S32, w->positions, 1, &all);
    give_tokens(host, of, w->out, HEADS);
    give_tokens(host, of, w->q, HEADS);
    give_tokens(host, of, w->k, KV);
    fig_xla_host_ret(host, FIG_XLA_F16, w->k_cache, 4, pages);
    fig_xla_host_ret(host, FIG_XLA_F16, w->v_cache, 4, pages);
    fig_xla_host_ret(host, FIG_XLA_U8, w->scratch, 1, &bytes);
    const int rank = (int)dims_of(of, HEADS, dims) - 1;
    if (of->with_lse) fig_xla_host_ret(host, FIG_XLA_F32, w->lse, rank, dims);
    if (!of->turns) fig_xla_host_integer(host, "rope", 0);
}

static int64_t decode(world *w, const way *of) {
    fig_xla_host host;
    describe_decode(&host, w, of);
    return end(&host);
}

/* Does the same work by append_kv and attention, with a page table that has only the call's
 * rows. */
static void decode_in_parts(world *w, const way *of) {
    const int64_t table[] = {ROWS, WIDTH}, pages[] = {PAGES, PAGE, KV, DIM};
    const int64_t bytes = sizeof w->scratch;
    fig_xla_host host;
    begin(&host, of, "figraph.append_kv");
    put_tokens(&host, of, w->k, KV);
    put_tokens(&host, of, w->v, KV);
    put_cache(&host, w);
    fig_xla_host_arg(&host, FIG_XLA_S32, w->table, 2, table);
    fig_xla_host_ret(&host, FIG_XLA_F16, w->k_cache, 4, pages);
    fig_xla_host_ret(&host, FIG_XLA_F16, w->v_cache, 4, pages);
    fig_xla_host_ret(&host, FIG_XLA_U8, w->scratch, 1, &bytes);
    end(&host);
    begin(&host, of, "figraph.attention");
    put_tokens(&host, of, w->q, HEADS);
    put_cache(&host, w);
    fig_xla_host_arg(&host, FIG_XLA_S32, w->table, 2, table);
    give_tokens(&host, of, w->out, HEADS);
    fig_xla_host_ret(&host, FIG_XLA_U8, w->scratch, 1, &bytes);
    end(&host);
}

static void expect_same(const world *a, const world *b) {
    assert_memory_equal(a->k_cache, b->k_cache, sizeof a->k_cache);
    assert_memory_equal(a->v_cache, b->v_cache, sizeof a->v_cache);
    assert_memory_equal(a->out, b->out, sizeof a->out);
}

/* On a GPU one launch makes the plan, and a second one does everything else; q and k are not
 * rotated. */
static void without_rope_append_and_attention_are_one_launch(void **state) {
    (void)state;
    for (int tokens = 0; tokens <= TOKENS; tokens++) {
        world *one = make(), *two = make(), *was = make();
        way of = {.platform = "CUDA", .tokens = tokens, .table_rows = ROWS};
        driver->ran[FIG_OP_ATTENTION] = "";
        assert_int_equal(decode(one, &of), 2);
        assert_non_null(strstr(driver->ran[FIG_OP_ATTENTION], "turn"));
        decode_in_parts(two, &of);
        expect_same(one, two);
        assert_memory_equal(one->q, was->q, sizeof one->q);
        assert_memory_equal(one->k, was->k, sizeof one->k);
        of.turns = 1;
        assert_int_equal(decode(one, &of), 2);
        assert_memory_not_equal(one->out, two->out, sizeof one->out);
        of.by_positions = 1; /* RoPE and append then take a launch of their own */
        assert_int_equal(decode(one, &of), 3);
        free(one);
        free(two);
        free(was);
    }
}

static void on_the_cpu_it_is_an_append_and_an_attention_too(void **state) {
    (void)state;
    for (int tokens = 0; tokens <= TOKENS; tokens++) {
        world *one = make(), *two = make();
        const way of = {.platform = "cpu", .tokens = tokens, .table_rows = ROWS, .with_lse = 1};
        decode(one, &of);
        decode_in_parts(two, &of);
        expect_same(one, two);
        free(one);
        free(two);
    }
}

static void a_table_may_have_more_rows_than_the_call(void **state) {
    (void)state;
    static const char *const platforms[] = {"cpu", "CUDA"};
    for (int i = 0; i < 4; i++) {
        world *one = make(), *two = make();
        way of = {.platform = platforms[i % 2], .tokens = i / 2 * TOKENS, .table_rows = ROWS};
        decode(one, &of);
        of.table_rows = ROWS + 1;
        decode(two, &of);
        expect_same(one, two);
        free(one);
        free(two);
    }
}

static void expect_refusal(fig_xla_host *host, const char *words) {
    fig_xla_host_call(host);
    if (host->code == 0 || strstr(host->message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, host->code == 0 ? "" : host->message);
}

static void arguments_that_do_not_fit_are_refused_by_name(void **state) {
    (void)state;
    const way of = {.platform = "cpu", .tokens = TOKENS, .table_rows = ROWS, .with_lse = 1};
    way at = of;
    world *w = make();
    fig_xla_host host;
    describe_decode(&host, w, &of);
    host.args[1].dims[1] = host.rets[2].dims[1] = TOKENS - 1;
    expect_refusal(&host, "k is [3, 1, 2, 64], its dim 1 must be 2");
    describe_decode(&host, w, &of);
    host.args[2].buffer.rank = 3;
    expect_refusal(&host, "v is [3, 2, 2], it must have 4 dims");
    describe_decode(&host, w, &of);
    host.rets[6].dims[1] = 1;
    expect_refusal(&host, "lse is [3, 1, 4], its dim 1 must be 2");
    describe_decode(&host, w, &of);
    host.args[6].dims[0] = ROWS - 1;
    expect_refusal(&host, "page_table is [2, 3], its dim 0 must be at least 3");
    describe_decode(&host, w, &of);
    for (int i = 0; i < 5; i++) {
        fig_xla_host_array *const tokens[] = {&host.args[0], &host.args[1], &host.args[2],
                                              &host.rets[0], &host.rets[1]};
        tokens[i]->dims[1] = 17;
    }
    host.rets[2].dims[1] = host.rets[6].dims[1] = 17;
    expect_refusal(&host, "q has 17 tokens a row, limits 1 to 16");
    at.by_positions = 1;
    describe_decode(&host, w, &at);
    expect_refusal(&host, "positions is given, but q and k are not to be rotated");
    at.turns = 1;
    describe_decode(&host, w, &at);
    host.args[13].dims[0]--;
    expect_refusal(&host, "positions is [5], its dim 0 must be 6");
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_rope_append_and_attention_are_one_launch),
        cmocka_unit_test(on_the_cpu_it_is_an_append_and_an_attention_too),
        cmocka_unit_test(a_table_may_have_more_rows_than_the_call),
        cmocka_unit_test(arguments_that_do_not_fit_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
