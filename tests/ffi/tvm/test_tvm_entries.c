/* test_tvm_entries.c: calls every function that the library exports for TVM FFI, as Python does
 * with arguments in order, and also by name.
 *
 * tests/jax/tvm_functions.py compares the results in Python. Here every function is called, under
 * the sanitizers, with each of its argument orders, and its results are compared bit for bit with
 * the reference kernels'. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/tvm/tvm.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/fake_cuda.h"

#define ENTRIES(X)                                                                                 \
    X(silu_and_mul, 3)                                                                             \
    X(gelu_and_mul, 3)                                                                             \
    X(gelu_tanh_and_mul, 3)                                                                        \
    X(apply_rope, 10)                                                                              \
    X(apply_rope_jax, 10)                                                                          \
    X(apply_rope_pos_ids, 9)                                                                       \
    X(apply_llama31_rope, 13)                                                                      \
    X(apply_llama31_rope_pos_ids, 12)                                                              \
    X(apply_rope_pos_ids_cos_sin_cache, 7)                                                         \
    X(run, 13)                                                                                     \
    X(run_jax, 13)                                                                                 \
    X(batch_decode, 13)                                                                            \
    X(batch_decode_jax, 13)                                                                        \
    X(batch_attention, 14 to 15)                                                                   \
    X(batch_attention_jax, 14 to 15)                                                               \
    X(rms_norm, 6)                                                                                 \
    X(rope, 13 to 14)                                                                              \
    X(append_kv, 11 to 13)                                                                         \
    X(plan, 11 to 17)                                                                              \
    X(attention, 17 to 29)                                                                         \
    X(decode_attention, 27 to 41)                                                                  \
    X(latent_attention, 11 to 15)                                                                  \
    X(latent_decode, 22 to 28)
#define DECLARE(name, count) FIG_API fig_tvm_function __tvm_ffi_##name;
ENTRIES(DECLARE)
#undef DECLARE

static char raised_kind[32], raised[640];
FIG_API void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
    snprintf(raised_kind, sizeof raised_kind, "%s", kind);
    snprintf(raised, sizeof raised, "%s", message);
}

/* ---- Arguments in their order ---------------------------------------------------------------- */

enum { ARGUMENT_LIMIT = 32 };

typedef struct packed {
    fig_tvm_value values[ARGUMENT_LIMIT];
    fig_dl_tensor tensors[ARGUMENT_LIMIT];
    int64_t dims[ARGUMENT_LIMIT][4];
    int32_t count;
} packed;

static void put(packed *p, void *data, uint8_t code, uint8_t bits, const int64_t dims[4]) {
    const int32_t at = p->count++;
    int32_t rank = 0;
    for (; rank < 4 && dims[rank] >= 0; rank++)
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
#define F32(p, data, ...) put(p, data, FIG_DL_FLOAT, 32, (int64_t[4]){__VA_ARGS__})
#define I32(p, data, ...) put(p, data, FIG_DL_INT, 32, (int64_t[4]){__VA_ARGS__})
#define U8(p, data, ...) put(p, data, FIG_DL_UINT, 8, (int64_t[4]){__VA_ARGS__})

static void put_integer(packed *p, int64_t value) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = value};
}

static void put_real(packed *p, double value) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = value};
}

static void put_none(packed *p) {
    p->values[p->count++] = (fig_tvm_value){.kind = FIG_TVM_NONE};
}

static void call(fig_tvm_function *function, packed *p) {
    fig_tvm_value result = {0};
    raised[0] = '\0';
    if (function(NULL, p->values, p->count, &result) != 0) fail_msg("%s: %s", raised_kind, raised);
    assert_int_equal(result.kind, FIG_TVM_NONE);
}

/* Calls a function by its name, as a caller without TVM FFI does. */
static void run(const char *function, const packed *p) {
    const fig_ffi_call of = {.size = sizeof of,
                             .function = function,
                             .arguments = p->values,
                             .argument_count = p->count};
    if (fig_ffi_run(&of) != FIG_OK) fail_msg("%s: %s", function, fig_ffi_message());
}

/* ---- Arrays ---------------------------------------------------------------------------------- */

enum { ROWS = 3, Q_HEADS = 4, KV_HEADS = 2, DIM = 64, TOKENS = 20, PAGE = 4, WIDTH = 5 };
static float q[ROWS * Q_HEADS * DIM], k[ROWS * KV_HEADS * DIM], v[ROWS * KV_HEADS * DIM];
static float cache[2][ROWS * WIDTH * PAGE * KV_HEADS * DIM];
static float a[2][ROWS * Q_HEADS * DIM], b[2][ROWS * Q_HEADS * DIM], lse[2][ROWS * Q_HEADS];
static float alibi[Q_HEADS];
static int32_t indptr[2] = {0, ROWS}, offsets[1] = {7}, positions[ROWS] = {7, 8, 9};
static int32_t table[ROWS * WIDTH], lengths[ROWS] = {20, 1, 21};
static _Alignas(64) uint8_t tmp[1 << 18], planned[1 << 16];

static int fill(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = (float)(i % 37) / 37 - 0.5f;
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        k[i] = (float)(i % 29) / 29 - 0.5f, v[i] = (float)(i % 31) / 31 - 0.5f;
    for (size_t i = 0; i < sizeof cache[0] / sizeof cache[0][0]; i++) {
        cache[0][i] = (float)(i % 101) / 101 - 0.5f;
        cache[1][i] = (float)(i % 97) / 97 - 0.5f;
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        table[i] = (i * 7) % (ROWS * WIDTH);
    memset(tmp, 0xff, sizeof tmp);
    return 0;
}

static void put_heads(packed *p) {
    F32(p, q, ROWS, Q_HEADS, DIM, -1);
    F32(p, k, ROWS, KV_HEADS, DIM, -1);
}

static void put_turned(packed *p, float (*out)[ROWS * Q_HEADS * DIM]) {
    F32(p, out[0], ROWS, Q_HEADS, DIM, -1);
    F32(p, out[1], ROWS, KV_HEADS, DIM, -1);
}

static void put_segments(packed *p) {
    I32(p, indptr, 2, -1);
    I32(p, offsets, 1, -1);
}

static void put_angles(packed *p) {
    put_integer(p, DIM);
    put_integer(p, 0);
    put_real(p, 1);
    put_integer(p, 10000); /* an integer is accepted for a float */
}

static void put_caches(packed *p) {
    F32(p, q, Q_HEADS, DIM, -1);
    F32(p, cache[0], TOKENS, KV_HEADS, DIM, -1);
    F32(p, cache[1], TOKENS, KV_HEADS, DIM, -1);
}

static void put_pages(packed *p) {
    F32(p, q, ROWS, Q_HEADS, DIM, -1);
    F32(p, cache[0], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    F32(p, cache[1], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    I32(p, table, ROWS, WIDTH, -1);
    I32(p, lengths, ROWS, -1);
}

/* Adds the arguments for one token of each row, and for the place of that token in the cache. */
static void put_token(packed *p, float *turned_k) {
    F32(p, turned_k, ROWS, KV_HEADS, DIM, -1);
    F32(p, v, ROWS, KV_HEADS, DIM, -1);
    F32(p, cache[0], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    F32(p, cache[1], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    I32(p, lengths, ROWS, -1);
    I32(p, table, ROWS, WIDTH, -1);
}

static void put_bytes(packed *p, uint8_t *bytes, size_t count) {
    U8(p, bytes, (int64_t)count, -1);
}

/* the operands alibi, sinks, k_scale and v_scale */
static void put_nones(packed *p, int count) {
    while (count-- > 0)
        put_none(p);
}

static void put_all_angles(packed *p) {
    put_angles(p);
    put_real(p, 0), put_real(p, 0), put_real(p, 0), put_integer(p, 0);
}

static void put_layout(packed *p) {
    put_integer(p, 0);
    put_integer(p, -1);
}

static void put_scales(packed *p) {
    put_real(p, 0);
    put_real(p, 0.125);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void each_entry_counts_its_arguments(void **state) {
    (void)state;
#define EXPECT(name, count)                                                                        \
    do {                                                                                           \
        fig_tvm_value result = {0};                                                                \
        assert_int_equal(__tvm_ffi_##name(NULL, NULL, 0, &result), -1);                            \
        assert_string_equal(raised_kind, "TypeError");                                             \
        assert_memory_equal(raised, #name ": 0 arguments, it takes " #count ": ",                  \
                            sizeof #name ": 0 arguments, it takes " #count ": " - 1);              \
    } while (0);
    ENTRIES(EXPECT)
#undef EXPECT
}

static void activations_run(void **state) {
    static fig_tvm_function *const functions[] = {__tvm_ffi_silu_and_mul, __tvm_ffi_gelu_and_mul,
                                                  __tvm_ffi_gelu_tanh_and_mul};
    (void)state;
    for (int i = 0; i < 3; i++) {
        packed p = {.count = 0};
        F32(&p, a[0], 6, 20, -1);
        F32(&p, q, 6, 40, -1);
        put_integer(&p, 1);
        a[0][119] = 7;
        call(functions[i], &p);
        assert_true(a[0][119] != 7);
    }
}

static void rope_is_the_same_in_every_order(void **state) {
    (void)state;
    packed p = {.count = 0}, reference = {.count = 0}, at = {.count = 0};
    put_heads(&p), put_turned(&p, a), put_segments(&p), put_angles(&p);
    call(__tvm_ffi_apply_rope, &p);
    put_turned(&reference, b), put_heads(&reference), put_segments(&reference),
        put_angles(&reference);
    call(__tvm_ffi_apply_rope_jax, &reference);
    assert_memory_equal(a, b, sizeof a);
    memset(b[0], 0, sizeof b[0]);
    put_heads(&at), put_turned(&at, b), I32(&at, positions, ROWS, -1), put_angles(&at);
    call(__tvm_ffi_apply_rope_pos_ids, &at);
    assert_memory_equal(a, b, sizeof a);
}

/* A server's batch has a different number of segments at each step. */
static void segments_in_any_number_share_what_was_made_once(void **state) {
    static int32_t ends[4][ROWS + 1] = {{0, 3}, {0, 1, 3}, {0, 1, 2, 3}, {1, 2}};
    static int32_t starts[4][ROWS] = {{7}, {7, 8}, {7, 8, 9}, {8}};
    fig_ffi_counts before = {.size = sizeof before}, after = {.size = sizeof after};
    (void)state;
    fig_ffi_read_counts(&before);
    for (int i = 0; i < 4; i++) {
        const int64_t count = i < 3 ? i + 1 : 1;
        packed p = {.count = 0};
        memset(b, 0, sizeof b);
        put_heads(&p), put_turned(&p, b), I32(&p, ends[i], count + 1, -1);
        I32(&p, starts[i], count, -1), put_angles(&p);
        call(__tvm_ffi_apply_rope, &p);
        /* a holds the right result, from rope_is_the_same_in_every_order */
        if (i < 3) assert_memory_equal(b, a, sizeof a);
    }
    assert_memory_equal(b[0] + Q_HEADS * DIM, a[0] + Q_HEADS * DIM, Q_HEADS * DIM * sizeof(float));
    for (int i = 0; i < Q_HEADS * DIM; i++) /* rows outside every segment are not written */
        assert_true(b[0][i] == 0 && b[0][2 * Q_HEADS * DIM + i] == 0);
    fig_ffi_read_counts(&after);
    assert_int_equal(after.missed, before.missed);
}

static void llama31_rope_is_the_same_in_both_packed_forms(void **state) {
    (void)state;
    packed p = {.count = 0}, at = {.count = 0};
    packed *const both[] = {&p, &at};
    put_heads(&p), put_turned(&p, a), put_segments(&p);
    put_heads(&at), put_turned(&at, b), I32(&at, positions, ROWS, -1);
    for (int i = 0; i < 2; i++) {
        put_integer(both[i], DIM), put_integer(both[i], 1), put_real(both[i], 8);
        put_real(both[i], 5e5), put_real(both[i], 1), put_real(both[i], 4);
        put_real(both[i], 8192);
    }
    call(__tvm_ffi_apply_llama31_rope, &p);
    call(__tvm_ffi_apply_llama31_rope_pos_ids, &at);
    assert_memory_equal(a, b, sizeof a);
}

static void angles_of_a_cache_are_used(void **state) {
    (void)state;
    float angles[10 * DIM]; /* with cosines of 1 and sines of 0, nothing rotates */
    packed p = {.count = 0};
    for (int i = 0; i < 10 * DIM; i++)
        angles[i] = i % DIM < DIM / 2;
    put_heads(&p), put_turned(&p, a), F32(&p, angles, 10, DIM, -1);
    I32(&p, positions, ROWS, -1), put_integer(&p, 0);
    call(__tvm_ffi_apply_rope_pos_ids_cos_sin_cache, &p);
    assert_memory_equal(a[0], q, sizeof q);
}

static void run_and_its_twin_are_the_same(void **state) {
    (void)state;
    packed p = {.count = 0}, reference = {.count = 0};
    put_caches(&p), U8(&p, tmp, sizeof tmp, -1), F32(&p, a[0], Q_HEADS, DIM, -1);
    F32(&p, lse[0], Q_HEADS, -1), put_layout(&p), F32(&p, alibi, Q_HEADS, -1);
    put_scales(&p), put_real(&p, 1), put_real(&p, 1e4);
    call(__tvm_ffi_run, &p);
    F32(&reference, b[0], Q_HEADS, DIM, -1), U8(&reference, tmp, sizeof tmp, -1);
    F32(&reference, lse[1], Q_HEADS, -1), put_caches(&reference), F32(&reference, NULL, 0, -1);
    put_layout(&reference), put_scales(&reference), put_none(&reference),
        put_none(&reference); /* these two operands are not read */
    call(__tvm_ffi_run_jax, &reference);
    assert_memory_equal(a[0], b[0], Q_HEADS * DIM * sizeof(float)); /* ALiBi's slopes are 0 */
    assert_memory_equal(lse[0], lse[1], Q_HEADS * sizeof(float));
}

static void a_batch_and_its_twin_are_the_same(void **state) {
    (void)state;
    packed p = {.count = 0}, reference = {.count = 0};
    put_pages(&p), U8(&p, tmp, sizeof tmp, -1), F32(&p, a[0], ROWS, Q_HEADS, DIM, -1);
    F32(&p, lse[0], ROWS, Q_HEADS, -1), put_layout(&p), put_none(&p), put_scales(&p);
    call(__tvm_ffi_batch_decode, &p);
    F32(&reference, b[0], ROWS, Q_HEADS, DIM, -1), U8(&reference, tmp, sizeof tmp, -1);
    F32(&reference, lse[1], ROWS, Q_HEADS, -1), put_pages(&reference), F32(&reference, NULL, 0, -1);
    put_layout(&reference), put_scales(&reference);
    call(__tvm_ffi_batch_decode_jax, &reference);
    assert_memory_equal(a[0], b[0], sizeof a[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    for (int i = 2 * Q_HEADS * DIM; i < ROWS * Q_HEADS * DIM; i++)
        assert_true(a[0][i] == 0); /* this row has 21 tokens, but the cache holds 20 */
}

/* ---- Functions that match XLA's targets ------------------------------------------------------ */

static void rope_is_that_of_its_positions(void **state) {
    (void)state;
    packed p = {.count = 0}, at = {.count = 0};
    put_heads(&p), I32(&p, positions, ROWS, -1), put_turned(&p, a), put_all_angles(&p);
    run("rope", &p);
    put_heads(&at), put_turned(&at, b), I32(&at, positions, ROWS, -1), put_angles(&at);
    run("apply_rope_pos_ids", &at);
    assert_memory_equal(a, b, sizeof a);
}

static void put_rows(packed *p, float *rows) {
    F32(p, rows, ROWS, DIM, -1);
}

static void rms_norm_is_of_the_sum_where_there_is_a_residual(void **state) {
    (void)state;
    float sum[ROWS * DIM], weight[DIM];
    memcpy(sum, k, sizeof sum);
    for (int i = 0; i < DIM; i++)
        weight[i] = (float)i / DIM;
    packed p = {.count = 0}, alone = {.count = 0};
    put_rows(&p, q), put_rows(&p, sum), F32(&p, weight, DIM, -1), put_rows(&p, a[0]);
    put_real(&p, 1e-5), put_real(&p, 1);
    run("rms_norm", &p);
    for (int i = 0; i < ROWS * DIM; i++)
        assert_true(sum[i] == q[i] + k[i]);
    put_rows(&alone, sum), put_none(&alone), F32(&alone, weight, DIM, -1), put_rows(&alone, b[0]);
    put_real(&alone, 1e-5), put_real(&alone, 1);
    run("rms_norm", &alone);
    assert_memory_equal(a[0], b[0], sizeof sum);
    for (int row = 0; row < ROWS; row++) {
        double squares = 0;
        for (int i = 0; i < DIM; i++)
            squares += (double)sum[row * DIM + i] * (double)sum[row * DIM + i];
        const double at = (double)sum[row * DIM + 9] / sqrt(squares / DIM + 1e-5);
        assert_true(fabs((double)a[0][row * DIM + 9] - at * (1 + 9.0 / DIM)) < 1e-5);
    }
}

static void rms_norm_refuses_what_does_not_fit(void **state) {
    (void)state;
    static const char *const sentences[] = {
        "out is [2, 64], it must be [3, 64] like input",
        "maybe_residual is [3, 32], it must be [3, 64] like input",
        "weight is [32], its dim 0 must be 64",
        "epsilon is 0, it must be above 0",
    };
    for (int i = 0; i < 4; i++) {
        packed p = {.count = 0};
        put_rows(&p, q), F32(&p, k, ROWS, i == 1 ? DIM / 2 : DIM, -1);
        F32(&p, v, i == 2 ? DIM / 2 : DIM, -1), F32(&p, a[0], i == 0 ? 2 : ROWS, DIM, -1);
        put_real(&p, i == 3 ? 0 : 1e-5), put_real(&p, 0);
        const fig_ffi_call of = {.size = sizeof of,
                                 .function = "rms_norm",
                                 .arguments = p.values,
                                 .argument_count = p.count};
        assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
        assert_string_equal(fig_ffi_message(), sentences[i]);
    }
}

static void put_plan(packed *p, int64_t dtype, int64_t kv_dtype, int64_t window_left) {
    p->count = 0;
    I32(p, lengths, ROWS, -1);
    put_bytes(p, planned, sizeof planned), put_bytes(p, tmp, sizeof tmp);
    put_integer(p, dtype), put_integer(p, kv_dtype);
    put_integer(p, Q_HEADS), put_integer(p, KV_HEADS), put_integer(p, DIM);
    put_integer(p, PAGE), put_integer(p, WIDTH * PAGE), put_integer(p, window_left);
}

static void make_plan(int64_t window_left) {
    packed p;
    put_plan(&p, FIG_F32, FIG_F32, window_left);
    run("plan", &p);
}

static void a_plan_takes_no_dtype_with_more_bits(void **state) {
    (void)state;
    static const int64_t wrong[] = {0, -1, FIG_I32, INT64_C(1) << 32 | FIG_F32, INT64_MIN};
    for (size_t i = 0; i < 2 * (sizeof wrong / sizeof wrong[0]); i++) {
        const int64_t dtype = i % 2 == 0 ? wrong[i / 2] : FIG_F32;
        const int64_t kv_dtype = i % 2 == 1 ? wrong[i / 2] : FIG_F32;
        packed p;
        fig_ffi_call of = {.size = sizeof of, .function = "plan", .arguments = p.values};
        put_plan(&p, dtype, kv_dtype, -1);
        of.argument_count = p.count;
        assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
        assert_memory_equal(fig_ffi_message(), i % 2 == 0 ? "dtype_code is" : "kv_dtype_code", 13);
    }
}

static void attend(const float *of, float *out, float *sums, int64_t window_left) {
    packed p = {.count = 0};
    F32(&p, (void *)(uintptr_t)of, ROWS, Q_HEADS, DIM, -1);
    F32(&p, cache[0], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    F32(&p, cache[1], ROWS * WIDTH, PAGE, KV_HEADS, DIM);
    I32(&p, lengths, ROWS, -1), I32(&p, table, ROWS, WIDTH, -1);
    put_bytes(&p, planned, sizeof planned), put_nones(&p, 4);
    F32(&p, out, ROWS, Q_HEADS, DIM, -1), put_bytes(&p, tmp, sizeof tmp);
    F32(&p, sums, ROWS, Q_HEADS, -1);
    put_integer(&p, 0), put_integer(&p, window_left), put_scales(&p);
    run("attention", &p);
}

static void attention_under_a_plan_equals_batch_decode(void **state) {
    (void)state;
    packed p = {.count = 0};
    make_plan(3);
    attend(q, b[0], lse[1], 3);
    put_pages(&p), U8(&p, tmp, sizeof tmp, -1), F32(&p, a[0], ROWS, Q_HEADS, DIM, -1);
    F32(&p, lse[0], ROWS, Q_HEADS, -1), put_integer(&p, 0), put_integer(&p, 3);
    put_none(&p), put_scales(&p);
    run("batch_decode", &p);
    assert_memory_equal(a[0], b[0], sizeof a[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
}

static void a_window_that_no_sequence_fills_hides_nothing(void **state) {
    (void)state;
    static const int64_t windows[] = {1 << 20, 1 << 30, INT32_MAX, INT64_MAX};
    make_plan(-1);
    attend(q, a[0], lse[0], -1);
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        make_plan(windows[i]);
        attend(q, b[0], lse[1], windows[i]);
        assert_memory_equal(a[0], b[0], sizeof a[0]);
        assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    }
}

/* Calls RoPE, append and attention one after the other, on the original caches. */
static void decode_in_parts(float *turned_q, float *turned_k, float *out) {
    packed turn = {.count = 0}, append = {.count = 0};
    const int32_t at[ROWS] = {19, 0, 20};
    put_heads(&turn), I32(&turn, (void *)(uintptr_t)at, ROWS, -1);
    F32(&turn, turned_q, ROWS, Q_HEADS, DIM, -1), F32(&turn, turned_k, ROWS, KV_HEADS, DIM, -1);
    put_all_angles(&turn);
    run("rope", &turn);
    put_token(&append, turned_k), put_bytes(&append, planned, sizeof planned);
    put_nones(&append, 2), put_none(&append), put_integer(&append, 0);
    run("append_kv", &append);
    attend(turned_q, out, lse[0], -1);
}

static void decode_attention_equals_its_parts(void **state) {
    (void)state;
    static float was[2][ROWS * WIDTH * PAGE * KV_HEADS * DIM], grown[2][sizeof was[0] / 4];
    packed p = {.count = 0};
    memcpy(was, cache, sizeof was);
    make_plan(-1);
    decode_in_parts(b[0], b[1], a[0]);
    memcpy(grown, cache, sizeof grown);
    memcpy(cache, was, sizeof was);
    F32(&p, q, ROWS, Q_HEADS, DIM, -1), put_token(&p, k);
    put_bytes(&p, planned, sizeof planned), put_nones(&p, 4);
    F32(&p, a[1], ROWS, Q_HEADS, DIM, -1), put_bytes(&p, tmp, sizeof tmp);
    F32(&p, lse[1], ROWS, Q_HEADS, -1), put_all_angles(&p), put_layout(&p), put_scales(&p);
    run("decode_attention", &p);
    assert_memory_equal(a[0], a[1], sizeof a[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    assert_memory_equal(cache, grown, sizeof cache);
    assert_true(memcmp(was, grown, sizeof was) != 0);
    memcpy(cache, was, sizeof was);
}

/* q, k and v lie side by side in each row, as one matrix product writes them. */
static void rows_of_heads_may_lie_apart(void **state) {
    (void)state;
    enum { WIDE = (Q_HEADS + 2 * KV_HEADS) * DIM };
    static float was[2][ROWS * WIDTH * PAGE * KV_HEADS * DIM], rows[ROWS][WIDE];
    static int64_t strides[3] = {WIDE, DIM, 1};
    memcpy(was, cache, sizeof was);
    for (int row = 0; row < ROWS; row++) {
        memcpy(rows[row], q + row * Q_HEADS * DIM, Q_HEADS * DIM * sizeof *q);
        memcpy(rows[row] + Q_HEADS * DIM, k + row * KV_HEADS * DIM, KV_HEADS * DIM * sizeof *k);
        memcpy(rows[row] + (Q_HEADS + KV_HEADS) * DIM, v + row * KV_HEADS * DIM,
               KV_HEADS * DIM * sizeof *v);
    }
    for (int apart = 0; apart < 2; apart++) {
        packed p = {.count = 0};
        F32(&p, q, ROWS, Q_HEADS, DIM, -1), put_token(&p, k), put_none(&p), put_nones(&p, 4);
        F32(&p, a[apart], ROWS, Q_HEADS, DIM, -1), put_bytes(&p, tmp, sizeof tmp);
        put_none(&p), put_all_angles(&p), put_layout(&p), put_scales(&p);
        for (int i = 0; i < 3 && apart; i++) {
            p.tensors[i].data = rows[0] + (i == 0 ? 0 : Q_HEADS + (i - 1) * KV_HEADS) * DIM;
            p.tensors[i].strides = strides;
        }
        run("decode_attention", &p);
        memcpy(cache, was, sizeof was);
    }
    assert_memory_equal(a[0], a[1], sizeof a[0]);
}

static void a_call_by_name_runs_on_its_stream(void **state) {
    (void)state;
    packed p = {.count = 0};
    fig_fake_cuda *driver = fig_fake_cuda_install();
    fig_cu_stream stream = fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
    F32(&p, a[0], 6, 20, -1), F32(&p, q, 6, 40, -1), put_integer(&p, 1);
    p.tensors[0].device = p.tensors[1].device = FIG_DL_CUDA;
    const fig_ffi_call of = {.size = sizeof of,
                             .function = "silu_and_mul",
                             .arguments = p.values,
                             .argument_count = p.count,
                             .stream = stream};
    /* loads the kernels, which is forbidden during a capture */
    assert_int_equal(fig_ffi_run(&of), FIG_OK);
    assert_true(fig_fake_cuda_capture(stream));
    assert_int_equal(fig_ffi_run(&of), FIG_OK);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    a[0][119] = 7;
    fig_fake_cuda_launch(exec, stream);
    assert_true(a[0][119] != 7);
    assert_int_equal(driver->unsafe, 0);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
    fig_fake_cuda_remove();
}

static void wrong_values_are_refused_by_name(void **state) {
    (void)state;
    packed p = {.count = 0};
    fig_ffi_call of = {.size = sizeof of, .function = "silu", .arguments = p.values};
    assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
    assert_string_equal(fig_ffi_message(), "there is no function \"silu\"");
    of.function = NULL;
    assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
    /* a mistake that raises TypeError in Python gives FIG_INVALID here */
    of.function = "silu_and_mul";
    assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
    of.size = 7;
    assert_int_equal(fig_ffi_run(&of), FIG_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_entry_counts_its_arguments),
        cmocka_unit_test(activations_run),
        cmocka_unit_test(rope_is_the_same_in_every_order),
        cmocka_unit_test(segments_in_any_number_share_what_was_made_once),
        cmocka_unit_test(llama31_rope_is_the_same_in_both_packed_forms),
        cmocka_unit_test(angles_of_a_cache_are_used),
        cmocka_unit_test(run_and_its_twin_are_the_same),
        cmocka_unit_test(a_batch_and_its_twin_are_the_same),
        cmocka_unit_test(rope_is_that_of_its_positions),
        cmocka_unit_test(rms_norm_is_of_the_sum_where_there_is_a_residual),
        cmocka_unit_test(rms_norm_refuses_what_does_not_fit),
        cmocka_unit_test(attention_under_a_plan_equals_batch_decode),
        cmocka_unit_test(a_window_that_no_sequence_fills_hides_nothing),
        cmocka_unit_test(decode_attention_equals_its_parts),
        cmocka_unit_test(rows_of_heads_may_lie_apart),
        cmocka_unit_test(a_call_by_name_runs_on_its_stream),
        cmocka_unit_test(a_plan_takes_no_dtype_with_more_bits),
        cmocka_unit_test(wrong_values_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
