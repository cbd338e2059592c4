/* test_prepare.c: tests that an exec is made when a step first needs it, or earlier if the caller
 * asks for it. */
#include "engine/engine.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/driver/cuda_bench.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

enum { ROUNDS = 20 };

#define fake fig_cuda_bench_fake

static const fig_decode_options small_decode = {
    .dtype = FIG_F32, .layers = 2, .page_size = 16, .batch_limit = 4, .kv_limit = 256};

typedef struct bench {
    fig_decode decode;
    fig_engine *engine;
} bench;

static void open_bench(bench *b, fig_device device) {
    const fig_engine_options options = {.size = sizeof options, .device = device};
    fig_decode_open(&b->decode, &small_decode);
    if (fig_engine_open(&b->engine, b->decode.graphs, &options) != FIG_OK)
        fail_msg("%s", fig_message());
    fig_decode_bind(&b->decode, b->engine);
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_decode_close(&b->decode);
}

static int32_t exec_count(const bench *b) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(b->engine, &stats);
    assert_true(stats.exec_bytes / (uint64_t)(stats.exec_count > 0 ? stats.exec_count : 1) > 0 ||
                stats.exec_count == 0);
    return stats.exec_count;
}

/* Runs a step in a bucket; 0: in the cheapest one. */
static fig_status step(bench *b, int32_t rows, int32_t bucket) {
    static const int32_t lengths[] = {1, 2, 3, 4};
    const fig_step of = {.size = sizeof of, .rows = rows, .kv_lengths = lengths, .bucket = bucket};
    const fig_status status = fig_engine_step(b->engine, &of);
    return status == FIG_OK ? fig_engine_wait(b->engine, FIG_HANG_US) : status;
}

static void an_exec_is_made_when_a_step_first_needs_it(void **state) {
    (void)state;
    bench b;
    open_bench(&b, FIG_DEVICE_HOST);
    const fig_graphs *graphs = b.decode.graphs;
    assert_true(graphs->exec_count > 2 && graphs->exec_count < graphs->bucket_count);
    assert_int_equal(exec_count(&b), 0);
    assert_int_equal(step(&b, 1, 1), FIG_OK);
    assert_int_equal(exec_count(&b), 1);
    assert_int_equal(step(&b, 1, 1), FIG_OK);
    assert_int_equal(exec_count(&b), 1);
    for (uint32_t i = 0; i < graphs->bucket_count; i++)
        assert_int_equal(step(&b, 1, (int32_t)i + 1), FIG_OK);
    assert_int_equal(exec_count(&b), graphs->exec_count);
    close_bench(&b);
}

static void one_bucket_or_all_are_made_ahead(void **state) {
    (void)state;
    bench b;
    open_bench(&b, FIG_DEVICE_HOST);
    const int32_t last = (int32_t)b.decode.graphs->bucket_count;
    assert_int_equal(fig_engine_prepare(b.engine, -1), FIG_INVALID);
    assert_int_equal(fig_engine_prepare(b.engine, last + 1), FIG_INVALID);
    assert_int_equal(fig_engine_prepare(b.engine, last), FIG_OK);
    assert_int_equal(exec_count(&b), 1);
    assert_int_equal(step(&b, 1, last), FIG_OK);
    assert_int_equal(exec_count(&b), 1);
    assert_int_equal(fig_engine_prepare(b.engine, 0), FIG_OK);
    assert_int_equal(exec_count(&b), b.decode.graphs->exec_count);
    close_bench(&b);
}

/* While another bucket is being made, steps of a prepared bucket can be staged and launched. */
static void a_staged_step_does_not_keep_another_bucket_from_being_made(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 2, 3, 4};
    bench b;
    open_bench(&b, FIG_DEVICE_HOST);
    const fig_step one = {.size = sizeof one, .rows = 1, .kv_lengths = lengths, .bucket = 1};
    const fig_step four = {.size = sizeof four, .rows = 4, .kv_lengths = lengths};
    assert_int_equal(fig_engine_stage(b.engine, &one), FIG_OK);
    assert_int_equal(fig_engine_stage(b.engine, &four), FIG_OK);
    assert_int_equal(exec_count(&b), 2);
    assert_int_equal(fig_engine_launch(b.engine), FIG_OK);
    assert_int_equal(fig_engine_launch(b.engine), FIG_OK);
    assert_int_equal(fig_engine_wait(b.engine, FIG_HANG_US), FIG_OK);
    close_bench(&b);
}

static void a_first_launch_finds_its_exec_uploaded(void **state) {
    (void)state;
    bench b;
    open_bench(&b, FIG_DEVICE_CUDA);
    for (uint32_t i = 0; i < b.decode.graphs->bucket_count; i++)
        if (step(&b, 1, (int32_t)i + 1) != FIG_OK) fail_msg("%s", fig_message());
    assert_true(fake->launches >= b.decode.graphs->bucket_count);
    assert_int_equal(fake->launched_cold, 0);
    close_bench(&b);
}

static void *prepare_all(void *user) {
    bench *b = user;
    return fig_engine_prepare(b->engine, 0) == FIG_OK ? NULL : b;
}

/* A second thread makes execs while steps run in every bucket. The results of these steps must be
 * right. */
static void execs_are_made_by_another_thread_while_steps_run(void **state) {
    (void)state;
    static const int32_t lengths[] = {5, 2, 9, 4};
    fig_random random = fig_random_seed(7);
    for (int round = 0; round < ROUNDS; round++) {
        bench b;
        pthread_t thread;
        void *failed;
        open_bench(&b, FIG_DEVICE_HOST);
        const uint32_t count = b.decode.graphs->bucket_count;
        assert_int_equal(step(&b, 1, 1), FIG_OK); /* a first step, which applies the bindings */
        assert_int_equal(pthread_create(&thread, NULL, prepare_all, &b), 0);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(step(&b, 1, (int32_t)(count - i)), FIG_OK);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        assert_int_equal(exec_count(&b), b.decode.graphs->exec_count);
        const fig_step last = {.size = sizeof last, .rows = 4, .kv_lengths = lengths};
        for (int32_t row = 0; row < 4; row++)
            fig_decode_prefill(&b.decode, row, lengths[row], &random);
        fig_decode_fill(&b.decode, &random);
        assert_int_equal(fig_engine_step(b.engine, &last), FIG_OK);
        assert_int_equal(fig_engine_wait(b.engine, FIG_HANG_US), FIG_OK);
        fig_decode_check(&b.decode, &last);
        close_bench(&b);
    }
}

/* A program with a call that the test can hold up while its bucket is prepared; on CUDA this is
 * when the call is made. */
typedef struct holder {
    fig_engine *engine;
    sem_t entered, leave;
    /* holds: 1: the next call waits for `leave`; calls: the number of calls so far */
    int holds, calls;
    float *up;
} holder;

static void fill_up(void *user) {
    const holder *h = user;
    for (int i = 0; i < FIG_GATE_ROWS * 2 * FIG_GATE_WIDTH; i++)
        h->up[i] = 1;
}

/* Returns 0 if the semaphore was posted. Otherwise the test fails instead of hanging. */
static int wait_for(sem_t *semaphore) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += FIG_HANG_S;
    return sem_timedwait(semaphore, &end);
}

static int32_t hold(void *user, const fig_call_args *args) {
    holder *h = user;
    h->calls++;
    h->up = args->writes[0];
    fig_fake_cuda_enqueue(args->stream, fill_up, h);
    if (!h->holds) return 0;
    sem_post(&h->entered);
    return wait_for(&h->leave);
}

static void *prepare_second(void *user) {
    holder *h = user;
    return fig_engine_prepare(h->engine, 2) == FIG_OK ? NULL : h;
}

static void open_holder(holder *h, const fig_graphs *graphs, float *x, float *act) {
    memset(h, 0, sizeof *h);
    assert_int_equal(sem_init(&h->entered, 0, 0), 0);
    assert_int_equal(sem_init(&h->leave, 0, 0), 0);
    assert_int_equal(fig_engine_open(&h->engine, graphs,
                                     FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)),
                     FIG_OK);
    assert_int_equal(fig_gate_bind(h->engine, "x", x, sizeof(fig_gate_x)), FIG_OK);
    assert_int_equal(fig_gate_bind(h->engine, "act", act, sizeof(fig_gate_act)), FIG_OK);
    assert_int_equal(fig_engine_register(h->engine, "gemm", hold, h), FIG_OK);
}

/* Another thread is held up while it prepares the second bucket. Meanwhile, steps of the first
 * bucket are staged, launched and waited for. */
static void a_step_waits_for_no_bucket_but_its_own(void **state) {
    (void)state;
    static _Alignas(16) fig_gate_x x;
    static _Alignas(16) fig_gate_act act;
    fig_graphs *graphs = fig_gate_graphs();
    const fig_step two = fig_gate_step(2), four = fig_gate_step(4);
    holder h;
    pthread_t thread;
    void *failed;
    open_holder(&h, graphs, x, act);
    assert_int_equal(fig_engine_prepare(h.engine, 1), FIG_OK);
    h.holds = 1;
    assert_int_equal(pthread_create(&thread, NULL, prepare_second, &h), 0);
    assert_int_equal(wait_for(&h.entered), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(fig_engine_step(h.engine, &two), FIG_OK);
        assert_int_equal(fig_engine_wait(h.engine, FIG_HANG_US), FIG_OK);
    }
    sem_post(&h.leave);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed); /* otherwise a step had waited for the other thread */
    assert_int_equal(h.calls, 2);
    assert_int_equal(fig_engine_step(h.engine, &four), FIG_OK);
    assert_int_equal(fig_engine_wait(h.engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(h.calls, 2); /* the other thread has made the exec */
    fig_engine_close(h.engine);
    fig_graphs_destroy(graphs);
}

/* The step is f16 over pages of 16, so on a GPU the attention kernel does RoPE and the append
 * too. */
static void moved_tensors_are_patched_even_if_a_launch_is_left_out(void **state) {
    (void)state;
    static const int32_t lengths[] = {17, 0, 40};
    static const fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = lengths};
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_CUDA};
    fig_decode_options turning = small_decode;
    fig_random random = fig_random_seed(7);
    fig_decode d;
    fig_engine *engine;
    turning.dtype = FIG_F16;
    fig_decode_open(&d, &turning);
    if (fig_engine_open(&engine, d.graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_decode_bind(&d, engine);
    for (int32_t row = 0; row < 3; row++)
        fig_decode_prefill(&d, row, lengths[row], &random);
    fig_decode_fill(&d, &random);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    const fig_decode_tensor *out = &d.tensors[1][FIG_DECODE_OUT];
    fig_binding binding = fig_decode_binding(&d, 1, FIG_DECODE_OUT);
    uint8_t *elsewhere = fig_place_allocate(out->bytes);
    assert_non_null(elsewhere);
    memset(out->address, 0xff, out->bytes);
    binding.address = elsewhere;
    memset(elsewhere, 0xff, out->bytes);
    assert_int_equal(fig_engine_bind(engine, &binding), FIG_OK);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(engine->execs.patched_launches, 1);
    for (size_t i = 0; i < out->bytes; i++)
        assert_int_equal(out->address[i], 0xff);
    memcpy(out->address, elsewhere, out->bytes);
    fig_decode_check(&d, &step);
    fig_engine_close(engine);
    fig_place_free(elsewhere);
    fig_decode_close(&d);
}

int main(void) {
    fig_place_host_program("both devices are tried on any machine");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exec_is_made_when_a_step_first_needs_it),
        cmocka_unit_test(one_bucket_or_all_are_made_ahead),
        cmocka_unit_test(a_staged_step_does_not_keep_another_bucket_from_being_made),
        FIG_CUDA_BENCH_TEST(a_first_launch_finds_its_exec_uploaded),
        cmocka_unit_test(execs_are_made_by_another_thread_while_steps_run),
        FIG_CUDA_BENCH_TEST(a_step_waits_for_no_bucket_but_its_own),
        FIG_CUDA_BENCH_TEST(moved_tensors_are_patched_even_if_a_launch_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
