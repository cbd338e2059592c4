/* test_device_cuda.c: tests the cuda device through its seam, over a driver that needs no GPU:
 * memory, streams, faults, and an engine on it. */
#include "engine/seam/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/peers.h"
#include "planner/status.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/fault.h"
#include "tests/support/gate.h"

static const fig_device_api *const api = &fig_device_cuda;
static const fig_dev_after none = {NULL, 0};

#define fake fig_cuda_bench_fake

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void blocks_come_zeroed(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    for (size_t bytes = 0; bytes < 5000; bytes = bytes * 3 + 1) {
        for (fig_memory kind = FIG_MEMORY_DEVICE; kind <= FIG_MEMORY_PINNED; kind++) {
            fig_block block;
            uint8_t seen[5000];
            assert_int_equal(api->allocate(b.dev, &block, kind, bytes), FIG_OK);
            assert_int_equal(block.bytes, bytes);
            assert_true((block.host != NULL) == (kind == FIG_MEMORY_PINNED));
            memset(seen, 0xaa, sizeof seen);
            assert_int_equal(api->copy_out(b.dev, b.stream, seen, block.device, bytes), FIG_OK);
            for (size_t i = 0; i < bytes; i++)
                assert_int_equal(seen[i], 0);
            if (bytes > 0) assert_int_equal(seen[bytes], 0xaa);
            api->release(b.dev, &block);
            assert_null(block.device);
            api->release(b.dev, &block);
        }
    }
    fig_cuda_bench_close(&b);
}

static void a_lack_of_memory_names_the_requested_and_the_free_bytes(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_block block;
    fig_cuda_bench_open(&b, NULL);
    fake->memory_bytes = 1000;
    assert_int_equal(api->allocate(b.dev, &block, FIG_MEMORY_DEVICE, 1001), FIG_NOMEM);
    check_message("cuda device: cuMemAlloc: 1001 bytes, GPU 0 has 1000 free of 1000");
    assert_null(block.device);
    fake->fail_name = "cuMemHostAlloc", fake->fail_with = FIG_CU_OUT_OF_MEMORY;
    assert_int_equal(api->allocate(b.dev, &block, FIG_MEMORY_PINNED, 77), FIG_NOMEM);
    check_message("cuda device: cuMemHostAlloc: 77 bytes of pinned memory");
    fake->fail_name = NULL;
    assert_int_equal(api->allocate(b.dev, &block, FIG_MEMORY_DEVICE, 1000), FIG_OK);
    api->release(b.dev, &block);
    fig_cuda_bench_close(&b);
}

static void a_push_arrives_and_does_not_wait(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_block from, to;
    uint64_t seen = 0;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    assert_int_equal(api->allocate(b.dev, &from, FIG_MEMORY_PINNED, sizeof seen), FIG_OK);
    assert_int_equal(api->allocate(b.dev, &to, FIG_MEMORY_DEVICE, sizeof seen), FIG_OK);
    *(uint64_t *)from.host = 77;
    fake->busy_looks = 3;
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->push(b.dev, b.stream, to.device, from.host, sizeof seen), FIG_OK);
    assert_int_equal(api->stream_wait(b.dev, b.stream, 0), FIG_TIMEOUT);
    assert_int_equal(api->copy_out(b.dev, b.stream, &seen, to.device, sizeof seen), FIG_OK);
    assert_int_equal(seen, 77);
    api->release(b.dev, &from);
    api->release(b.dev, &to);
    fig_cuda_bench_close(&b);
}

/* ---- Streams ------------------------------------------------------------------------------- */

static void a_callers_stream_is_used_and_not_destroyed(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_dev *dev;
    fig_dev_stream *stream;
    /* needed only for its context, in which the caller made the stream */
    fig_cuda_bench_open(&b, NULL);
    fig_cu_context context;
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRetain(&context, 40), FIG_CU_SUCCESS);
    fig_cu_stream ours = fig_fake_cuda_stream_create(context);
    fig_cu_stream alien = fig_fake_cuda_stream_create(fig_fake_cuda_foreign());
    fig_cuda_bench mine;
    const fig_engine_options options = {.stream = (void *const *)&ours};
    fig_cuda_bench_open(&mine, &options);
    fig_cuda_bench_build(&mine);
    fake->busy_looks = 3;
    assert_int_equal(api->exec_launch(mine.dev, mine.exec, mine.stream), FIG_OK);
    assert_int_equal(fig_cuda_api_table()->StreamQuery(ours), FIG_CU_NOT_READY);
    fig_cuda_bench_close(&mine);
    assert_int_equal(fig_cuda_api_table()->StreamQuery(ours), FIG_CU_SUCCESS);

    const fig_engine_options wrong = {.stream = (void *const *)&alien};
    assert_int_equal(api->open(&dev, &wrong), FIG_OK);
    assert_int_equal(api->stream_open(dev, &stream), FIG_INVALID);
    check_message("cuda device: the stream given is not of GPU 0's primary context");
    assert_null(stream);
    api->close(dev);
    fig_fake_cuda_stream_destroy(alien);
    fig_fake_cuda_stream_destroy(ours);
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRelease(40), FIG_CU_SUCCESS);
    fig_cuda_bench_close(&b);
}

/* 0 is a valid stream; torch uses it, for example. It means the default stream of the current
 * context, so the GPU's own context must be current at every call, launches included. */
static void the_default_stream_counts_as_a_callers_stream(void **state) {
    (void)state;
    for (uintptr_t handle = 0; handle <= FIG_CU_STREAM_OF_CONTEXT; handle++) {
        fig_cuda_bench b;
        uint64_t from = 77, to = 1;
        int64_t pending;
        fig_status fault;
        void *const on = (void *)handle;
        const fig_engine_options options = {.stream = &on};
        fig_cuda_bench_open(&b, &options);
        fig_cuda_bench_build(&b);
        assert_null(api->stream_handle(b.stream));
        fake->busy_looks = 3;
        assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
        fig_fake_cuda_push(&fig_fake_cuda_primary);
        assert_int_equal(fig_cuda_api_table()->StreamQuery(NULL), FIG_CU_NOT_READY);
        fig_fake_cuda_pop();
        assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
        assert_int_equal(pending, 1);
        assert_int_equal(api->push(b.dev, b.stream, &to, &from, sizeof to), FIG_OK);
        assert_int_equal(api->stream_wait(b.dev, b.stream, 1000000), FIG_OK);
        fake->busy_looks = 0;
        fig_cuda_bench_close(&b);
    }
}

static void an_engine_refuses_the_default_stream_of_a_thread(void **state) {
    (void)state;
    fig_dev *dev;
    fig_dev_stream *stream;
    void *const on = (void *)(uintptr_t)FIG_CU_STREAM_OF_THREAD;
    const fig_engine_options options = {.stream = &on};
    assert_int_equal(api->open(&dev, &options), FIG_OK);
    assert_int_equal(api->stream_open(dev, &stream), FIG_INVALID);
    check_message("cuda device: the stream given is the per-thread default stream, which is "
                  "another one in each thread");
    api->close(dev);
}

static void a_push_into_a_capture_is_refused(void **state) {
    (void)state;
    fig_cuda_bench b, mine;
    uint64_t from = 77, to = 1;
    fig_cu_context context;
    fig_cuda_bench_open(&b, NULL);
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRetain(&context, 40), FIG_CU_SUCCESS);
    fig_cu_stream ours = fig_fake_cuda_stream_create(context);
    const fig_engine_options options = {.stream = (void *const *)&ours};
    fig_cuda_bench_open(&mine, &options);
    assert_true(fig_fake_cuda_capture(ours));
    assert_int_equal(api->push(mine.dev, mine.stream, &to, &from, sizeof to), FIG_ORDER);
    check_message("cuda device: the engine's stream is capturing: wait or copy before the "
                  "capture or after it");
    assert_int_equal(to, 1);
    fig_fake_cuda_drop(fig_fake_cuda_end(ours));
    assert_int_equal(api->push(mine.dev, mine.stream, &to, &from, sizeof to), FIG_OK);
    assert_int_equal(to, 77);
    fig_cuda_bench_close(&mine);
    fig_fake_cuda_stream_destroy(ours);
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRelease(40), FIG_CU_SUCCESS);
    fig_cuda_bench_close(&b);
}

static void a_wait_ends_when_the_stream_does_or_at_its_bound(void **state) {
    (void)state;
    fig_cuda_bench b;
    int64_t pending;
    fig_status fault;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    fake->busy_looks = -1;
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->stream_wait(b.dev, b.stream, 0), FIG_TIMEOUT);
    assert_int_equal(api->stream_wait(b.dev, b.stream, 2000), FIG_TIMEOUT);
    check_message("still running after 2000 us: at most 2 steps to end");
    assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
    assert_int_equal(pending, 2);
    assert_int_equal(fault, FIG_OK);
    fake->busy_looks = 80; /* more polls than the thread makes before it sleeps */
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->stream_wait(b.dev, b.stream, 20000000), FIG_OK);
    assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
    assert_int_equal(pending, 0);
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->stream_wait(b.dev, b.stream, -1), FIG_OK);
    assert_int_equal(api->stream_take_fault(b.dev, b.stream), FIG_OK);
    fig_cuda_bench_close(&b);
}

/* A caller that only polls must learn that a rank was late. */
static void a_query_tells_the_fault_of_a_rank(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_dev_met met;
    int64_t pending;
    fig_status fault;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    assert_int_equal(api->meet(b.dev, &(fig_dev_meeting){.byte_limit = 64}, &met), FIG_OK);
    fig_peers_words *words = ((fig_peers *)met.peers)->words; /* the fake GPU's memory is ours */
    assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
    assert_int_equal(fault, FIG_OK);
    words->verdict = FIG_PEERS_LATE;
    assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
    assert_int_equal(fault, FIG_TIMEOUT);
    words->verdict = FIG_PEERS_FINE;
    fig_cuda_bench_close(&b);
}

static void a_launch_is_one_call_and_a_query_one_between_two_mode_changes(void **state) {
    (void)state;
    fig_cuda_bench b;
    int64_t pending;
    fig_status fault;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    fake->busy_looks = 2;
    for (int i = 0; i < 3; i++) {
        int64_t calls = fake->calls;
        fig_fault_arm(0);
        assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
        assert_int_equal(fake->calls, calls + 1);
        assert_string_equal(fake->last, "cuGraphLaunch");
        assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_OK);
        assert_int_equal(fake->calls, calls + 4);
        assert_string_equal(fake->last, "cuThreadExchangeStreamCaptureMode");
        assert_int_equal(fig_fault_disarm(), 0); /* nothing was allocated */
    }
    fig_cuda_bench_close(&b);
}

/* ---- Lost GPUs ----------------------------------------------------------------------------- */

static void a_lost_gpu_says_why_and_is_not_called_again(void **state) {
    (void)state;
    static const char *const sentence = "cuda device: cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS "
                                        "(700), an illegal memory access was encountered";
    fig_cuda_bench b;
    int64_t pending;
    fig_status fault;
    fig_block block, held;
    fig_dev_stream *stream;
    fig_dev_graph *graph;
    fig_dev_exec *exec;
    uint64_t word = 1;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    assert_int_equal(api->allocate(b.dev, &held, FIG_MEMORY_PINNED, 8), FIG_OK);
    fake->work_ends = FIG_CU_ILLEGAL_ADDRESS;
    fake->busy_looks = -1;
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(api->stream_query(b.dev, b.stream, &pending, &fault), FIG_LOST);
    check_message(sentence);
    assert_int_equal(fault, FIG_LOST);
    assert_int_equal(pending, 1);

    int64_t calls = fake->calls;
#define LOST(call)                                                                                 \
    do {                                                                                           \
        fig_fail(FIG_INVALID, "another sentence");                                                 \
        assert_int_equal((call), FIG_LOST);                                                        \
        check_message(sentence);                                                                   \
    } while (0)
    LOST(api->stream_query(b.dev, b.stream, &pending, &fault));
    LOST(api->stream_take_fault(b.dev, b.stream));
    LOST(api->stream_take_fault(b.dev, b.stream));
    LOST(api->stream_wait(b.dev, b.stream, 5));
    LOST(api->stream_wait(b.dev, b.stream, -1));
    LOST(api->exec_launch(b.dev, b.exec, b.stream));
    LOST(api->exec_patch(b.dev, b.exec, 0, &b.s.fetch.params, sizeof b.s.fetch.params));
    LOST(api->exec_create(b.dev, &exec, b.graph));
    LOST(api->graph_create(b.dev, &graph));
    LOST(fig_cuda_bench_kernel(&b, none));
    LOST(fig_cuda_bench_call(&b, none));
    LOST(api->copy_in(b.dev, b.stream, &word, &word, sizeof word));
    LOST(api->push(b.dev, b.stream, &word, &word, sizeof word));
    LOST(api->copy_out(b.dev, b.stream, &word, &word, sizeof word));
    LOST(api->stream_open(b.dev, &stream));
    LOST(api->allocate(b.dev, &block, FIG_MEMORY_DEVICE, 8));
#undef LOST
    assert_int_equal(fake->calls, calls);
    assert_true(exec == NULL && graph == NULL && stream == NULL && block.device == NULL);
    api->release(b.dev, &held);
    fig_cuda_bench_close(&b);
}

static void each_wait_notices_a_lost_gpu(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        fig_cuda_bench b;
        uint64_t word = 1;
        fake->work_ends = FIG_CU_SUCCESS;
        fake->launches = 0;
        fig_cuda_bench_open(&b, NULL);
        fig_cuda_bench_build(&b);
        fake->work_ends = FIG_CU_LAUNCH_FAILED;
        assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
        fig_status status = FIG_LOST;
        if (way == 0) status = api->stream_wait(b.dev, b.stream, -1);
        if (way == 1) status = api->stream_wait(b.dev, b.stream, 100);
        if (way == 2)
            status = api->copy_out(b.dev, b.stream, &word, &b.s.fetch.state.number, sizeof word);
        assert_int_equal(status, FIG_LOST);
        fig_cuda_bench_close(&b); /* with way 3, only close can find the loss */
    }
}

/* ---- An engine on the device --------------------------------------------------------------- */

/* Replaces the gate's callback by one for CUDA, which enqueues work instead of computing. */
typedef struct gemm {
    const float *x;
    float *up;
    int32_t rows;
} gemm;

static void run_gemm(void *user) {
    const gemm *g = user;
    for (int32_t r = 0; r < g->rows; r++)
        for (int c = 0; c < 2 * FIG_GATE_WIDTH; c++)
            g->up[r * 2 * FIG_GATE_WIDTH + c] = g->x[r * 4] * (float)(c + 1);
}

static void nothing(void *user) {
    (void)user;
}

static int32_t enqueue_gemm(void *user, const fig_call_args *args) {
    gemm *g = user;
    /* the rows of the largest bucket */
    *g = (gemm){args->reads[0], args->writes[0], FIG_GATE_ROWS};
    fig_fake_cuda_enqueue(args->stream, run_gemm, g);
    return 0;
}

/* A callback that asks for memory of the engine's device, as another thread may do meanwhile. */
static int32_t allocate_and_enqueue(void *user, const fig_call_args *args) {
    fig_block block;
    fig_dev *dev = *(fig_dev **)user;
    if (api->allocate(dev, &block, FIG_MEMORY_DEVICE, 64) != FIG_OK) return 1;
    api->release(dev, &block);
    fig_fake_cuda_enqueue(args->stream, nothing, NULL);
    return 0;
}

static void memory_can_be_allocated_while_a_call_is_captured(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    const fig_dev_call call = {.callback = allocate_and_enqueue, .user = &b.dev, .name = "gemm"};
    if (api->graph_call(b.dev, b.graph, &call, (fig_dev_after){NULL, 0}) != FIG_OK)
        fail_msg("%s", fig_message());
    assert_int_equal(fake->unsafe, 0);
    fig_cuda_bench_close(&b);
}

static void an_engine_steps_and_rebinds_on_the_cuda_device(void **state) {
    (void)state;
    static _Alignas(16) fig_gate_x x;
    static _Alignas(16) fig_gate_act act, other;
    gemm g;
    fig_engine *engine;
    fig_graphs *graphs = fig_gate_graphs();
    fig_gate_fill(x, 0.5f);
    assert_int_equal(fig_engine_open(&engine, graphs, NULL), FIG_OK);
    assert_int_equal(fig_gate_bind(engine, "x", x, sizeof x), FIG_OK);
    assert_int_equal(fig_gate_bind(engine, "act", act, sizeof act), FIG_OK);
    assert_int_equal(fig_engine_register(engine, "gemm", enqueue_gemm, &g), FIG_OK);
    for (int32_t rows = 1; rows <= FIG_GATE_ROWS; rows++) {
        const fig_step step = fig_gate_step(rows);
        memset(act, 0, sizeof act);
        if (fig_engine_step(engine, &step) != FIG_OK) fail_msg("%s", fig_message());
        assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
        fig_gate_check(x, act, rows);
    }
    const fig_step step = fig_gate_step(3);
    assert_int_equal(fig_gate_bind(engine, "act", other, sizeof other), FIG_OK);
    assert_int_equal(fig_engine_stage(engine, &step), FIG_OK);
    int64_t calls = fake->calls;
    assert_int_equal(fig_engine_launch(engine), FIG_OK);
    assert_int_equal(fake->calls, calls + 1);
    fig_gate_check(x, other, 3);
    assert_int_equal(fake->current == fig_fake_cuda_foreign(), 1);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(blocks_come_zeroed),
        FIG_CUDA_BENCH_TEST(a_lack_of_memory_names_the_requested_and_the_free_bytes),
        FIG_CUDA_BENCH_TEST(a_push_arrives_and_does_not_wait),
        FIG_CUDA_BENCH_TEST(the_default_stream_counts_as_a_callers_stream),
        FIG_CUDA_BENCH_TEST(an_engine_refuses_the_default_stream_of_a_thread),
        FIG_CUDA_BENCH_TEST(a_push_into_a_capture_is_refused),
        FIG_CUDA_BENCH_TEST(a_callers_stream_is_used_and_not_destroyed),
        FIG_CUDA_BENCH_TEST(a_wait_ends_when_the_stream_does_or_at_its_bound),
        FIG_CUDA_BENCH_TEST(a_query_tells_the_fault_of_a_rank),
        FIG_CUDA_BENCH_TEST(a_launch_is_one_call_and_a_query_one_between_two_mode_changes),
        FIG_CUDA_BENCH_TEST(a_lost_gpu_says_why_and_is_not_called_again),
        FIG_CUDA_BENCH_TEST(each_wait_notices_a_lost_gpu),
        FIG_CUDA_BENCH_TEST(memory_can_be_allocated_while_a_call_is_captured),
        FIG_CUDA_BENCH_TEST(an_engine_steps_and_rebinds_on_the_cuda_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
