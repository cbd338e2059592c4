/* latent_call.c: see latent_call.h. Codes and numbers are drawn so that no token is NaN. */
#include "tests/support/ffi/latent_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_ffi.h"
#include "kernels/common/numeric.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/random.h"

enum {
    ROWS = FIG_LATENT_CALL_ROWS,
    MOST = FIG_LATENT_CALL_MOST,
    HEADS = FIG_LATENT_CALL_HEADS,
    PAGE = FIG_LATENT_CALL_PAGE,
    WIDTH = FIG_LATENT_CALL_WIDTH,
    ROOM = FIG_LATENT_CALL_ROOM,
    PAGES = FIG_LATENT_CALL_PAGES,
    TOKENS = FIG_LATENT_CALL_TOKENS,
    KEY = TRUTH_LATENT_KEY_DIM,
    DIM = TRUTH_LATENT_DIM,
    TURN = KEY - DIM
};

const int32_t fig_latent_call_lengths[ROWS] = {40, 0, 17};
const int32_t fig_latent_call_starts[ROWS + 1] = {0, 2, 2, 3};

int32_t fig_latent_call_width(const fig_latent_way *of) {
    return of->codes ? TRUTH_LATENT_CODES : KEY;
}

static void fill(uint16_t *to, int32_t count, fig_random *random) {
    for (int32_t i = 0; i < count; i++)
        fig_numeric_store(to, FIG_BF16, i, fig_random_float(random) * 2 - 1);
}

/* Fills the cache with tokens that attention can read. */
static void fill_cache(fig_latent_world *w, const fig_latent_way *of, fig_random *random) {
    if (!of->codes) fill((uint16_t *)(void *)w->cache, PAGES * PAGE * KEY, random);
    for (int32_t t = 0; t < PAGES * PAGE && of->codes; t++) {
        uint8_t *token = w->cache + t * TRUTH_LATENT_CODES;
        uint16_t turned[TURN];
        for (int32_t i = 0; i < DIM; i++)
            token[i] =
                (uint8_t)(fig_random_range(random, 0, 0x78) | fig_random_range(random, 0, 1) << 7);
        for (int32_t i = 0; i < 4; i++)
            memcpy(token + DIM + 4 * i, &(float){0.01f * (float)(i + 1)}, sizeof(float));
        fill(turned, TURN, random);
        memcpy(token + DIM + 16, turned, sizeof turned);
    }
}

fig_latent_world *fig_latent_call_make(const fig_latent_way *of) {
    fig_latent_world *w = aligned_alloc(64, sizeof *w);
    fig_random random = fig_random_seed(7);
    assert_non_null(w);
    memset(w, 0, sizeof *w);
    fill(w->q, TOKENS * HEADS * KEY, &random);
    memcpy(w->q_given, w->q, sizeof w->q);
    fill(w->latent, TOKENS * KEY, &random);
    fill(w->norm, DIM, &random);
    fill_cache(w, of, &random);
    for (int32_t i = 0; i < ROWS * WIDTH; i++)
        w->table[i] = (7 * i + 5) % PAGES;
    for (int32_t i = 0; i < HEADS; i++)
        w->sinks[i] = (float)i / 4;
    for (int32_t i = 0; i < TOKENS; i++)
        w->positions[i] = 1000 + 3 * i;
    memcpy(w->lengths, fig_latent_call_lengths, sizeof w->lengths);
    memcpy(w->starts, fig_latent_call_starts, sizeof w->starts);
    return w;
}

/* ---- XLA's calls */

static int tokens_of(const fig_latent_way *of, int64_t dims[4]) {
    memcpy(dims, (const int64_t[]){of->kind == FIG_LATENT_PACKED ? TOKENS : ROWS, MOST},
           2 * sizeof *dims);
    return of->kind == FIG_LATENT_EQUAL ? 2 : 1;
}

static void put_tokens(fig_xla_host *host, const fig_latent_way *of, uint16_t *data, int64_t heads,
                       int64_t width, int is_result) {
    int64_t dims[4];
    int rank = tokens_of(of, dims);
    if (heads > 0) dims[rank++] = heads;
    dims[rank++] = width;
    (is_result ? fig_xla_host_ret : fig_xla_host_arg)(host, FIG_XLA_BF16, data, rank, dims);
}

static void put_cache(fig_xla_host *host, const fig_latent_way *of, fig_latent_world *w,
                      int is_result) {
    const int64_t pages[] = {PAGES, PAGE, fig_latent_call_width(of)},
                  dense[] = {ROWS, ROOM, fig_latent_call_width(of)};
    (is_result ? fig_xla_host_ret : fig_xla_host_arg)(host, of->codes ? FIG_XLA_U8 : FIG_XLA_BF16,
                                                      w->cache, 3, of->dense ? dense : pages);
}

static void put_or_none(fig_xla_host *host, int is_given, fig_xla_type type, void *data, int rank,
                        const int64_t *dims) {
    const int64_t none[2] = {0};
    fig_xla_host_arg(host, type, is_given ? data : NULL, rank, is_given ? dims : none);
}

static void begin(fig_xla_host *host, const fig_latent_way *of, const char *target) {
    fig_xla_host_init(host, fig_xla_host_find(target, of->platform));
    if (strcmp(of->platform, "CUDA") == 0)
        host->stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
}

static fig_ffi_scratch scratch_of(const fig_latent_way *of) {
    const fig_ffi_attention asked = {.size = sizeof asked,
                                     .dtype = FIG_BF16,
                                     .kv_dtype = of->codes ? FIG_E4M3 : FIG_BF16,
                                     .q_heads = HEADS,
                                     .kv_heads = 1,
                                     .head_dim = KEY,
                                     .page_size = of->dense ? 0 : PAGE,
                                     .rows = ROWS,
                                     .kv_length = ROOM,
                                     .row_tokens = of->kind == FIG_LATENT_SINGLE ? 1 : MOST,
                                     .packed = of->kind == FIG_LATENT_PACKED,
                                     .latent_dim = DIM};
    fig_ffi_scratch told = {.size = sizeof told};
    if (fig_ffi_read_scratch(&asked, &told) != FIG_OK) fail_msg("%s", fig_ffi_message());
    assert_true(told.plan_bytes <= sizeof((fig_latent_world *)0)->planned);
    assert_true(told.best_bytes <= sizeof((fig_latent_world *)0)->scratch);
    return told;
}

void fig_latent_call_describe_plan(fig_xla_host *host, const fig_latent_way *of,
                                   fig_latent_world *w) {
    const fig_ffi_scratch needs = scratch_of(of);
    const int64_t rows = ROWS, ends = ROWS + 1, none = 0;
    const int64_t bytes[2] = {(int64_t)needs.plan_bytes, (int64_t)needs.best_bytes};
    begin(host, of, "figraph.plan");
    fig_xla_host_arg(host, FIG_XLA_S32, w->lengths, 1, &rows);
    fig_xla_host_arg(host, FIG_XLA_S32, NULL, 1, &none);
    if (of->kind == FIG_LATENT_PACKED) fig_xla_host_arg(host, FIG_XLA_S32, w->starts, 1, &ends);
    fig_xla_host_ret(host, FIG_XLA_U8, w->planned, 1, &bytes[0]);
    fig_xla_host_ret(host, FIG_XLA_U8, w->scratch, 1, &bytes[1]);
    fig_xla_host_integer(host, "dtype", FIG_BF16);
    fig_xla_host_integer(host, "kv_dtype", of->codes ? FIG_E4M3 : FIG_BF16);
    fig_xla_host_integer(host, "q_heads", HEADS);
    fig_xla_host_integer(host, "kv_heads", 1);
    fig_xla_host_integer(host, "head_dim", KEY);
    fig_xla_host_integer(host, "page_size", of->dense ? 0 : PAGE);
    fig_xla_host_integer(host, "kv_length", ROOM);
    fig_xla_host_integer(host, "row_tokens", of->kind == FIG_LATENT_SINGLE ? 1 : MOST);
    if (of->kind == FIG_LATENT_PACKED) fig_xla_host_integer(host, "tokens", TOKENS);
    fig_xla_host_integer(host, "latent_dim", DIM);
}

void fig_latent_call_describe(fig_xla_host *host, const fig_latent_way *of, fig_latent_world *w) {
    const fig_ffi_scratch needs = scratch_of(of);
    const int64_t rows = ROWS, ends = ROWS + 1, table[] = {ROWS, WIDTH}, heads = HEADS, dim = DIM;
    const int64_t bytes[2] = {(int64_t)needs.plan_bytes, (int64_t)needs.best_bytes};
    const int64_t all = of->kind == FIG_LATENT_SINGLE ? ROWS : TOKENS;
    int64_t lse[4];
    const int rank = tokens_of(of, lse);
    lse[rank] = HEADS;
    begin(host, of, of->decode ? "figraph.latent_decode" : "figraph.latent_attention");
    put_tokens(host, of, w->q, HEADS, KEY, 0);
    if (of->decode) put_tokens(host, of, w->latent, 0, KEY, 0);
    put_cache(host, of, w, 0);
    fig_xla_host_arg(host, FIG_XLA_S32, w->lengths, 1, &rows);
    put_or_none(host, !of->dense, FIG_XLA_S32, w->table, 2, table);
    put_or_none(host, of->plan, FIG_XLA_U8, w->planned, 1, &bytes[0]);
    put_or_none(host, of->plan, FIG_XLA_U8, w->scratch, 1, &bytes[1]);
    put_or_none(host, 1, FIG_XLA_F32, w->sinks, 1, &heads);
    if (of->decode) put_or_none(host, of->norm, FIG_XLA_BF16, w->norm, 1, &dim);
    if (of->decode) put_or_none(host, of->placed, FIG_XLA_S32, w->positions, 1, &all);
    if (of->decode) put_or_none(host, 0, FIG_XLA_F32, NULL, 1, NULL);
    if (of->kind == FIG_LATENT_PACKED) fig_xla_host_arg(host, FIG_XLA_S32, w->starts, 1, &ends);
    put_tokens(host, of, w->out, HEADS, DIM, 1);
    if (of->decode) put_tokens(host, of, w->q, HEADS, KEY, 1), put_cache(host, of, w, 1);
    fig_xla_host_ret(host, FIG_XLA_U8, w->scratch, 1, &bytes[1]);
    fig_xla_host_ret(host, FIG_XLA_F32, w->lse, rank + 1, lse);
    fig_xla_host_real(host, "sm_scale", 0.0625);
    fig_xla_host_integer(host, "window_left", 29);
    if (of->kind == FIG_LATENT_PACKED) fig_xla_host_integer(host, "row_tokens", MOST);
    if (of->norm) fig_xla_host_real(host, "norm_epsilon", 1e-5);
}
