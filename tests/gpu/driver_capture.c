/* driver_capture.c: tests segments of a step in graphs that a caller captures on a GPU, in each of
 * the driver's capture modes. The graphs are replayed with growing lengths, and the results
 * compared with float64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/driver/gpu_caller.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROWS = 8, KV_LIMIT = 512, STEPS = 20, MODES = 3, WAIT_MS = 5000 };

static const fig_bucket buckets[] = {{ROWS, KV_LIMIT}};
static const fig_decode_options plain = {.dtype = FIG_F16,
                                         .layers = 2,
                                         .page_size = 16,
                                         .batch_limit = ROWS,
                                         .kv_limit = KV_LIMIT,
                                         .buckets = buckets,
                                         .bucket_count = 1};

/* ---- A step, however it is enqueued -------------------------------------------------------- */

typedef struct traffic {
    fig_decode decode;
    fig_engine *engine;
    fig_random random;
    int32_t lengths[ROWS];
    fig_step plain, step; /* plain: for the reference; step: for the program */
} traffic;

/* Opens rows of random lengths; row 5 is idle. */
static void open_traffic(traffic *t, const fig_decode_options *options) {
    t->random = fig_random_seed(7);
    fig_decode_open(&t->decode, options);
    OK(fig_place_open(&t->engine, t->decode.graphs));
    fig_decode_bind(&t->decode, t->engine);
    for (int32_t row = 0; row < ROWS; row++) {
        t->lengths[row] = row == 5 ? 0 : fig_random_range(&t->random, 0, KV_LIMIT / 2);
        fig_decode_prefill(&t->decode, row, t->lengths[row], &t->random);
    }
}

static void close_traffic(traffic *t) {
    print_message("worst error %.3f of what is tolerated\n", t->decode.worst);
    fig_engine_close(t->engine);
    fig_decode_close(&t->decode);
}

static void stage_next(traffic *t, int32_t bucket) {
    for (int32_t row = 0; row < ROWS; row++)
        t->lengths[row] += row != 5;
    fig_decode_fill(&t->decode, &t->random);
    t->plain = (fig_step){.size = sizeof t->plain, .rows = ROWS, .kv_lengths = t->lengths};
    t->step = fig_decode_step(&t->decode, &t->plain);
    t->step.bucket = bucket;
    OK(fig_engine_stage(t->engine, &t->step));
}

static fig_status append(traffic *t, const char *segment, int32_t bucket) {
    void *const on = fig_gpu_caller.stream;
    const fig_append given = {
        .size = sizeof given, .segment = segment, .bucket = bucket, .stream = &on};
    return fig_engine_append(t->engine, &given);
}

static void append_segments(traffic *t, int32_t bucket) {
    static const char *const segments[] = {"fetch", "attn.0", "act.0", "attn.1", "act.1"};
    for (size_t i = 0; i < sizeof segments / sizeof segments[0]; i++)
        OK(append(t, segments[i], bucket));
}

/* ---- Captured ------------------------------------------------------------------------------ */

typedef struct captured {
    fig_cu_graph graph;
    fig_cu_exec exec;
} captured;

/* Captures a step, as one piece if `whole` is 1, and segment by segment if it is 0. */
static captured capture(traffic *t, int32_t bucket, unsigned int mode, int whole) {
    captured made = {NULL, NULL};
    fig_cu_instantiate_params params = {.flags = 0};
    CU(StreamBeginCapture, fig_gpu_caller.stream, mode);
    if (whole) {
        OK(append(t, NULL, bucket));
    } else {
        append_segments(t, bucket);
    }
    CU(StreamEndCapture, fig_gpu_caller.stream, &made.graph);
    CU(GraphInstantiateWithParams, &made.exec, made.graph, &params);
    return made;
}

static void drop(captured *made) {
    CU(GraphExecDestroy, made->exec);
    CU(GraphDestroy, made->graph);
}

static void replay(traffic *t, const captured *made, int32_t bucket) {
    for (int i = 0; i < STEPS; i++) {
        fig_progress progress = {.size = sizeof progress};
        stage_next(t, bucket);
        CU(GraphLaunch, made->exec, fig_gpu_caller.stream);
        CU(StreamSynchronize, fig_gpu_caller.stream);
        fig_decode_check(&t->decode, &t->plain);
        OK(fig_engine_poll(t->engine, &progress));
        assert_int_equal(progress.launched, progress.staged);
        assert_true(progress.completed >= progress.staged - 1);
    }
}

/* fig_engine_prepare was not called before the first capture. */
static void replay_in_each_mode(const fig_decode_options *options) {
    static traffic t;
    open_traffic(&t, options);
    fig_graphs_info info = {.size = sizeof info};
    /* the file has one bucket, in one or more variants */
    fig_graphs_read_info(t.decode.graphs, &info);
    for (unsigned int mode = 0; mode < MODES; mode++) {
        const int32_t bucket = 1 + (int32_t)mode % info.bucket_count;
        captured made = capture(&t, bucket, mode, mode == 2);
        replay(&t, &made, bucket);
        drop(&made);
    }
    OK(fig_engine_wait(t.engine, -1));
    close_traffic(&t);
}

static void segments_in_a_graph_are_the_truth_in_every_mode(void **state) {
    (void)state;
    replay_in_each_mode(&plain);
}

static void segments_that_read_lengths_on_the_device_are_the_truth(void **state) {
    (void)state;
    fig_decode_options options = plain;
    options.reads_lengths = 1;
    options.dtype = FIG_BF16;
    replay_in_each_mode(&options);
}

/* ---- At once ------------------------------------------------------------------------------- */

static void segments_that_run_at_once_on_the_callers_stream_are_the_truth(void **state) {
    (void)state;
    static traffic t;
    open_traffic(&t, &plain);
    for (int i = 0; i < STEPS; i++) {
        stage_next(&t, 1);
        append_segments(&t, 1);
        CU(StreamSynchronize, fig_gpu_caller.stream);
        fig_decode_check(&t.decode, &t.plain);
    }
    close_traffic(&t);
}

/* ---- Refusals while a graph exists --------------------------------------------------------- */

/* Retries the bind, since the driver releases the graph on a thread of its own, some time later. */
static fig_status bind_in_the_end(fig_engine *engine, const fig_binding *binding) {
    const struct timespec pause = {0, 1000 * 1000};
    for (int ms = 0; ms < WAIT_MS; ms++) {
        if (fig_engine_bind(engine, binding) == FIG_OK) return FIG_OK;
        nanosleep(&pause, NULL);
    }
    return fig_engine_bind(engine, binding);
}

static void a_tensor_is_bound_again_only_once_its_graph_is_gone(void **state) {
    (void)state;
    static traffic t;
    open_traffic(&t, &plain);
    const fig_binding q = fig_decode_binding(&t.decode, 0, FIG_DECODE_Q);
    captured made = capture(&t, 1, 0, 0);
    assert_int_equal(fig_engine_bind(t.engine, &q), FIG_ORDER);
    assert_string_equal(fig_message(), "tensor q.0: a graph of yours uses it");
    CU(GraphDestroy, made.graph);
    /* the graph's exec still uses the tensor */
    assert_int_equal(fig_engine_bind(t.engine, &q), FIG_ORDER);
    stage_next(&t, 1);
    CU(GraphLaunch, made.exec, fig_gpu_caller.stream);
    CU(StreamSynchronize, fig_gpu_caller.stream);
    fig_decode_check(&t.decode, &t.plain);
    CU(GraphExecDestroy, made.exec);
    OK(bind_in_the_end(t.engine, &q));
    close_traffic(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_in_a_graph_are_the_truth_in_every_mode),
        cmocka_unit_test(segments_that_read_lengths_on_the_device_are_the_truth),
        cmocka_unit_test(segments_that_run_at_once_on_the_callers_stream_are_the_truth),
        cmocka_unit_test(a_tensor_is_bound_again_only_once_its_graph_is_gone),
    };
    if (fig_place_device() != FIG_DEVICE_CUDA) {
        fprintf(stderr, "driver_capture: FIG_DEVICE must be cuda\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, fig_gpu_caller_set_up, fig_gpu_caller_tear_down);
}
