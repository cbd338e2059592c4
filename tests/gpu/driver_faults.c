/* driver_faults.c: tests errors that a real driver reports, and an engine whose CUDA context is
 * lost.
 *
 * Invariant: the test after which the process can no longer use the GPU comes last. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/driver/cuda_api.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != FIG_OK) fail_msg("%s", fig_message());                                       \
    } while (0)

static const fig_decode_options small = {
    .dtype = FIG_F16, .layers = 1, .page_size = 16, .batch_limit = 4, .kv_limit = 128};
static const int32_t lengths[] = {100, 20, 3};
static const fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = lengths};

static void says(const char *part) {
    print_message("    %s\n", fig_message());
    if (strstr(fig_message(), part) == NULL) fail_msg("\"%s\" is not in it", part);
}

/* Counters of driver calls that a step might make. test_device_cuda.c counts every driver entry. */
static int calls, launches;
static fig_cuda_api real;

static fig_cu_result count_launch(fig_cu_exec exec, fig_cu_stream stream) {
    launches++;
    return real.GraphLaunch(exec, stream);
}

static fig_cu_result count_push(fig_cu_context context) {
    calls++;
    return real.CtxPushCurrent(context);
}

static fig_cu_result count_query(fig_cu_stream stream) {
    calls++;
    return real.StreamQuery(stream);
}

static fig_cu_result count_wait(fig_cu_stream stream) {
    calls++;
    return real.StreamSynchronize(stream);
}

static void a_replay_is_one_call_to_the_driver(void **state) {
    (void)state;
    static fig_decode decode;
    fig_engine *engine;
    fig_decode_open(&decode, &small);
    OK(fig_place_open(&engine, decode.graphs));
    fig_decode_bind(&decode, engine);
    OK(fig_engine_prepare(engine, 0));
    fig_cuda_api *table = fig_cuda_api_table();
    real = *table;
    table->GraphLaunch = count_launch;
    table->CtxPushCurrent = count_push;
    table->StreamQuery = count_query;
    table->StreamSynchronize = count_wait;
    for (int i = 0; i < 3; i++)
        OK(fig_engine_step(engine, &step));
    assert_int_equal(launches, 3);
    assert_int_equal(calls, 0);
    *table = real;
    OK(fig_engine_wait(engine, FIG_HANG_US));
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void more_memory_than_there_is_is_refused_and_changes_nothing(void **state) {
    (void)state;
    static fig_decode decode;
    fig_random random = fig_random_seed(3);
    fig_engine *engine;
    fig_decode_open(&decode, &small);
    OK(fig_place_open(&engine, decode.graphs));
    fig_decode_bind(&decode, engine);
    const fig_binding huge = {.size = sizeof huge, .name = "k_cache.0", .bytes = (size_t)1 << 40};
    assert_int_equal(fig_engine_bind(engine, &huge), FIG_NOMEM);
    says("1099511627776 bytes");
    for (int32_t s = 0; s < step.rows; s++)
        fig_decode_prefill(&decode, s, lengths[s] - 1, &random);
    fig_decode_fill(&decode, &random);
    OK(fig_engine_step(engine, &step));
    OK(fig_engine_wait(engine, FIG_HANG_US));
    fig_decode_check(&decode, &step);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_gpu_that_is_not_there_is_named(void **state) {
    (void)state;
    static fig_decode decode;
    fig_engine_options options = fig_place_options();
    fig_engine *engine;
    fig_decode_open(&decode, &small);
    options.ordinal = 99;
    assert_int_equal(fig_engine_open(&engine, decode.graphs, &options), FIG_NO_DEVICE);
    says("ordinal is 99");
    assert_null(engine);
    fig_decode_close(&decode);
}

/* A kernel reads an invalid address; this ends the CUDA context for every engine. */
static void a_lost_gpu_says_so_and_lets_the_engine_close(void **state) {
    (void)state;
    static fig_decode decode;
    fig_engine *engine, *other;
    fig_progress progress = {.size = sizeof progress};
    fig_decode_open(&decode, &small);
    OK(fig_place_open(&engine, decode.graphs));
    fig_decode_bind(&decode, engine);
    fig_binding nowhere = fig_decode_binding(&decode, 0, FIG_DECODE_V);
    nowhere.address = (void *)(uintptr_t)0x700000000000;
    OK(fig_engine_bind(engine, &nowhere));
    OK(fig_engine_step(engine, &step));
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_LOST);
    says("CUDA_ERROR_");
    assert_int_equal(fig_engine_step(engine, &step), FIG_LOST);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_LOST);
    fig_engine_poll(engine, &progress);
    assert_int_equal(progress.fault, FIG_LOST);
    fig_engine_close(engine);
    /* The context belongs to the process, so opening a second engine fails too, with a message. */
    fig_engine_options options = fig_place_options();
    assert_int_not_equal(fig_engine_open(&other, decode.graphs, &options), FIG_OK);
    says("CUDA_ERROR_");
    assert_null(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_is_one_call_to_the_driver),
        cmocka_unit_test(more_memory_than_there_is_is_refused_and_changes_nothing),
        cmocka_unit_test(a_gpu_that_is_not_there_is_named),
        cmocka_unit_test(a_lost_gpu_says_so_and_lets_the_engine_close),
    };
    if (fig_place_device() != FIG_DEVICE_CUDA) {
        fprintf(stderr, "driver_faults: FIG_DEVICE must be cuda\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
