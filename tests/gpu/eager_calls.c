/* eager_calls.c: tests that memory does not grow while TVM FFI's functions are called with changing
 * addresses.
 *
 *     build/release/tests/gpu/eager_calls [CALLS]
 *
 * A million calls take half a minute; the default is 50 000. Only the first call of each kind makes
 * a runner. At the end the process must hold no more memory than after a tenth of the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ffi/tvm/tvm.h"
#include "include/figraph_ffi.h"
#include "tests/support/driver/gpu_caller.h"

extern fig_tvm_function __tvm_ffi_silu_and_mul, __tvm_ffi_run;

enum { WIDTH = 64, ROWS = 4, HEADS = 16, KV_HEADS = 4, DIM = 64, TOKENS = 512 };
enum { POOL = 64 << 20, PLACES = 997, STRIDE = 4096, SCRATCH = 1 << 20 };

static int64_t call_count = 50000;
typedef struct argument {
    fig_dl_tensor tensor;
    int64_t dims[3];
} argument;

static fig_tvm_value give(argument *a, void *data, int32_t rank, const int64_t dims[3]) {
    for (int32_t i = 0; i < rank; i++)
        a->dims[i] = dims[i];
    a->tensor = (fig_dl_tensor){.data = data,
                                .device = FIG_DL_CUDA,
                                .rank = rank,
                                .code = FIG_DL_FLOAT,
                                .bits = 16,
                                .lanes = 1,
                                .dims = a->dims};
    return (fig_tvm_value){.kind = FIG_TVM_TENSOR_POINTER, .as.pointer = &a->tensor};
}

static fig_tvm_value integer(int64_t value) {
    return (fig_tvm_value){.kind = FIG_TVM_INT, .as.integer = value};
}

static fig_tvm_value real(double value) {
    return (fig_tvm_value){.kind = FIG_TVM_FLOAT, .as.real = value};
}

static void silu(uint8_t *at) {
    argument a[2];
    fig_tvm_value result = {0};
    const fig_tvm_value values[] = {give(&a[0], at, 2, (int64_t[3]){ROWS, WIDTH}),
                                    give(&a[1], at + STRIDE / 2, 2, (int64_t[3]){ROWS, 2 * WIDTH}),
                                    integer(0)};
    assert_int_equal(__tvm_ffi_silu_and_mul(NULL, values, 3, &result), 0);
}

static void attend(uint8_t *at, uint8_t *cache, uint8_t *scratch, int64_t tokens) {
    argument a[5];
    fig_tvm_value result = {0};
    const fig_tvm_value none = {0};
    const int64_t bytes = SCRATCH / 2;
    const fig_tvm_value values[] = {
        give(&a[0], at, 2, (int64_t[3]){HEADS, DIM}),
        give(&a[1], cache, 3, (int64_t[3]){tokens, KV_HEADS, DIM}),
        give(&a[2], cache + POOL / 8, 3, (int64_t[3]){tokens, KV_HEADS, DIM}),
        give(&a[3], scratch, 1, (int64_t[3]){bytes}),
        give(&a[4], at + STRIDE / 2, 2, (int64_t[3]){HEADS, DIM}),
        none,
        integer(0),
        integer(-1),
        none,
        real(0),
        real(0.125),
        real(1),
        real(1e4)};
    assert_int_equal(__tvm_ffi_run(NULL, values, 13, &result), 0);
}

static int64_t resident_kib(void) {
    long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld", &pages, &resident), 2);
    fclose(file);
    return resident * 4;
}

static int64_t runners(void) {
    fig_ffi_counts counts = {.size = sizeof counts};
    assert_int_equal(fig_ffi_read_counts(&counts), FIG_OK);
    return counts.missed;
}

/* A runner's key contains lengths rounded up to powers of two, so there are few runners. */
static void nothing_grows_however_often_addresses_change(void **state) {
    (void)state;
    fig_cu_address pool = 0;
    int64_t kib = 0, made = 0;
    CU(MemAlloc, &pool, POOL + SCRATCH);
    uint8_t *memory = (uint8_t *)(uintptr_t)pool;
    for (int64_t i = 0; i < call_count; i++) {
        uint8_t *at = memory + i % PLACES * STRIDE;
        if (i == call_count / 10) kib = resident_kib(), made = runners();
        if (i % 2 == 0) silu(at);
        if (i % 2 == 1) attend(at, memory + POOL / 2 + i % 61 * 256, memory + POOL, 257 + i % 256);
        if (i % 500 == 0) CU(StreamSynchronize, NULL);
    }
    CU(StreamSynchronize, NULL);
    printf("soak: %lld eager calls, %lld KiB more, %lld runners more, 100 %%\n",
           (long long)call_count, (long long)(resident_kib() - kib), (long long)(runners() - made));
    assert_int_equal(runners(), made);
    assert_true(resident_kib() - kib < 512);
    CU(MemFree, pool);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_grows_however_often_addresses_change),
    };
    if (argc > 1) call_count = atoll(argv[1]);
    return cmocka_run_group_tests(tests, fig_gpu_caller_set_up, fig_gpu_caller_tear_down);
}
