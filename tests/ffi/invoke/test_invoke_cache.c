/* test_invoke_cache.c: tests the layouts of caches that callers have: K and V interleaved in one
 * array, tables wider than any sequence, and table rows with gaps between them. It also tests the
 * layouts of plans.
 *
 * The results are compared with those for arrays without gaps; other tests compare these with
 * float64. */
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS and MAP_NORESERVE */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "ffi/tvm/tvm.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 3, Q_HEADS = 4, KV_HEADS = 2, DIM = 64, PAGE = 4, WIDTH = 5 };
enum { PAGES = ROWS * WIDTH, TOKEN = KV_HEADS * DIM, PAGE_SIZE = PAGE * TOKEN };
enum { WIDE = 1 << 19 }; /* columns, enough for 2 M tokens */

typedef struct packed {
    fig_tvm_value values[32];
    fig_dl_tensor tensors[32];
    int64_t dims[32][4], strides[32][4];
    int32_t count;
} packed;

/* The lists of dims and strides end with -1; strides may be NULL. */
static void put(packed *p, void *data, fig_dl_tensor like, const int64_t *dims,
                const int64_t *strides) {
    const int32_t at = p->count++;
    int32_t rank = 0;
    for (; rank < 4 && dims[rank] >= 0; rank++)
        p->dims[at][rank] = dims[rank];
    if (strides != NULL) memcpy(p->strides[at], strides, (size_t)rank * sizeof *strides);
    like.data = data, like.rank = rank, like.dims = p->dims[at], like.device = FIG_DL_CPU;
    like.lanes = 1, like.strides = strides != NULL ? p->strides[at] : NULL;
    p->tensors[at] = like;
    p->values[at] = (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = &p->tensors[at]};
}
#define FLOATS ((fig_dl_tensor){.code = FIG_DL_FLOAT, .bits = 32})
#define INTEGERS ((fig_dl_tensor){.code = FIG_DL_INT, .bits = 32})
#define BYTES ((fig_dl_tensor){.code = FIG_DL_UINT, .bits = 8})
#define DIMS(...) ((const int64_t[]){__VA_ARGS__, -1})

static void put_integers(packed *p, int count, const int64_t *values) {
    for (int i = 0; i < count; i++)
        p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = values[i]};
}
static void put_nones(packed *p, int count) {
    for (int i = 0; i < count; i++)
        p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_NONE};
}
static fig_status call(const char *function, const packed *p) {
    const fig_ffi_call of = {.size = sizeof of,
                             .function = function,
                             .arguments = p->values,
                             .argument_count = p->count};
    return fig_ffi_run(&of);
}
static void run(const char *function, const packed *p) {
    if (call(function, p) != FIG_OK) fail_msg("%s: %s", function, fig_ffi_message());
}

/* ---- A step ---------------------------------------------------------------------------------- */

/* The caches of one step: K and V as separate arrays without gaps, or both in one array. */
typedef struct caches {
    float *memory; /* [2][PAGES][PAGE_SIZE], or [PAGES][2][PAGE_SIZE] */
    int is_one, is_hnd, is_dense;
} caches;

static float q[ROWS * Q_HEADS * DIM], k[ROWS * TOKEN], v[ROWS * TOKEN], out[ROWS * Q_HEADS * DIM];
static int32_t table[ROWS * WIDTH], lengths[ROWS] = {20, 1, 13};
static _Alignas(64) uint8_t scratch[1 << 18], planned[1 << 16];

static int fill(void **state) {
    (void)state;
    for (int i = 0; i < ROWS * Q_HEADS * DIM; i++)
        q[i] = (float)(i % 37) / 37 - 0.5f;
    for (int i = 0; i < ROWS * TOKEN; i++)
        k[i] = (float)(i % 29) / 29 - 0.5f, v[i] = (float)(i % 31) / 31 - 0.5f;
    for (int i = 0; i < ROWS * WIDTH; i++)
        table[i] = (i * 7) % (ROWS * WIDTH);
    return 0;
}

static size_t place_of(const caches *c, int half, int page) {
    return (size_t)(c->is_one ? 2 * page + half : half * PAGES + page) * PAGE_SIZE;
}

/* Fills both forms with the same numbers. A dense sequence is WIDTH pages long. */
static caches make_caches(int is_one, int is_hnd, int is_dense) {
    caches c = {calloc(2 * PAGES * PAGE_SIZE, sizeof(float)), is_one, is_hnd, is_dense};
    assert_non_null(c.memory);
    for (int half = 0; half < 2; half++)
        for (int page = 0; page < PAGES; page++)
            for (int i = 0; i < PAGE_SIZE; i++)
                c.memory[place_of(&c, half, page) + (size_t)i] =
                    (float)((page * PAGE_SIZE + i) % (101 - 4 * half)) / 101 - 0.5f;
    return c;
}

/* Dense sequences are interleaved too. */
static void put_caches(packed *p, const caches *c) {
    const int64_t tokens = c->is_dense ? WIDTH * PAGE : PAGE;
    const int64_t count = c->is_dense ? ROWS : PAGES, size = tokens * TOKEN;
    const int64_t *dims =
        c->is_hnd ? DIMS(count, KV_HEADS, tokens, DIM) : DIMS(count, tokens, KV_HEADS, DIM);
    const int64_t inner = c->is_hnd ? tokens * DIM : TOKEN;
    const int64_t strides[] = {2 * size, inner, DIM, 1};
    for (int half = 0; half < 2; half++) {
        float *at = c->memory + (c->is_one ? size : PAGES * PAGE_SIZE) * half;
        put(p, at, FLOATS, dims, c->is_one ? strides : NULL);
    }
}

static void put_table(packed *p, const caches *c) {
    if (c->is_dense)
        put_nones(p, 1);
    else
        put(p, table, INTEGERS, DIMS(ROWS, WIDTH), NULL);
}

static void append(const caches *c) {
    packed p = {.count = 0};
    put(&p, k, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put(&p, v, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put_caches(&p, c);
    put(&p, lengths, INTEGERS, DIMS(ROWS), NULL);
    put_table(&p, c), put_nones(&p, 3);
    put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL);
    put_integers(&p, 1, &(int64_t){c->is_hnd});
    run("append_kv", &p);
}

static void put_reals(packed *p, int count, const double *values) {
    for (int i = 0; i < count; i++)
        p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = values[i]};
}

static void decode(const caches *c) {
    packed p = {.count = 0};
    put(&p, q, FLOATS, DIMS(ROWS, Q_HEADS, DIM), NULL);
    put(&p, k, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put(&p, v, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put_caches(&p, c);
    put(&p, lengths, INTEGERS, DIMS(ROWS), NULL);
    put_table(&p, c), put_nones(&p, 5);
    put(&p, out, FLOATS, DIMS(ROWS, Q_HEADS, DIM), NULL);
    put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL), put_nones(&p, 1);
    put_integers(&p, 2, (const int64_t[]){DIM, 0});
    put_reals(&p, 5, (const double[]){1, 1e4, 0, 0, 0});
    put_integers(&p, 3, (const int64_t[]){0, c->is_hnd, -1});
    put_reals(&p, 2, (const double[]){0, 0.125});
    run("decode_attention", &p);
}

/* Computes attention over `width` columns of a table whose rows are `stride` apart. */
static fig_status attend(const caches *c, int32_t *pages, int64_t width, int64_t stride,
                         void *plan) {
    packed p = {.count = 0};
    put(&p, q, FLOATS, DIMS(ROWS, Q_HEADS, DIM), NULL);
    put_caches(&p, c);
    put(&p, lengths, INTEGERS, DIMS(ROWS), NULL);
    if (pages == NULL)
        put_table(&p, c);
    else
        put(&p, pages, INTEGERS, DIMS(ROWS, width), DIMS(stride, 1));
    if (plan == NULL)
        put_nones(&p, 1);
    else
        put(&p, plan, BYTES, DIMS(sizeof planned), NULL);
    put_nones(&p, 4);
    put(&p, out, FLOATS, DIMS(ROWS, Q_HEADS, DIM), NULL);
    put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL), put_nones(&p, 1);
    put_integers(&p, 2, (const int64_t[]){c->is_hnd, -1});
    put_reals(&p, 2, (const double[]){0, 0.125});
    return call("attention", &p);
}

/* If rows are cut elsewhere, the same numbers are added in another order. */
static void expect_close(fig_status status, const float right[ROWS * Q_HEADS * DIM]) {
    if (status != FIG_OK) fail_msg("%s", fig_ffi_message());
    for (int i = 0; i < ROWS * Q_HEADS * DIM; i++)
        if (!(fabsf(out[i] - right[i]) <= 1e-5f))
            fail_msg("%d: %g, not %g", i, (double)out[i], (double)right[i]);
    memset(out, 0xff, sizeof out);
}

static void expect_attended(fig_status status, const float right[ROWS * Q_HEADS * DIM]) {
    if (status != FIG_OK) fail_msg("%s", fig_ffi_message());
    assert_memory_equal(out, right, sizeof out);
    memset(out, 0xff, sizeof out);
}

/* ---- One array of both ----------------------------------------------------------------------- */

static void interleaved_caches_give_the_same_as_separate_ones(void **state) {
    (void)state;
    static float attended[sizeof out / sizeof *out], decoded[sizeof out / sizeof *out];
    for (int form = 0; form < 4; form++) {
        const caches two = make_caches(0, form & 1, form / 2),
                     one = make_caches(1, form & 1, form / 2);
        const size_t size = (size_t)PAGE_SIZE * (two.is_dense ? WIDTH : 1);
        if (two.is_dense) /* each half is a sequence */
            for (size_t i = 0; i < 2 * ROWS; i++)
                memcpy(one.memory + i * size, two.memory + (i % 2 * ROWS + i / 2) * size,
                       size * sizeof(float));
        append(&two), append(&one);
        if (attend(&two, NULL, 0, 0, NULL) != FIG_OK) fail_msg("%s", fig_ffi_message());
        memcpy(attended, out, sizeof out);
        expect_attended(attend(&one, NULL, 0, 0, NULL), attended);
        decode(&two);
        memcpy(decoded, out, sizeof out);
        fill(NULL); /* restores q and k, which the call rotated in place */
        decode(&one);
        fill(NULL);
        expect_attended(FIG_OK, decoded);
        for (size_t i = 0; i < 2 * PAGES * PAGE_SIZE / size; i++) {
            const size_t half = i % 2, at = i / 2;
            assert_memory_equal(one.memory + i * size,
                                two.memory + half * PAGES * PAGE_SIZE + at * size,
                                size * sizeof(float));
        }
        free(two.memory), free(one.memory);
    }
}

/* XLA's buffers have no strides, so both caches are passed as one buffer of five dims. */
static void attend_by_xla(const char *platform, const caches *c, void *stream) {
    fig_xla_host host;
    fig_xla_host_init(&host, fig_xla_host_find("figraph.attention", platform));
    host.stream = stream;
    fig_xla_host_arg(&host, FIG_XLA_F32, q, FIG_XLA_HOST_DIMS(ROWS, Q_HEADS, DIM));
    for (int half = 0; half < 2 && !c->is_one; half++)
        fig_xla_host_arg(&host, FIG_XLA_F32, c->memory + half * PAGES * PAGE_SIZE,
                         FIG_XLA_HOST_DIMS(PAGES, PAGE, KV_HEADS, DIM));
    if (c->is_one)
        fig_xla_host_arg(&host, FIG_XLA_F32, c->memory,
                         FIG_XLA_HOST_DIMS(PAGES, 2, PAGE, KV_HEADS, DIM));
    fig_xla_host_arg(&host, FIG_XLA_S32, lengths, FIG_XLA_HOST_DIMS(ROWS));
    fig_xla_host_arg(&host, FIG_XLA_S32, table, FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_ret(&host, FIG_XLA_F32, out, FIG_XLA_HOST_DIMS(ROWS, Q_HEADS, DIM));
    fig_xla_host_ret(&host, FIG_XLA_U8, scratch, FIG_XLA_HOST_DIMS(sizeof scratch));
    fig_xla_host_call(&host);
    if (host.code != 0) fail_msg("%s", host.message);
}

static void append_by_xla(const caches *c) {
    fig_xla_host host;
    fig_xla_host_init(&host, fig_xla_host_find("figraph.append_kv", "cpu"));
    fig_xla_host_arg(&host, FIG_XLA_F32, k, FIG_XLA_HOST_DIMS(ROWS, KV_HEADS, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, v, FIG_XLA_HOST_DIMS(ROWS, KV_HEADS, DIM));
    fig_xla_host_arg(&host, FIG_XLA_F32, c->memory,
                     FIG_XLA_HOST_DIMS(PAGES, 2, PAGE, KV_HEADS, DIM));
    fig_xla_host_arg(&host, FIG_XLA_S32, lengths, FIG_XLA_HOST_DIMS(ROWS));
    fig_xla_host_arg(&host, FIG_XLA_S32, table, FIG_XLA_HOST_DIMS(ROWS, WIDTH));
    fig_xla_host_ret(&host, FIG_XLA_F32, c->memory,
                     FIG_XLA_HOST_DIMS(PAGES, 2, PAGE, KV_HEADS, DIM));
    fig_xla_host_ret(&host, FIG_XLA_U8, scratch, FIG_XLA_HOST_DIMS(sizeof scratch));
    fig_xla_host_call(&host);
    if (host.code != 0) fail_msg("%s", host.message);
    host.rets[0].buffer.data = scratch;
    fig_xla_host_call(&host);
    assert_non_null(strstr(host.message, "kv_cache_out is not the memory of argument kv_cache"));
    host.args[2].dims[1] = 3;
    fig_xla_host_call(&host);
    assert_non_null(strstr(host.message, "kv_cache is [15, 3, 4, 2, 64], its dim 1 must be 2"));
}

static void xla_hands_both_caches_over_as_one_buffer(void **state) {
    (void)state;
    static float attended[sizeof out / sizeof *out];
    const caches two = make_caches(0, 0, 0), one = make_caches(1, 0, 0);
    append(&two), append_by_xla(&one);
    attend_by_xla("cpu", &two, NULL);
    memcpy(attended, out, sizeof out);
    attend_by_xla("cpu", &one, NULL);
    expect_attended(FIG_OK, attended);
    fig_fake_cuda *driver = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    attend_by_xla("CUDA", &two, stream);
    memcpy(attended, out, sizeof out);
    attend_by_xla("CUDA", &one, stream);
    expect_attended(FIG_OK, attended);
    assert_int_equal(driver->unsafe, 0);
    fig_fake_cuda_stream_destroy(stream);
    fig_fake_cuda_remove();
    free(two.memory), free(one.memory);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* vLLM's table is as wide as the longest possible sequence, and batches use slices of it. */
static void rows_of_a_table_may_lie_apart(void **state) {
    (void)state;
    static float right[sizeof out / sizeof *out];
    int32_t apart[ROWS][WIDTH + 9];
    const caches c = make_caches(0, 0, 0);
    if (attend(&c, NULL, 0, 0, NULL) != FIG_OK) fail_msg("%s", fig_ffi_message());
    memcpy(right, out, sizeof out);
    memset(apart, 0x7f, sizeof apart);
    for (int row = 0; row < ROWS; row++)
        memcpy(apart[row], table + row * WIDTH, WIDTH * sizeof *table);
    expect_attended(attend(&c, apart[0], WIDTH, WIDTH + 9, NULL), right);
    free(c.memory);
}

static void make_plan(int64_t kv_length, const int64_t *strides, fig_status expected) {
    packed p = {.count = 0};
    put(&p, lengths, INTEGERS, DIMS(ROWS), NULL);
    put(&p, planned, BYTES, DIMS(strides == NULL ? (int64_t)sizeof planned : 1 << 14), strides);
    put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL);
    put_integers(&p, 8,
                 (const int64_t[]){FIG_F32, FIG_F32, Q_HEADS, KV_HEADS, DIM, PAGE, kv_length, -1});
    const fig_status status = call("plan", &p);
    if (status != expected) fail_msg("%s", fig_ffi_message());
}

static void a_table_may_be_wider_than_any_sequence_is_long(void **state) {
    (void)state;
    static float right[sizeof out / sizeof *out];
    const caches c = make_caches(0, 0, 0);
    int32_t *wide = calloc(ROWS * WIDE, sizeof *wide);
    assert_non_null(wide);
    if (attend(&c, NULL, 0, 0, NULL) != FIG_OK) fail_msg("%s", fig_ffi_message());
    memcpy(right, out, sizeof out);
    for (int row = 0; row < ROWS; row++)
        memcpy(wide + row * WIDE, table + row * WIDTH, WIDTH * sizeof *table);
    expect_close(attend(&c, wide, WIDE, WIDE, NULL), right);
    make_plan((int64_t)WIDE * PAGE, NULL, FIG_OK);
    expect_close(attend(&c, wide, WIDE, WIDE, planned), right);
    /* A row that is longer than the plan's limit is idle, whatever the table's width. */
    const int32_t length = lengths[0];
    lengths[0] = (1 << 20) + 1;
    memset(right, 0, (size_t)Q_HEADS * DIM * sizeof *right);
    expect_close(attend(&c, wide, WIDE, WIDE, NULL), right);
    lengths[0] = length;
    fig_ffi_scratch most = {.size = sizeof most}, same = {.size = sizeof same};
    fig_ffi_attention a = {.size = sizeof a,
                           .dtype = FIG_F32,
                           .q_heads = Q_HEADS,
                           .kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .page_size = PAGE,
                           .rows = ROWS,
                           .kv_length = 1 << 20};
    assert_int_equal(fig_ffi_read_scratch(&a, &most), FIG_OK);
    a.kv_length = INT64_C(1) << 40;
    assert_int_equal(fig_ffi_read_scratch(&a, &same), FIG_OK);
    assert_memory_equal(&most, &same, sizeof most);
    free(wide), free(c.memory);
}

/* The second of two sequences begins behind all tokens of the first, even those past the limit. */
static void a_dense_cache_may_be_longer_than_any_sequence_is(void **state) {
    (void)state;
    enum { TOKENS = (1 << 20) + 3, SMALL = 4 };
    static float right[2 * Q_HEADS * DIM];
    const size_t row = (size_t)TOKENS * DIM;
    float *large = mmap(NULL, 4 * row * sizeof *large, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    float small[4][SMALL * DIM];
    assert_true(large != MAP_FAILED);
    for (size_t i = 0; i < 4; i++)
        for (size_t at = 0; at < SMALL * DIM; at++)
            small[i][at] = large[i * row + at] = (float)((at * 7 + i) % 31) / 31 - 0.5f;
    for (int is_large = 0; is_large < 2; is_large++) {
        const int64_t tokens = is_large ? TOKENS : SMALL;
        packed p = {.count = 0};
        put(&p, q, FLOATS, DIMS(2, Q_HEADS, DIM), NULL);
        for (size_t i = 0; i < 4; i += 2)
            put(&p, is_large ? large + i * row : small[i], FLOATS, DIMS(2, tokens, 1, DIM), NULL);
        put(&p, (int32_t[]){3, 4}, INTEGERS, DIMS(2), NULL), put_nones(&p, 6);
        put(&p, out, FLOATS, DIMS(2, Q_HEADS, DIM), NULL);
        put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL), put_nones(&p, 1);
        put_integers(&p, 2, (const int64_t[]){0, -1});
        put_reals(&p, 2, (const double[]){0, 0.125});
        run("attention", &p);
        if (!is_large) memcpy(right, out, sizeof right);
    }
    for (int i = 0; i < 2 * Q_HEADS * DIM; i++)
        assert_true(fabsf(out[i] - right[i]) <= 1e-5f);
    munmap(large, 4 * row * sizeof *large);
}

/* Without lengths every token of the cache counts, so cutting rows off at the limit would give
 * wrong results silently. */
static void tokens_without_lengths_are_held_to_the_limit(void **state) {
    (void)state;
    packed p = {.count = 0};
    put(&p, q, FLOATS, DIMS(1, Q_HEADS, DIM), NULL);
    for (int half = 0; half < 2; half++)
        put(&p, k, FLOATS, DIMS(1, (1 << 20) + 1, KV_HEADS, DIM), NULL);
    put_nones(&p, 7);
    put(&p, out, FLOATS, DIMS(1, Q_HEADS, DIM), NULL);
    put(&p, scratch, BYTES, DIMS(sizeof scratch), NULL), put_nones(&p, 1);
    put_integers(&p, 2, (const int64_t[]){0, -1});
    put_reals(&p, 2, (const double[]){0, 0.125});
    assert_int_equal(call("attention", &p), FIG_TOO_LARGE);
    assert_string_equal(fig_ffi_message(), "each sequence has 1048577 tokens, limit 1048576; "
                                           "lengths may say fewer");
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static void a_plan_with_gaps_is_refused(void **state) {
    (void)state;
    static const int64_t none[] = {0, -1}, two[] = {2, -1};
    const caches c = make_caches(0, 0, 0);
    make_plan(WIDTH * PAGE, NULL, FIG_OK);
    make_plan(WIDTH * PAGE, none, FIG_INVALID); /* a stride of 0, as tensor.expand makes it */
    assert_string_equal(fig_ffi_message(),
                        "plan has gaps or another order of dims, it must be row-major");
    make_plan(WIDTH * PAGE, two, FIG_INVALID);
    packed p = {.count = 0};
    put(&p, k, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put(&p, v, FLOATS, DIMS(ROWS, KV_HEADS, DIM), NULL);
    put_caches(&p, &c);
    put(&p, lengths, INTEGERS, DIMS(ROWS), NULL);
    put_table(&p, &c);
    put(&p, planned, BYTES, DIMS(1 << 14), two);
    put_nones(&p, 3), put_integers(&p, 1, &(int64_t){0});
    assert_int_equal(call("append_kv", &p), FIG_INVALID);
    free(c.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interleaved_caches_give_the_same_as_separate_ones),
        cmocka_unit_test(xla_hands_both_caches_over_as_one_buffer),
        cmocka_unit_test(rows_of_a_table_may_lie_apart),
        cmocka_unit_test(a_table_may_be_wider_than_any_sequence_is_long),
        cmocka_unit_test(a_dense_cache_may_be_longer_than_any_sequence_is),
        cmocka_unit_test(tokens_without_lengths_are_held_to_the_limit),
        cmocka_unit_test(a_plan_with_gaps_is_refused),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
