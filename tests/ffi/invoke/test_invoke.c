/* test_invoke.c: tests calls for a GPU through XLA's CUDA handlers, on the fake driver.
 *
 * The registry keeps its runners for the life of the process, so all cases use one fake driver. */
#include "ffi/invoke/invoke.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ffi/registry.h"
#include "tests/support/driver/fake_cuda.h"
#include "tests/support/fault.h"
#include "tests/support/ffi/xla_host.h"

enum { ROWS = 3, HEADS = 4, DIM = 64, CAP = 40 };

static fig_fake_cuda *driver;

static int install(void **state) {
    (void)state;
    driver = fig_fake_cuda_install();
    fig_fake_cuda_push(&fig_fake_cuda_primary); /* XLA makes a context current before it calls */
    return 0;
}

/* The f16 arrays of attention over a dense cache. */
static uint16_t q[ROWS * HEADS * DIM], out[ROWS * HEADS * DIM];
static uint16_t k_cache[ROWS * CAP * DIM], v_cache[ROWS * CAP * DIM];
static int32_t lengths[ROWS];
static _Alignas(64) uint8_t scratch[1 << 18];

static fig_ffi_counts counts(void) {
    fig_ffi_counts now = {.size = sizeof now};
    assert_int_equal(fig_ffi_read_counts(&now), FIG_OK);
    return now;
}

static void attention_call(fig_xla_host *host, fig_cu_stream stream) {
    const int64_t rows[] = {ROWS, HEADS, DIM}, cache[] = {ROWS, CAP, 1, DIM};
    const int64_t count = ROWS, bytes = sizeof scratch;
    for (int i = 0; i < ROWS * HEADS * DIM; i++)
        q[i] = (uint16_t)(0x3000 + i % 64);
    for (int i = 0; i < ROWS * CAP * DIM; i++)
        k_cache[i] = v_cache[i] = (uint16_t)(0x3000 + i % 1024);
    fig_xla_host_init(host, fig_xla_host_find("figraph.attention", "CUDA"));
    host->stream = stream;
    fig_xla_host_arg(host, FIG_XLA_F16, q, 3, rows);
    fig_xla_host_arg(host, FIG_XLA_F16, k_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_F16, v_cache, 4, cache);
    fig_xla_host_arg(host, FIG_XLA_S32, lengths, 1, &count);
    fig_xla_host_ret(host, FIG_XLA_F16, out, 3, rows);
    fig_xla_host_ret(host, FIG_XLA_U8, scratch, 1, &bytes);
}

static void silu_call(fig_xla_host *host, fig_cu_stream stream, int64_t width) {
    fig_xla_host_init(host, fig_xla_host_find("figraph.silu_and_mul", "CUDA"));
    host->stream = stream;
    fig_xla_host_arg(host, FIG_XLA_F16, k_cache, FIG_XLA_HOST_DIMS(1, 2 * width));
    fig_xla_host_ret(host, FIG_XLA_F16, out, FIG_XLA_HOST_DIMS(1, width));
}

static void call_soundly(fig_xla_host *host) {
    fig_xla_host_call(host);
    if (host->code != 0) fail_msg("%d: %s", host->code, host->message);
}

static fig_cu_stream open_stream(void) {
    return fig_fake_cuda_stream_create(&fig_fake_cuda_primary);
}

/* After the stage initialize, XLA:GPU calls execute on a capturing stream, and so captures its
 * launches. */
static void initialized_calls_are_captured_as_launches_alone(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    attention_call(&host, stream);
    host.stage = FIG_XLA_INITIALIZE;
    call_soundly(&host);
    assert_int_equal(driver->stream_launches, 0);
    const fig_ffi_counts before = counts();
    const int64_t held = driver->held;
    host.stage = FIG_XLA_EXECUTE;
    assert_true(fig_fake_cuda_capture(stream));
    call_soundly(&host);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    assert_int_equal(driver->unsafe, 0);
    assert_int_equal(counts().captured, before.captured + 1);
    assert_int_equal(counts().eager, before.eager);
    assert_int_equal(counts().missed, before.missed);

    /* Three driver calls (context push, context pop, and the query whether the stream captures) and
     * two launches (planner, attention). Encoding a tensor map counts as a call, but does not use
     * the GPU. */
    const int64_t calls = driver->calls, maps = driver->maps;
    call_soundly(&host);
    assert_int_equal(driver->calls - calls, 3 + 2 + driver->maps - maps);
    assert_int_equal(counts().eager, before.eager + 1);

    /* With new lengths in the same array, a replay of the graph gives the same results as an eager
     * call. */
    for (int32_t length = CAP + 1; length >= 0; length -= 3) {
        uint16_t replayed[ROWS * HEADS * DIM];
        for (int r = 0; r < ROWS; r++)
            lengths[r] = r == 0 ? length : CAP - length / 2;
        memset(scratch, 0xff, sizeof scratch);
        memset(out, 0x11, sizeof out);
        fig_fake_cuda_launch(exec, stream);
        memcpy(replayed, out, sizeof out);
        memset(out, 0x22, sizeof out);
        call_soundly(&host);
        assert_memory_equal(replayed, out, sizeof out);
        assert_int_equal(out[0] == 0, length == 0 || length > CAP);
    }
    fig_fake_cuda_drop(exec);
    assert_int_equal(driver->held, held);
    fig_fake_cuda_stream_destroy(stream);
}

/* jax-tvm-ffi registers only the stage execute. */
static void a_first_call_may_be_captured(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    const fig_ffi_counts before = counts();
    silu_call(&host, stream, 24);
    assert_true(fig_fake_cuda_capture(stream));
    call_soundly(&host);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    assert_int_equal(driver->unsafe, 0);
    assert_int_equal(counts().missed, before.missed + 1);
    assert_int_equal(counts().captured, before.captured + 1);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
}

static void a_refusal_leaves_the_capture_whole(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    assert_true(fig_fake_cuda_capture(stream));
    attention_call(&host, stream);
    host.rets[1].dims[0] = 8;
    fig_xla_host_call(&host);
    assert_int_equal(host.code, FIG_XLA_INVALID_ARGUMENT);
    host.rets[1].dims[0] = sizeof scratch;
    call_soundly(&host);
    fig_cu_exec exec = fig_fake_cuda_end(stream);
    assert_non_null(exec);
    fig_fake_cuda_drop(exec);
    fig_fake_cuda_stream_destroy(stream);
}

static void a_driver_that_fails_becomes_an_xla_error(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    attention_call(&host, stream);
    call_soundly(&host);
    driver->fail_name = "cuLaunchKernelEx";
    driver->fail_with = FIG_CU_OUT_OF_MEMORY;
    fig_xla_host_call(&host);
    driver->fail_name = NULL;
    assert_int_not_equal(host.code, 0);
    assert_non_null(strstr(host.message, "cuLaunchKernelEx"));
    call_soundly(&host);
    fig_fake_cuda_stream_destroy(stream);
}

static void kernels_that_cannot_be_loaded_are_asked_for_again(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    silu_call(&host, stream, 40);
    driver->fail_name = "cuCtxPushCurrent";
    driver->fail_with = FIG_CU_OUT_OF_MEMORY;
    const fig_ffi_counts before = counts();
    fig_xla_host_call(&host);
    assert_int_not_equal(host.code, 0);
    assert_int_equal(counts().eager, before.eager + (counts().missed != before.missed));
    driver->fail_name = NULL;
    call_soundly(&host);
    fig_fake_cuda_stream_destroy(stream);
}

static void without_an_ordinal_the_current_gpu_is_meant(void **state) {
    (void)state;
    fig_xla_host host;
    fig_cu_stream stream = open_stream();
    silu_call(&host, stream, 24);
    host.ordinal = -1; /* API 0.1 passes no ordinal */
    fig_fake_cuda_pop();
    fig_xla_host_call(&host);
    assert_int_equal(host.code, FIG_XLA_FAILED_PRECONDITION);
    assert_non_null(strstr(host.message, "names no GPU, and none is current"));
    fig_fake_cuda_push(&fig_fake_cuda_primary);
    call_soundly(&host);
    assert_ptr_equal(driver->current, &fig_fake_cuda_primary);
    fig_fake_cuda_stream_destroy(stream);
}

/* Building XLA's frame allocates memory, so this test calls the library directly. */
static void a_hit_allocates_nothing(void **state) {
    (void)state;
    fig_array in = {.name = "in",
                    .data = k_cache,
                    .dtype = FIG_F16,
                    .bits = 16,
                    .device = FIG_DEVICE_HOST,
                    .rank = 2,
                    .dims = {2, 32}};
    fig_array to = in;
    to.name = "out";
    to.data = out;
    to.dims[1] = 16;
    fig_array_pack(&in);
    fig_array_pack(&to);
    for (int i = 0; i < 3; i++) {
        fig_invoke invoke = {0};
        fig_fault_arm(0);
        const fig_status described = fig_invoke_gated_describe(&invoke, FIG_SILU, &in, &to);
        const fig_status ran = fig_invoke_run(&invoke);
        const int64_t asked = fig_fault_disarm();
        assert_int_equal(described, FIG_OK);
        assert_int_equal(ran, FIG_OK);
        assert_int_equal(asked > 0, i == 0);
    }
}

/* The split of attention depends on all of its dims, so a plan for other dims has another size or
 * contains another split. */
static void a_plan_is_of_the_heads_that_read_it(void **state) {
    (void)state;
    enum { LONG = 512, COUNT = 4 };
    static const int64_t lengths_dim = COUNT, none[] = {0, 0}, all = sizeof scratch;
    static uint16_t many[COUNT * 16 * DIM], own[COUNT * 16 * DIM], shared[COUNT * 16 * DIM];
    static uint16_t long_k[COUNT * LONG * 4 * DIM], long_v[COUNT * LONG * 4 * DIM];
    static int32_t long_lengths[COUNT] = {512, 1, 300, 77};
    static _Alignas(64) uint8_t plan[4096];
    const int64_t q_dims[] = {COUNT, 16, DIM}, cache_dims[] = {COUNT, LONG, 4, DIM};
    fig_ffi_scratch needs = {.size = sizeof needs};
    fig_xla_host host;
    const fig_ffi_attention shape = {.size = sizeof shape,
                                     .dtype = FIG_F16,
                                     .q_heads = 16,
                                     .kv_heads = 4,
                                     .head_dim = DIM,
                                     .rows = COUNT,
                                     .kv_length = LONG};
    assert_int_equal(fig_ffi_read_scratch(&shape, &needs), FIG_OK);
    fig_cu_stream stream = open_stream();
    const int64_t plan_bytes = (int64_t)needs.plan_bytes, bytes = (int64_t)needs.best_bytes;
    assert_true(needs.plan_bytes <= sizeof plan && needs.best_bytes <= sizeof scratch);
    for (int i = 0; i < COUNT * 16 * DIM; i++)
        many[i] = (uint16_t)(0x3000 + i % 64);
    for (int i = 0; i < COUNT * LONG * 4 * DIM; i++)
        long_k[i] = long_v[i] = (uint16_t)(0x3000 + i % 1024);
    fig_xla_host_init(&host, fig_xla_host_find("figraph.plan", "CUDA"));
    host.stream = stream;
    fig_xla_host_arg(&host, FIG_XLA_S32, long_lengths, 1, &lengths_dim);
    fig_xla_host_ret(&host, FIG_XLA_U8, plan, 1, &plan_bytes);
    fig_xla_host_ret(&host, FIG_XLA_U8, scratch, 1, &bytes);
    fig_xla_host_integer(&host, "dtype", FIG_F16);
    fig_xla_host_integer(&host, "q_heads", 16);
    fig_xla_host_integer(&host, "kv_heads", 4);
    fig_xla_host_integer(&host, "head_dim", DIM);
    fig_xla_host_integer(&host, "kv_length", LONG);
    call_soundly(&host);
    for (int given = 1; given >= 0; given--) {
        fig_xla_host_init(&host, fig_xla_host_find("figraph.attention", "CUDA"));
        host.stream = stream;
        fig_xla_host_arg(&host, FIG_XLA_F16, many, 3, q_dims);
        fig_xla_host_arg(&host, FIG_XLA_F16, long_k, 4, cache_dims);
        fig_xla_host_arg(&host, FIG_XLA_F16, long_v, 4, cache_dims);
        fig_xla_host_arg(&host, FIG_XLA_S32, long_lengths, 1, &lengths_dim);
        fig_xla_host_arg(&host, FIG_XLA_S32, NULL, 2, none);
        if (given) fig_xla_host_arg(&host, FIG_XLA_U8, plan, 1, &plan_bytes);
        if (given) fig_xla_host_arg(&host, FIG_XLA_U8, scratch, 1, &bytes);
        fig_xla_host_ret(&host, FIG_XLA_F16, given ? shared : own, 3, q_dims);
        fig_xla_host_ret(&host, FIG_XLA_U8, scratch, 1, given ? &bytes : &all);
        const int64_t launches = driver->stream_launches;
        call_soundly(&host);
        assert_int_equal(driver->stream_launches - launches, given ? 1 : 2);
    }
    assert_memory_equal(own, shared, sizeof own);
    fig_fake_cuda_stream_destroy(stream);
}

/* The host knows the row's length, so the call needs no plan and no cleared scratch. */
static void attention_over_few_tokens_is_one_launch(void **state) {
    (void)state;
    static const int64_t one[] = {HEADS, DIM}, cache[] = {CAP, 1, DIM}, bytes = sizeof scratch;
    static uint16_t planned[HEADS * DIM];
    /* slopes of zero change no result, but attention with ALiBi always takes more than one
     * launch */
    static const float slopes[HEADS];
    fig_xla_host host;
    for (int whole = 1; whole >= 0; whole--) {
        fig_xla_host_init(&host, fig_xla_host_find("figraph.attention", "CUDA"));
        host.stream = open_stream();
        fig_xla_host_arg(&host, FIG_XLA_F16, q, 2, one);
        fig_xla_host_arg(&host, FIG_XLA_F16, k_cache, 3, cache);
        fig_xla_host_arg(&host, FIG_XLA_F16, v_cache, 3, cache);
        for (int i = 0; i < 4 && !whole; i++)
            fig_xla_host_arg(&host, FIG_XLA_S32, NULL, FIG_XLA_HOST_DIMS(0));
        if (!whole)
            fig_xla_host_arg(&host, FIG_XLA_F32, (void *)(uintptr_t)slopes,
                             FIG_XLA_HOST_DIMS(HEADS));
        fig_xla_host_ret(&host, FIG_XLA_F16, whole ? out : planned, 2, one);
        fig_xla_host_ret(&host, FIG_XLA_U8, scratch, 1, &bytes);
        const int64_t launches = driver->stream_launches;
        call_soundly(&host);
        assert_int_equal(driver->stream_launches - launches, whole ? 1 : 2);
        fig_fake_cuda_stream_destroy(host.stream);
    }
    assert_string_equal(driver->ran[FIG_OP_WHOLE_ATTENTION], "fig_kernel_whole_attention_f16_64");
    for (int i = 0; i < HEADS * DIM; i++) /* equal up to rounding */
        assert_true(abs(out[i] - planned[i]) <= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initialized_calls_are_captured_as_launches_alone),
        cmocka_unit_test(a_first_call_may_be_captured),
        cmocka_unit_test(a_refusal_leaves_the_capture_whole),
        cmocka_unit_test(a_driver_that_fails_becomes_an_xla_error),
        cmocka_unit_test(kernels_that_cannot_be_loaded_are_asked_for_again),
        cmocka_unit_test(without_an_ordinal_the_current_gpu_is_meant),
        cmocka_unit_test(a_hit_allocates_nothing),
        cmocka_unit_test(a_plan_is_of_the_heads_that_read_it),
        cmocka_unit_test(attention_over_few_tokens_is_one_launch),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
