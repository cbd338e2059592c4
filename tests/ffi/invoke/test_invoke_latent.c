/* test_invoke_latent.c: compares calls over latent caches with float64. The calls go through XLA's
 * targets and through TVM FFI's functions. */
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
#include "tests/support/ffi/latent_call.h"

/* Short names. */
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

static fig_fake_cuda *driver;

static int install(void **state) {
    (void)state;
    driver = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    return 0;
}

/* ---- Calls */

/* Returns the launches of a sound call. */
static int64_t end(fig_xla_host *host) {
    const int64_t before = driver->stream_launches;
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
    if (host->stream != NULL) fig_fake_cuda_stream_destroy(host->stream);
    return driver->stream_launches - before;
}

static int64_t plan(fig_latent_world *w, const fig_latent_way *of) {
    fig_xla_host host;
    fig_latent_call_describe_plan(&host, of, w);
    return end(&host);
}

static int64_t run(fig_latent_world *w, const fig_latent_way *of) {
    fig_xla_host host;
    fig_latent_call_describe(&host, of, w);
    return end(&host);
}

/* ---- The truth */

/* A token of q, its row, its index among the query tokens of the row, and their number. */
typedef struct query {
    int32_t token, row, number, count;
} query;

static int32_t list_queries(const fig_latent_way *of, query list[TOKENS]) {
    int32_t count = 0;
    for (int32_t row = 0; row < ROWS; row++) {
        const int32_t each = of->kind == FIG_LATENT_SINGLE ? 1
                             : of->kind == FIG_LATENT_EQUAL
                                 ? (int32_t)MOST
                                 : fig_latent_call_starts[row + 1] - fig_latent_call_starts[row];
        for (int32_t n = 0; n < each; n++, count++)
            list[count] = (query){count, row, n, each};
    }
    return count;
}

static truth_cache cache_of(const fig_latent_world *w, const fig_latent_way *of) {
    const int32_t page = of->dense ? (int32_t)ROOM : (int32_t)PAGE,
                  width = fig_latent_call_width(of);
    return (truth_cache){.base = w->cache,
                         .dtype = of->codes ? FIG_E4M3 : FIG_BF16,
                         .page_stride = page * width,
                         .token_stride = width,
                         .pages = of->dense ? ROWS : PAGES,
                         .page_size = page,
                         .page_table = of->dense ? NULL : w->table,
                         .table_stride = WIDTH};
}

static void expect_near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%.9g, wanted %.9g within %.3g", got, want, tolerance);
}

static void expect_attention(const fig_latent_world *w, const fig_latent_way *of) {
    query list[TOKENS];
    const int32_t count = list_queries(of, list);
    for (int32_t i = 0; i < count * HEADS; i++) {
        const query *one = &list[i / HEADS];
        const int32_t head = i % HEADS,
                      length = fig_latent_call_lengths[one->row] - one->count + one->number + 1;
        const double sink = (double)w->sinks[head];
        const int64_t at = (int64_t)one->token * HEADS + head;
        truth_latent_result want;
        if (fig_latent_call_lengths[one->row] == 0) {
            assert_true(w->lse[at] == -INFINITY && w->out[at * DIM] == 0);
            continue;
        }
        truth_latent(&(truth_latent_args){.q = {w->q, FIG_BF16, HEADS * KEY, KEY},
                                          .cache = cache_of(w, of),
                                          .row = one->token,
                                          .sequence = one->row,
                                          .length = length,
                                          .q_head = head,
                                          .window = 30,
                                          .sm_scale = 0.0625,
                                          .sink = &sink},
                     &want);
        expect_near((double)w->lse[at], want.lse, 1e-3);
        for (int32_t n = 0; n < DIM; n++)
            expect_near(truth_load(w->out, FIG_BF16, at * DIM + n), want.out[n],
                        truth_ulp(FIG_BF16, want.magnitude[n]));
    }
}

/* Rotates pairs of a vector's values under RoPE by a position. */
static void turn(double *x, int32_t position) {
    for (int32_t i = 0; i < TURN / 2; i++) {
        const double angle = position * pow(10000, -2.0 * i / TURN);
        const double a = x[i], b = x[i + TURN / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + TURN / 2] = a * sin(angle) + b * cos(angle);
    }
}

/* Appends the new tokens, normalised and rotated, to the reference's cache, and rotates its q. */
static void expect_appended(const fig_latent_world *w, const fig_latent_way *of) {
    const truth_cache cache = cache_of(w, of);
    query list[TOKENS];
    const int32_t count = list_queries(of, list);
    for (int32_t i = 0; i < count; i++) {
        const int32_t place = fig_latent_call_lengths[list[i].row] - list[i].count + list[i].number;
        const int32_t position = of->placed ? w->positions[i] : place;
        double due[KEY], got[KEY], square = 0;
        if (fig_latent_call_lengths[list[i].row] == 0) continue;
        truth_load_row(w->latent, FIG_BF16, (int64_t)i * KEY, KEY, due);
        for (int32_t n = 0; n < DIM; n++)
            square += due[n] * due[n];
        for (int32_t n = 0; n < DIM && of->norm; n++)
            due[n] *= truth_load(w->norm, FIG_BF16, n) / sqrt(square / DIM + 1e-5);
        turn(due + DIM, position);
        truth_latent_token(&cache, truth_cache_offset(&cache, list[i].row, place), got);
        for (int32_t n = 0; n < KEY; n++)
            expect_near(got[n], due[n],
                        (of->codes && n < DIM ? 0.07 : 0.008) * fabs(due[n]) + 0.01);
        truth_load_row(w->q_given, FIG_BF16, (int64_t)i * HEADS * KEY + KEY, KEY, due);
        truth_load_row(w->q, FIG_BF16, (int64_t)i * HEADS * KEY + KEY, KEY, got);
        turn(due + DIM, position);
        for (int32_t n = 0; n < KEY; n++)
            expect_near(got[n], due[n], n < DIM ? 0 : 0.008 * fabs(due[n]) + 0.01);
    }
}

/* ---- Tests */

static void attention_equals_float64(void **state) {
    (void)state;
    for (int n = 0; n < 8 * FIG_LATENT_KINDS; n++) {
        const fig_latent_way of = {"cpu", (fig_latent_rows)(n / 8), .codes = n & 1,
                                   .dense = n >> 1 & 1, .plan = n >> 2 & 1};
        fig_latent_world *w = fig_latent_call_make(&of);
        if (of.plan) plan(w, &of);
        run(w, &of);
        expect_attention(w, &of);
        free(w);
    }
}

static void decode_appends_and_equals_float64(void **state) {
    (void)state;
    for (int n = 0; n < 32 * FIG_LATENT_KINDS; n++) {
        const fig_latent_way of = {.platform = "cpu",
                                   .kind = (fig_latent_rows)(n / 32),
                                   .codes = n & 1,
                                   .dense = n >> 1 & 1,
                                   .plan = n >> 2 & 1,
                                   .norm = n >> 3 & 1,
                                   .placed = n >> 4 & 1,
                                   .decode = 1};
        fig_latent_world *w = fig_latent_call_make(&of);
        if (of.plan) plan(w, &of);
        run(w, &of);
        expect_appended(w, &of);
        expect_attention(w, &of);
        free(w);
    }
}

/* A call has one launch for RoPE, norm and append, and one for attention. A call that makes its own
 * plan has a third launch. */
static void on_a_gpu_a_call_is_a_few_launches(void **state) {
    (void)state;
    for (int n = 0; n < 2 * FIG_LATENT_KINDS; n++) {
        fig_latent_way of = {.platform = "CUDA", .kind = (fig_latent_rows)(n / 2), .codes = n % 2};
        fig_latent_world *w = fig_latent_call_make(&of);
        assert_int_equal(plan(w, &of), 1);
        assert_int_equal(run(w, &of), 2);
        of.decode = 1;
        assert_int_equal(run(w, &of), 3);
        of.plan = 1;
        assert_int_equal(run(w, &of), 2);
        of.decode = 0;
        assert_int_equal(run(w, &of), 1);
        free(w);
    }
}

static void without_lengths_each_row_has_all_tokens_of_its_cache(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        const fig_latent_way of = {.platform = "cpu", .kind = FIG_LATENT_SINGLE, .dense = dense};
        fig_latent_world *mine = fig_latent_call_make(&of), *theirs = fig_latent_call_make(&of);
        fig_xla_host host;
        fig_latent_call_describe(&host, &of, mine);
        host.args[2].dims[0] = 0;
        end(&host);
        for (int32_t row = 0; row < ROWS; row++)
            theirs->lengths[row] = ROOM;
        run(theirs, &of);
        for (int32_t i = 0; i < ROWS * HEADS * DIM; i++)
            expect_near(truth_load(mine->out, FIG_BF16, i), truth_load(theirs->out, FIG_BF16, i),
                        0.02);
        free(mine), free(theirs);
    }
}

static void expect_refusal(fig_xla_host *host, const char *words) {
    fig_xla_host_call(host);
    if (host->code == 0 || strstr(host->message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, host->code == 0 ? "" : host->message);
}

/* A change of one number of a sound call. */
typedef struct mistake {
    int result, index, dim;
    int64_t extent;
    const char *words;
} mistake;

static void expect_mistakes(const fig_latent_way *of, const mistake *list, size_t count) {
    fig_latent_world *w = fig_latent_call_make(of);
    for (size_t i = 0; i < count; i++) {
        fig_xla_host host;
        fig_latent_call_describe(&host, of, w);
        fig_xla_host_array *array = &(list[i].result ? host.rets : host.args)[list[i].index];
        if (list[i].dim < 0) {
            array->buffer.type = (int)list[i].extent;
        } else if (list[i].dim == 9) {
            array->buffer.rank = list[i].extent;
        } else {
            array->dims[list[i].dim] = list[i].extent;
        }
        expect_refusal(&host, list[i].words);
    }
    free(w);
}
enum { TYPE = -1, RANK = 9 };

static void mistakes_in_attention_are_reported_by_field_name(void **state) {
    (void)state;
    static const mistake single[] = {
        {0, 0, RANK, 2, "q is [3, 8], it must have 3 dims"},
        {0, 0, TYPE, FIG_XLA_S32, "q is int32, it must be float32, float16 or bfloat16"},
        {0, 0, 2, 512, "q is [3, 8, 512], its dim 2 must be 576"},
        {0, 0, 1, 12, "q has 12 heads, it must be a multiple of 8, limit 128"},
        {0, 0, 1, 136, "q has 136 heads"},
        {0, 0, TYPE, FIG_XLA_F16, "out is bfloat16, it must be float16"},
        {0, 1, RANK, 2, "cache is [9, 16], it must have 3 dims"},
        {0, 1, 2, 656, "cache is [9, 16, 656], its dim 2 must be 576"},
        {0, 1, TYPE, FIG_XLA_F16, "cache is float16, it must have the type of q, or uint8"},
        {0, 1, TYPE, FIG_XLA_E4M3FN, "cache is float8_e4m3fn, it must have the type of q"},
        {0, 1, TYPE, FIG_XLA_U8, "cache is [9, 16, 576], its dim 2 must be 656"},
        {0, 2, 0, 2, "lengths is [2], its dim 0 must be 3"},
        {0, 2, TYPE, FIG_XLA_S64, "lengths is int64, it must be int32"},
        {0, 3, 0, 2, "page_table is [2, 3], its dim 0 must be at least 3"},
        {0, 3, TYPE, FIG_XLA_F32, "page_table is float32, it must be int32"},
        {0, 6, 0, 4, "sinks is [4], its dim 0 must be 8"},
        {1, 0, 2, 576, "out is [3, 8, 576], its dim 2 must be 512"},
        {1, 0, 1, 16, "out is [3, 16, 512], its dim 1 must be 8"},
        {1, 0, RANK, 2, "out is [3, 8], it must have 3 dims"},
        {1, 2, 1, 16, "lse is [3, 16], its dim 1 must be 8"},
    };
    static const mistake equal[] = {{0, 0, 1, 9, "out is [3, 2, 8, 512], its dim 1 must be 9"}};
    static const mistake packed[] = {
        {0, 7, 0, 3, "query_start_loc is [3], its dim 0 must be 4"},
        {0, 7, TYPE, FIG_XLA_S64, "query_start_loc is int64, it must be int32"},
    };
    static const mistake dense[] = {
        {0, 1, 0, 2, "cache is [2, 48, 576], its dim 0 must be at least 3"}};
    expect_mistakes(&(fig_latent_way){.platform = "cpu", .kind = FIG_LATENT_SINGLE}, single, 20);
    expect_mistakes(&(fig_latent_way){.platform = "cpu", .kind = FIG_LATENT_EQUAL}, equal, 1);
    expect_mistakes(&(fig_latent_way){.platform = "cpu", .kind = FIG_LATENT_PACKED}, packed, 2);
    expect_mistakes(&(fig_latent_way){.platform = "cpu", .dense = 1}, dense, 1);
}

static void mistakes_in_decode_are_reported_by_field_name(void **state) {
    (void)state;
    static const mistake single[] = {
        {0, 1, RANK, 1, "latent is [3], it must have 2 dims"},
        {0, 1, 0, 2, "latent is [2, 576], its dim 0 must be 3"},
        {0, 1, 1, 512, "latent is [3, 512], its dim 1 must be 576"},
        {0, 1, TYPE, FIG_XLA_F16, "latent is float16, it must be bfloat16"},
        {0, 3, 0, 0, "lengths are not given"},
        {0, 8, 0, 576, "norm is [576], its dim 0 must be 512"},
        {0, 8, TYPE, FIG_XLA_F32, "norm is float32, it must be bfloat16"},
        {0, 8, 0, 0, "norm_epsilon is 1e-05, but norm is not given"},
        {0, 9, 0, 2, "positions is [2], its dim 0 must be 3"},
        {1, 1, 1, 16, "q_out"},
        {1, 2, 0, 8, "cache_out"},
    };
    static const mistake equal[] = {{0, 1, 1, 1, "latent is [3, 1, 576], its dim 1 must be 2"},
                                    {0, 9, 0, 3, "positions is [3], its dim 0 must be 6"}};
    expect_mistakes(&(fig_latent_way){.platform = "cpu", .decode = 1, .norm = 1, .placed = 1},
                    single, 11);
    expect_mistakes(
        &(fig_latent_way){
            .platform = "cpu", .kind = FIG_LATENT_EQUAL, .decode = 1, .norm = 1, .placed = 1},
        equal, 2);
}

static void impossible_numbers_are_refused(void **state) {
    (void)state;
    fig_latent_way of = {.platform = "cpu", .decode = 1, .norm = 1};
    fig_latent_world *w = fig_latent_call_make(&of);
    fig_xla_host host;
    const int64_t table[] = {100, 32};
    fig_latent_call_describe(&host, &of, w);
    host.attributes[0].real = 0;
    expect_refusal(&host, "sm_scale is 0, it must be above 0");
    host.attribute_count = 0;
    expect_refusal(&host, "sm_scale");
    fig_latent_call_describe(&host, &of, w);
    host.attributes[2].real = -1;
    expect_refusal(&host, "norm_epsilon is -1, it must be above 0");
    fig_latent_call_describe(&host, &of, w);
    fig_xla_host_integer(&host, "rotary_dim", 32);
    expect_refusal(&host, "rotary_dim is 32, it must be 64");
    fig_latent_call_describe(&host, &of, w);
    fig_xla_host_real(&host, "rope_theta", -1);
    expect_refusal(&host, "theta");
    of.placed = 1;
    fig_latent_call_describe(&host, &of, w);
    host.args[10].buffer.rank = 2;
    memcpy(host.args[10].dims, table, sizeof table);
    host.args[10].buffer.data = w->scratch;
    expect_refusal(&host, "cos_sin is [100, 32], its dim 1 must be 64");
    of = (fig_latent_way){.platform = "cpu", .plan = 1};
    fig_latent_call_describe_plan(&host, &of, w);
    host.attributes[host.attribute_count - 1].integer = 64;
    expect_refusal(&host, "latent_dim is 64, it must be 0 or 512");
    fig_latent_call_describe_plan(&host, &of, w);
    host.attributes[3].integer = 2;
    expect_refusal(&host, "kv_heads is 2, it must be 1");
    fig_latent_call_describe_plan(&host, &of, w);
    host.attributes[2].integer = 4;
    expect_refusal(&host, "q_heads is 4, it must be a multiple of 8");
    free(w);
}

/* Codes beside a float32 q are refused, because they would lose most of q's precision. */
static void codes_beside_an_f32_query_are_refused(void **state) {
    (void)state;
    const fig_latent_way of = {.platform = "cpu", .codes = 1};
    fig_latent_world *w = fig_latent_call_make(&of);
    fig_xla_host host;
    fig_latent_call_describe(&host, &of, w);
    host.args[0].buffer.type = host.rets[0].buffer.type = FIG_XLA_F32;
    expect_refusal(&host, "cache is uint8, but q is float32");
    free(w);
}

/* ---- TVM's functions */

typedef struct tvm_call {
    fig_tvm_value values[32];
    fig_dl_tensor tensors[32];
    int64_t dims[32][4];
    int32_t count;
} tvm_call;

static void put(tvm_call *p, void *data, uint8_t code, uint8_t bits, const int64_t dims[4]) {
    const int32_t at = p->count++;
    int32_t rank = 0;
    for (; rank < 4 && dims[rank] > 0; rank++)
        p->dims[at][rank] = dims[rank];
    p->tensors[at] = (fig_dl_tensor){.data = data,
                                     .device = FIG_DL_CPU,
                                     .rank = rank,
                                     .code = code,
                                     .bits = bits,
                                     .lanes = 1,
                                     .dims = p->dims[at]};
    p->values[at] = (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = &p->tensors[at]};
}
#define PUT(p, data, code, bits, ...) put(p, data, code, bits, (int64_t[4]){__VA_ARGS__})
#define HALF(p, data, ...) PUT(p, data, FIG_DL_BFLOAT, 16, __VA_ARGS__)

static void put_integers(tvm_call *p, int32_t count, const int64_t *values) {
    for (int32_t i = 0; i < count; i++)
        p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = values[i]};
}

static void put_real(tvm_call *p, double value) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = value};
}

static void put_absent(tvm_call *p) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_NONE};
}

static void build(tvm_call *call, fig_latent_world *w, const fig_latent_way *of) {
    const int64_t tokens = of->kind == FIG_LATENT_PACKED ? TOKENS : ROWS;
    const int64_t pages = of->dense ? ROWS : PAGES, page = of->dense ? ROOM : PAGE;
    tvm_call p = {.count = 0};
    HALF(&p, w->q, tokens, HEADS, KEY);
    if (of->decode) HALF(&p, w->latent, tokens, KEY);
    if (of->codes) PUT(&p, w->cache, FIG_DL_UINT, 8, pages, page, TRUTH_LATENT_CODES);
    if (!of->codes) HALF(&p, w->cache, pages, page, KEY);
    PUT(&p, w->lengths, FIG_DL_INT, 32, ROWS);
    if (of->dense) put_absent(&p);
    if (!of->dense) PUT(&p, w->table, FIG_DL_INT, 32, ROWS, WIDTH);
    put_absent(&p);
    PUT(&p, w->sinks, FIG_DL_FLOAT, 32, HEADS);
    if (of->decode) HALF(&p, w->norm, DIM);
    HALF(&p, w->out, tokens, HEADS, DIM);
    PUT(&p, w->scratch, FIG_DL_UINT, 8, sizeof w->scratch);
    PUT(&p, w->lse, FIG_DL_FLOAT, 32, tokens, HEADS);
    if (of->decode) {
        put_integers(&p, 2, (const int64_t[]){TURN, 0});
        put_real(&p, 1), put_real(&p, 10000);
        put_real(&p, 0), put_real(&p, 0), put_real(&p, 0);
        put_integers(&p, 1, (const int64_t[]){0});
        put_real(&p, 1e-5);
    }
    put_integers(&p, 1, (const int64_t[]){29});
    put_real(&p, 0.0625);
    put_integers(&p, 1, (const int64_t[]){0});
    if (of->decode) put_absent(&p), put_absent(&p);
    if (of->kind == FIG_LATENT_PACKED) {
        PUT(&p, w->starts, FIG_DL_INT, 32, ROWS + 1);
        put_integers(&p, 1, (const int64_t[]){MOST});
    }
    *call = p;
    for (int32_t i = 0; i < p.count; i++) {
        call->tensors[i].dims = call->dims[i];
        if (p.values[i].kind == FIG_TVM_TENSOR_POINTER)
            call->values[i].as.pointer = &call->tensors[i];
    }
}

static fig_status call_by_name(const tvm_call *p, const fig_latent_way *of) {
    return fig_ffi_run(FIG_OPTIONS(fig_ffi_call,
                                   .function = of->decode ? "latent_decode" : "latent_attention",
                                   .arguments = p->values, .argument_count = p->count));
}

static void run_by_name(fig_latent_world *w, const fig_latent_way *of) {
    tvm_call p;
    build(&p, w, of);
    if (call_by_name(&p, of) != FIG_OK) fail_msg("%s", fig_ffi_message());
}

static void tvm_functions_leave_the_same_bits(void **state) {
    (void)state;
    for (int n = 0; n < 4; n++) {
        const fig_latent_way of = {.platform = "cpu",
                                   .kind = FIG_LATENT_PACKED,
                                   .codes = n & 1,
                                   .decode = n >> 1,
                                   .norm = n >> 1};
        fig_latent_world *mine = fig_latent_call_make(&of), *theirs = fig_latent_call_make(&of);
        run_by_name(mine, &of);
        run(theirs, &of);
        expect_attention(mine, &of);
        assert_memory_equal(mine->q, theirs->q, sizeof mine->q);
        assert_memory_equal(mine->cache, theirs->cache, sizeof mine->cache);
        free(mine), free(theirs);
    }
}

/* Doubles the distances between tokens of q, latent and out, and gives each token of the cache
 * room for as many values as one of codes has bytes. */
static void run_apart(fig_latent_world *w, const fig_latent_way *of) {
    const int64_t wide = TRUTH_LATENT_CODES, page = of->dense ? ROOM : PAGE;
    int64_t strides[4][3] = {
        {2 * HEADS * KEY, KEY, 1}, {2 * KEY, 1}, {page * wide, wide, 1}, {2 * HEADS * DIM, DIM, 1}};
    tvm_call p;
    build(&p, w, of);
    p.tensors[0].strides = strides[0];
    p.tensors[1].strides = strides[1];
    p.tensors[2].strides = strides[2];
    p.tensors[8].strides = strides[3];
    if (call_by_name(&p, of) != FIG_OK) fail_msg("%s", fig_ffi_message());
}

/* Copies the arrays of a world to the places that run_apart() gives them, or back. */
static void spread(fig_latent_world *near, fig_latent_world *far, int is_back) {
    for (int32_t t = 0; t < PAGES * PAGE; t++) {
        uint8_t *a = near->cache + t * KEY * 2, *b = far->cache + t * TRUTH_LATENT_CODES * 2;
        memcpy(is_back ? a : b, is_back ? b : a, KEY * 2);
    }
    for (int32_t t = 0; t < ROWS; t++) {
        uint16_t *q = far->q + 2 * t * HEADS * KEY, *out = near->out + t * HEADS * DIM;
        if (!is_back) memcpy(q, near->q + t * HEADS * KEY, HEADS * KEY * 2);
        if (is_back) memcpy(near->q + t * HEADS * KEY, q, HEADS * KEY * 2);
        if (is_back) memcpy(out, far->out + 2 * t * HEADS * DIM, HEADS * DIM * 2);
        if (!is_back) memcpy(far->latent + 2 * t * KEY, near->latent + t * KEY, KEY * 2);
    }
}

static void tokens_may_lie_apart(void **state) {
    (void)state;
    for (int dense = 0; dense < 2; dense++) {
        const fig_latent_way of = {.platform = "cpu", .decode = 1, .norm = 1, .dense = dense};
        fig_latent_world *mine = fig_latent_call_make(&of), *theirs = fig_latent_call_make(&of);
        fig_latent_world *far = fig_latent_call_make(&of);
        spread(mine, far, 0);
        run_apart(far, &of);
        spread(mine, far, 1);
        run_by_name(theirs, &of);
        assert_memory_equal(mine->q, theirs->q, ROWS * HEADS * KEY * 2);
        assert_memory_equal(mine->out, theirs->out, ROWS * HEADS * DIM * 2);
        assert_memory_equal(mine->cache, theirs->cache, sizeof(uint16_t) * PAGES * PAGE * KEY);
        free(mine), free(theirs), free(far);
    }
}

static void values_of_a_token_must_lie_side_by_side(void **state) {
    (void)state;
    static const struct {
        int32_t index;
        const char *words;
    } wrong[] = {{0, "q: the elements of its last dim"},
                 {1, "latent: the elements of its last dim"},
                 {2, "cache: the elements of its last dim"},
                 {7, "norm has gaps"},
                 {8, "out: the elements of its last dim"}};
    const fig_latent_way of = {.platform = "cpu", .decode = 1, .norm = 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fig_latent_world *w = fig_latent_call_make(&of);
        int64_t strides[3] = {2 * HEADS * KEY, 2 * KEY, 2}, twice[2] = {2 * KEY, 2}, two[] = {2};
        int64_t *const of_rank[] = {two, twice, strides};
        tvm_call p;
        build(&p, w, &of);
        p.tensors[wrong[i].index].strides = of_rank[p.tensors[wrong[i].index].rank - 1];
        assert_int_equal(call_by_name(&p, &of), FIG_INVALID);
        assert_non_null(strstr(fig_ffi_message(), wrong[i].words));
        free(w);
    }
}

static void a_scale_that_is_0_as_a_float_is_refused(void **state) {
    (void)state;
    const fig_latent_way of = {.platform = "cpu"};
    fig_latent_world *w = fig_latent_call_make(&of);
    tvm_call p;
    build(&p, w, &of);
    p.values[10].as.real = 1e-60;
    assert_int_equal(call_by_name(&p, &of), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "sm_scale is 1e-60, it must be above 0"));
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_equals_float64),
        cmocka_unit_test(decode_appends_and_equals_float64),
        cmocka_unit_test(on_a_gpu_a_call_is_a_few_launches),
        cmocka_unit_test(without_lengths_each_row_has_all_tokens_of_its_cache),
        cmocka_unit_test(mistakes_in_attention_are_reported_by_field_name),
        cmocka_unit_test(mistakes_in_decode_are_reported_by_field_name),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(codes_beside_an_f32_query_are_refused),
        cmocka_unit_test(tvm_functions_leave_the_same_bits),
        cmocka_unit_test(tokens_may_lie_apart),
        cmocka_unit_test(values_of_a_token_must_lie_side_by_side),
        cmocka_unit_test(a_scale_that_is_0_as_a_float_is_refused),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
