/* test_streams.c: tests an engine whose caller has streams of its own, over a driver that needs no
 * GPU. Work on these streams is ordered with the engine's own work, and waits include it. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/driver/cuda_bench.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/place.h"

#undef fake
#define fake fig_cuda_bench_fake

enum { PRIMARY_DEVICE = 40, ROWS = 2 };

static const fig_bucket bucket = {ROWS, 64};
static const fig_decode_options small = {.dtype = FIG_F32,
                                         .layers = 1,
                                         .page_size = 4,
                                         .batch_limit = ROWS,
                                         .kv_limit = 64,
                                         .buckets = &bucket,
                                         .bucket_count = 1,
                                         .deterministic = 1};
static const int32_t lengths[ROWS] = {1, 1};

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* A caller with two streams of its own. */
typedef struct caller {
    fig_decode decode;
    fig_engine *engine;
    fig_cu_stream a, b;
} caller;

/* on_a: 0: the engine has a stream of its own; 1: it uses stream a. */
static void open_caller(caller *c, int on_a) {
    fig_cu_context context;
    memset(c, 0, sizeof *c);
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRetain(&context, PRIMARY_DEVICE), 0);
    c->a = fig_fake_cuda_stream_create(context);
    c->b = fig_fake_cuda_stream_create(context);
    void *const a = c->a;
    fig_decode_open(&c->decode, &small);
    must(fig_engine_open(&c->engine, c->decode.graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA,
                                     .stream = on_a ? &a : FIG_STREAM_OWN)));
    fig_decode_bind(&c->decode, c->engine);
    must(fig_engine_prepare(c->engine, 0));
}

static void close_caller(caller *c) {
    fig_engine_close(c->engine);
    fig_decode_close(&c->decode);
    fig_fake_cuda_stream_destroy(c->a);
    fig_fake_cuda_stream_destroy(c->b);
    fig_cuda_api_table()->DevicePrimaryCtxRelease(PRIMARY_DEVICE);
}

static fig_status append(caller *c, const char *segment, fig_cu_stream stream) {
    void *const on = stream;
    return fig_engine_append(
        c->engine, FIG_OPTIONS(fig_append, .segment = segment, .bucket = 1, .stream = &on));
}

static void stage(caller *c) {
    must(fig_engine_stage(c->engine,
                          FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths, .bucket = 1)));
}

static int is_busy(fig_cu_stream stream) {
    return stream->busy_looks != 0;
}

static fig_cu_stream own_stream(const caller *c) {
    return fig_engine_stream(c->engine);
}

/* ---- At once ------------------------------------------------------------------------------- */

static void work_on_a_callers_stream_is_waited_for(void **state) {
    (void)state;
    caller c;
    char bytes[16];
    fig_progress progress = {.size = sizeof progress};
    open_caller(&c, 0);
    stage(&c);
    fake->busy_looks = -1; /* work that is launched from here on never looks finished */
    must(append(&c, NULL, c.a));
    assert_true(is_busy(c.a));
    assert_int_equal(fig_engine_wait(c.engine, 1000), FIG_TIMEOUT);
    must(fig_engine_poll(c.engine, &progress));
    assert_int_equal(progress.launched, 1);
    assert_int_equal(progress.completed, 0);
    c.a->busy_looks = own_stream(&c)->busy_looks = 0, fake->busy_looks = 0;
    must(fig_engine_wait(c.engine, 1000));
    must(fig_engine_poll(c.engine, &progress));
    assert_int_equal(progress.completed, 1);
    must(fig_engine_read(c.engine, FIG_OPTIONS(fig_span, .name = "out.0", .bytes = 16), bytes));
    close_caller(&c);
}

/* Reads, bulk copies of pages and close use the engine's own stream, so they must come after the
 * work on the caller's stream. */
static void all_that_the_engine_does_later_comes_after_it(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    stage(&c);
    const int64_t orders = fake->orders;
    fake->busy_looks = 5;
    must(append(&c, "fetch", c.a));
    assert_int_equal(fake->orders, orders + 2);
    assert_true(is_busy(own_stream(&c)));
    must(append(&c, "attn.0", c.b)); /* stream b is ordered after stream a */
    assert_int_equal(fake->orders, orders + 4);
    must(append(&c, "attn.0", own_stream(&c)));
    assert_int_equal(fake->orders, orders + 4);
    fake->busy_looks = 0;
    close_caller(&c);
}

static void each_call_of_an_append_elsewhere_may_fail(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        caller c;
        open_caller(&c, 0);
        stage(&c);
        fake->calls = 0, fake->failed = NULL;
        fake->fail_at = n, fake->fail_with = 801;
        fake->busy_looks = 5;
        const fig_status status = append(&c, NULL, c.a);
        fake->busy_looks = 0;
        const char *failed = fake->failed;
        fake->fail_at = 0;
        if (failed == NULL) assert_int_equal(status, FIG_OK);
        /* After a refusal the work on the caller's stream must have ended, since no later wait
         * would cover it. */
        if (status != FIG_OK) assert_false(is_busy(c.a));
        if (failed != NULL && strncmp(failed, "cuStreamWaitEvent", 17) == 0)
            assert_int_equal(status, FIG_DRIVER);
        close_caller(&c);
        if (failed == NULL) break;
    }
}

/* ---- Graphs that a caller captures --------------------------------------------------------- */

static void two_calls_order_a_callers_graph_on_another_stream(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    assert_true(fig_fake_cuda_capture(c.a));
    must(append(&c, NULL, c.a));
    assert_int_equal(fig_engine_wait_for(c.engine, c.a), FIG_ORDER);
    assert_int_equal(fig_engine_signal(c.engine, c.a), FIG_ORDER);
    assert_string_equal(fig_message(), "cuda device: the stream given is capturing: order it "
                                       "before the capture or after it");
    fig_cu_exec exec = fig_fake_cuda_end(c.a);
    stage(&c);
    own_stream(&c)->busy_looks = 1; /* a copy of pages is still running */
    must(fig_engine_signal(c.engine, c.b));
    assert_true(is_busy(c.b));
    own_stream(&c)->busy_looks = 0, fake->busy_looks = -1;
    fig_fake_cuda_launch(exec, c.b);
    must(fig_engine_wait_for(c.engine, c.b));
    assert_int_equal(fig_engine_wait(c.engine, 1000), FIG_TIMEOUT);
    own_stream(&c)->busy_looks = c.b->busy_looks = 0, fake->busy_looks = 0;
    must(fig_engine_wait(c.engine, 1000));
    fig_fake_cuda_drop(exec);
    close_caller(&c);
}

static void a_stream_is_told_apart_by_its_context(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    fig_cu_stream alien = fig_fake_cuda_stream_create(fig_fake_cuda_foreign());
    assert_int_equal(fig_engine_wait_for(c.engine, alien), FIG_INVALID);
    assert_int_equal(fig_engine_signal(c.engine, alien), FIG_INVALID);
    fig_fake_cuda_stream_destroy(alien);
    close_caller(&c);
}

/* The default stream, 0, belongs to the caller; it is not the engine's own. */
static void the_default_stream_is_ordered_like_any_other(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    const int64_t orders = fake->orders;
    stage(&c);
    must(append(&c, NULL, NULL));
    must(fig_engine_wait_for(c.engine, NULL));
    must(fig_engine_signal(c.engine, NULL));
    assert_int_equal(fake->orders, orders + 4);
    close_caller(&c);
}

static void on_the_engines_own_stream_there_is_nothing_to_order(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 1);
    assert_ptr_equal(own_stream(&c), c.a);
    const int64_t orders = fake->orders;
    must(fig_engine_wait_for(c.engine, c.a));
    must(fig_engine_signal(c.engine, c.a));
    stage(&c);
    must(append(&c, NULL, c.a));
    assert_int_equal(fake->orders, orders);
    assert_true(fig_fake_cuda_capture(c.a));
    assert_int_equal(fig_engine_signal(c.engine, c.b), FIG_ORDER);
    fig_fake_cuda_drop(fig_fake_cuda_end(c.a));
    close_caller(&c);
}

/* ---- The host ------------------------------------------------------------------------------ */

static void on_the_host_the_stream_is_the_calling_thread(void **state) {
    (void)state;
    fig_decode decode;
    fig_engine *engine;
    int64_t pending;
    fig_status fault;
    fig_decode_open(&decode, &small);
    const fig_engine_options options = {.size = sizeof options, .device = FIG_DEVICE_HOST};
    must(fig_engine_open(&engine, decode.graphs, &options));
    fig_decode_bind(&decode, engine);
    assert_null(fig_engine_stream(engine));
    for (int i = 0; i < 50; i++) {
        must(fig_engine_wait_for(engine, NULL));
        must(fig_engine_step(engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)));
        must(fig_engine_signal(engine, NULL));
        must(engine->api->stream_query(engine->dev, engine->stream, &pending, &fault));
        assert_int_equal(pending, 0);
    }
    assert_int_equal(fig_engine_signal(engine, &decode), FIG_INVALID);
    fig_engine_close(engine);
    void *const on = NULL;
    const fig_engine_options given = {
        .size = sizeof given, .device = FIG_DEVICE_HOST, .stream = &on};
    assert_int_equal(fig_engine_open(&engine, decode.graphs, &given), FIG_INVALID);
    assert_string_equal(fig_message(), "host device: stream is set, but the host has only its own");
    fake->device_count = 0; /* if a stream is named, AUTO does not fall back to the host */
    const fig_engine_options any = {.size = sizeof any, .stream = &on};
    assert_int_equal(fig_engine_open(&engine, decode.graphs, &any), FIG_NO_DEVICE);
    fig_decode_close(&decode);
}

int main(void) {
    fig_place_host_program("it is about a driver that needs no GPU");
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(work_on_a_callers_stream_is_waited_for),
        FIG_CUDA_BENCH_TEST(all_that_the_engine_does_later_comes_after_it),
        FIG_CUDA_BENCH_TEST(each_call_of_an_append_elsewhere_may_fail),
        FIG_CUDA_BENCH_TEST(two_calls_order_a_callers_graph_on_another_stream),
        FIG_CUDA_BENCH_TEST(a_stream_is_told_apart_by_its_context),
        FIG_CUDA_BENCH_TEST(the_default_stream_is_ordered_like_any_other),
        FIG_CUDA_BENCH_TEST(on_the_engines_own_stream_there_is_nothing_to_order),
        FIG_CUDA_BENCH_TEST(on_the_host_the_stream_is_the_calling_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
