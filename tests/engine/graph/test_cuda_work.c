/* test_cuda_work.c: tests kernels, edges, calls and execs on the cuda device, over a driver that
 * needs no GPU: the calls that the device makes, and every refusal of the driver. */
#include "engine/seam/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/graph/cuda_lanes.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"

static const fig_device_api *const api = &fig_device_cuda;
static const fig_dev_after none = {NULL, 0};

#undef fake
#define fake fig_cuda_bench_fake

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

/* ---- Kernels ------------------------------------------------------------------------------- */

static void a_kernel_with_other_params_is_refused(void **state) {
    (void)state;
    fake->params_excess = 8;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    char sentence[80];
    const int bytes = (int)sizeof(fig_fetch_params);
    snprintf(sentence, sizeof sentence,
             "fig_kernel_fetch takes %d bytes of params, the table has %d", bytes + 8, bytes);
    assert_non_null(strstr(fig_message(), sentence));
    fake->params_excess = 0;
    fake->params_count = 2;
    assert_int_equal(fig_cuda_bench_try(0, 0), FIG_NO_DEVICE);
    assert_non_null(strstr(fig_message(), "fig_kernel_fetch takes more than one struct of params"));
}

static void a_kernel_without_an_image_is_refused_by_name(void **state) {
    (void)state;
    fig_cuda_bench b;
    const fig_gated_params params = {.width = 2};
    const fig_dev_launch launch = {.op = FIG_OP_GATED,
                                   .grid = {1, 1, 1},
                                   .block = {32, 1, 1},
                                   .params = &params,
                                   .params_bytes = sizeof params};
    fig_cuda_bench_open(&b, NULL);
    fake->no_images = 1;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, none), FIG_UNSUPPORTED);
    check_message("cuda device: this library has no image of gated, family general");
    fig_cuda_bench_close(&b);
}

static void shared_memory_is_asked_for_once_and_within_the_chip(void **state) {
    (void)state;
    fig_cuda_bench b;
    fake->static_bytes = 1024;
    fake->shared_bytes = 100000;
    fig_cuda_bench_open(&b, NULL);
    fig_dev_launch launch = fig_cuda_scene_launch(&b.s);
    launch.shared_bytes = 47 * 1024;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, none), FIG_OK);
    assert_int_equal(fake->attributes_set, 0);
    for (int i = 0; i < 3; i++) {
        launch.shared_bytes = 98976;
        assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, none), FIG_OK);
        assert_int_equal(fake->attributes_set, 1);
    }
    launch.shared_bytes = 98977;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, none), FIG_UNSUPPORTED);
    check_message(
        "cuda device: fig_kernel_fetch needs 98977 + 1024 bytes of shared memory in a block, GPU 0 "
        "of compute capability 9.0 has 100000");
    fig_cuda_bench_close(&b);
}

/* ---- Graphs -------------------------------------------------------------------------------- */

/* Adds a kernel that makes no plan. */
static fig_status add_other(fig_cuda_bench *b, fig_dev_after after) {
    static const fig_look_ahead_params params;
    fig_dev_launch launch = fig_cuda_scene_launch(&b->s);
    launch.op = FIG_OP_LOOK_AHEAD;
    launch.params = &params;
    launch.params_bytes = sizeof params;
    return api->graph_kernel(b->dev, b->graph, &launch, after);
}

/* Adds nodes: 0 a fetch, 1 another kernel after 0, 2 a call after 1, 3 a fetch after 2 and 0. */
static fig_status add_four(fig_cuda_bench *b) {
    const uint32_t nodes[] = {0, 1, 2, 0};
    FIG_TRY(fig_cuda_bench_kernel(b, none));
    FIG_TRY(add_other(b, (fig_dev_after){nodes, 1}));
    FIG_TRY(fig_cuda_bench_call(b, (fig_dev_after){nodes + 1, 1}));
    return fig_cuda_bench_kernel(b, (fig_dev_after){nodes + 2, 2});
}

static void only_edges_between_kernels_are_programmatic(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    assert_int_equal(add_four(&b), FIG_OK);
    assert_int_equal(fake->programmatic_edges, 1); /* from 0 to 1; an edge from 0 to 3 is implied */
    /* for the call: one to it, one between its two nodes, and one to its empty end */
    assert_int_equal(fake->edges, 5);
    assert_int_equal(fake->empty_nodes, 1);
    assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_OK);
    fig_cuda_bench_close(&b);
    fake->programmatic_edges = 0;
    const fig_engine_options plain[] = {{.test = FIG_OPTIONS(fig_test_options, .plain_kernels = 1)},
                                        {.test = FIG_OPTIONS(fig_test_options, .plain_edges = 1)}};
    for (int i = 0; i < 2; i++) {
        fig_cuda_bench_open(&b, &plain[i]);
        assert_int_equal(add_four(&b), FIG_OK);
        assert_int_equal(fake->programmatic_edges, 0);
        fig_cuda_bench_close(&b);
    }
}

/* A programmatic edge lets our kernel become resident while the caller's matrix product ends. */
static void the_edge_behind_a_call_that_ends_with_a_kernel_is_programmatic(void **state) {
    (void)state;
    fig_cuda_bench b;
    fake->enqueues_kernels = 1;
    fig_cuda_bench_open(&b, NULL);
    assert_int_equal(add_four(&b), FIG_OK);
    assert_int_equal(fake->programmatic_edges, 2); /* 0 to 1, and 2 to 3 */
    assert_int_equal(fake->edges, 4); /* two for the call: to it, and between its two nodes */
    assert_int_equal(fake->empty_nodes, 0);
    assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_OK);
    fig_cuda_bench_close(&b);
    fake->programmatic_edges = 0;
    fig_cuda_bench_open(&b, FIG_OPTIONS(fig_engine_options,
                                        .test = FIG_OPTIONS(fig_test_options, .plain_edges = 1)));
    assert_int_equal(add_four(&b), FIG_OK);
    assert_int_equal(fake->programmatic_edges, 0);
    fig_cuda_bench_close(&b);
    /* A call that captures nothing ends with the node before it, which is not a kernel of the
     * call. */
    fig_cuda_bench_open(&b, NULL);
    b.s.enqueues = 0;
    fake->empty_nodes = 0;
    assert_int_equal(add_four(&b), FIG_OK);
    assert_int_equal(fake->empty_nodes, 1);
    fig_cuda_bench_close(&b);
    fake->enqueues_kernels = 0;
}

/* The call may let the next node begin at once, and that node may read the plan before it waits. So
 * the edge must be plain if only calls stand between that node and the fetch. */
static void no_edge_behind_a_call_that_follows_the_fetch_is_programmatic(void **state) {
    (void)state;
    static const uint32_t nodes[] = {0, 1, 2, 3};
    fig_cuda_bench b;
    fake->enqueues_kernels = 1;
    for (int calls = 1; calls <= 2; calls++) {
        fig_cuda_bench_open(&b, NULL);
        fake->programmatic_edges = 0;
        assert_int_equal(fig_cuda_bench_kernel(&b, none), FIG_OK);
        for (int i = 0; i < calls; i++)
            assert_int_equal(fig_cuda_bench_call(&b, (fig_dev_after){nodes + i, 1}), FIG_OK);
        assert_int_equal(add_other(&b, (fig_dev_after){nodes + calls, 1}), FIG_OK);
        assert_int_equal(fake->programmatic_edges, 0);
        assert_int_equal(fig_cuda_bench_call(&b, (fig_dev_after){nodes + calls + 1, 1}), FIG_OK);
        const uint32_t last = (uint32_t)calls + 2;
        assert_int_equal(add_other(&b, (fig_dev_after){&last, 1}), FIG_OK);
        assert_int_equal(fake->programmatic_edges, 1);
        fig_cuda_bench_close(&b);
    }
    fake->enqueues_kernels = 0;
}

static int64_t asked_for(fig_cuda_bench *b, fig_status (*add)(fig_cuda_bench *, fig_dev_after)) {
    const int64_t before = fake->calls;
    assert_int_equal(add(b, none), FIG_OK);
    return fake->calls - before;
}

/* The three calls push the context, change the capture mode and restore it. Popping the context is
 * not counted. */
static void a_held_context_is_entered_again_only_for_foreign_code(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    asked_for(&b, fig_cuda_bench_kernel);
    const int64_t kernel = asked_for(&b, fig_cuda_bench_kernel);
    const int64_t call = asked_for(&b, fig_cuda_bench_call);
    assert_int_equal(api->hold(b.dev), FIG_OK);
    assert_int_equal(asked_for(&b, fig_cuda_bench_kernel), kernel - 3);
    assert_int_equal(asked_for(&b, fig_cuda_bench_call), call);
    assert_int_equal(asked_for(&b, fig_cuda_bench_kernel), kernel - 3);
    api->let_go(b.dev);
    assert_true(asked_for(&b, fig_cuda_bench_kernel) >= kernel);
    fig_cuda_bench_close(&b);
}

static void no_edge_to_a_plain_launch_is_programmatic(void **state) {
    (void)state;
    static const uint32_t first = 0, second = 1;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    fig_dev_launch launch = fig_cuda_scene_launch(&b.s);
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, none), FIG_OK);
    launch.is_plain = 1;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, (fig_dev_after){&first, 1}),
                     FIG_OK);
    assert_int_equal(fake->programmatic_edges, 0);
    launch.is_plain = 0;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &launch, (fig_dev_after){&second, 1}),
                     FIG_OK);
    assert_int_equal(fake->programmatic_edges, 1);
    assert_int_equal(fake->edges, 2);
    fig_cuda_bench_close(&b);
}

/* The graph that was made last, and the fake's own function that makes one. */
static fig_cu_graph made;
static fig_cu_result (*make_graph)(fig_cu_graph *graph, unsigned int flags);

static fig_cu_result make_and_tell(fig_cu_graph *graph, unsigned int flags) {
    const fig_cu_result result = make_graph(graph, flags);
    made = *graph;
    return result;
}

/* Returns 1 if the graph has the edge. Without calls its nodes are exactly the kernels. */
static int has_edge(uint32_t from, uint32_t to) {
    int count = 0;
    for (size_t i = 0; i < made->edge_count; i++)
        count += made->edges[i].from == made->nodes[from] && made->edges[i].to == made->nodes[to];
    return count;
}

static void a_graph_gets_the_edges_that_its_lanes_ask_for(void **state) {
    (void)state;
    enum { NODES = 100 };
    static const uint32_t nodes[] = {0, 1, 2};
    fig_cuda_lane_place places[NODES];
    fig_cuda_lanes lanes = {0};
    fig_cuda_bench b;
    uint32_t edges = 0;
    make_graph = fig_cuda_api_table()->GraphCreate;
    fig_cuda_api_table()->GraphCreate = make_and_tell;
    fig_cuda_bench_open(&b, NULL);
    for (uint32_t node = 0; node < NODES; node++) {
        uint32_t before[4];
        const fig_dev_after after = {nodes, node > 2 ? node % 4 : node > 0};
        const uint32_t count = fig_cuda_lanes_find(&lanes, places, after, &places[node], before);
        fig_cuda_lanes_take(&lanes, &places[node], node);
        assert_int_equal(fig_cuda_bench_kernel(&b, after), FIG_OK);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(has_edge(before[i], node), 1);
        edges += count;
        assert_int_equal(made->edge_count, edges);
    }
    assert_int_equal(made->node_count, NODES);
    assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_OK);
    fig_cuda_bench_close(&b);
}

static void no_node_waits_for_a_leaf(void **state) {
    (void)state;
    enum { LAST = 20 };
    fig_cuda_bench b;
    const uint32_t nodes[] = {0, 2};
    make_graph = fig_cuda_api_table()->GraphCreate;
    fig_cuda_api_table()->GraphCreate = make_and_tell;
    fig_cuda_bench_open(&b, NULL);
    fig_dev_launch leaf = fig_cuda_scene_launch(&b.s);
    leaf.is_leaf = 1;
    assert_int_equal(fig_cuda_bench_kernel(&b, none), FIG_OK);
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &leaf, (fig_dev_after){nodes, 1}), FIG_OK);
    assert_int_equal(has_edge(0, 1), 1);
    for (uint32_t node = 2; node <= LAST; node++) {
        const fig_dev_after after = {nodes, node % 3 > 0 && node > 2 ? 2 : node % 3 > 0};
        assert_int_equal(fig_cuda_bench_kernel(&b, after), FIG_OK);
    }
    for (uint32_t node = 0; node <= LAST; node++)
        assert_int_equal(has_edge(1, node), 0);
    assert_int_equal(has_edge(0, 2), 1);
    /* A leaf waits for no lane either. */
    const size_t edges = made->edge_count;
    assert_int_equal(api->graph_kernel(b.dev, b.graph, &leaf, (fig_dev_after){nodes, 1}), FIG_OK);
    assert_int_equal(has_edge(0, LAST + 1), 1);
    assert_int_equal(made->edge_count, edges + 1);
    fig_cuda_bench_close(&b);
}

static void a_driver_that_loses_programmatic_edges_is_detected(void **state) {
    (void)state;
    fig_cuda_bench b;
    fake->loses_edges = 1;
    fig_cuda_bench_open(&b, NULL);
    assert_int_equal(add_four(&b), FIG_OK);
    assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_DRIVER);
    check_message("cuda device: the driver, of CUDA 13.0, holds 0 programmatic edges where 1 were "
                  "added");
    assert_null(b.exec);
    fig_cuda_bench_close(&b);
}

static void a_kernel_that_fails_leaves_the_graph_as_it_was(void **state) {
    (void)state;
    fig_cuda_bench b;
    const uint32_t first = 0;
    fig_cuda_bench_open(&b, NULL);
    assert_int_equal(fig_cuda_bench_kernel(&b, none), FIG_OK);
    fake->fail_name = "cuGraphAddDependencies", fake->fail_with = 1;
    assert_int_equal(fig_cuda_bench_kernel(&b, (fig_dev_after){&first, 1}), FIG_DRIVER);
    fake->fail_name = NULL;
    assert_int_equal(fig_cuda_bench_kernel(&b, (fig_dev_after){&first, 1}), FIG_OK);
    assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_OK);
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(b.s.fetch.words.consumed + b.s.fetch.words.missed,
                     2); /* two fetches, not three: the kernel that failed is not in the graph */
    fig_cuda_bench_close(&b);
}

static void a_call_is_captured_once_and_runs_in_every_step(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    assert_int_equal(b.s.calls, 1);
    assert_int_equal(b.s.works, 0);
    assert_non_null(b.s.args.stream);
    assert_int_equal(b.s.args.rows, 8);
    assert_int_equal(b.s.args.tag, 3);
    assert_int_equal(b.s.args.device, FIG_DEVICE_CUDA);
    for (int i = 1; i <= 3; i++) {
        b.s.fetch.state.number = 0;
        assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
        assert_int_equal(b.s.works, 2 * i);
        assert_int_equal(b.s.rows_seen, 5); /* the call ran after the fetch */
    }
    assert_int_equal(b.s.calls, 1);
    fig_cuda_bench_close(&b);
}

static void a_call_that_enqueues_nothing_still_orders(void **state) {
    (void)state;
    fig_cuda_bench b;
    const uint32_t second = 1;
    fig_cuda_bench_open(&b, NULL);
    b.s.enqueues = 0;
    fig_cuda_bench_build(&b);
    assert_int_equal(fig_cuda_bench_kernel(&b, (fig_dev_after){&second, 1}), FIG_OK);
    assert_int_equal(fake->edges, 2);
    assert_int_equal(fake->programmatic_edges, 0);
    fig_cuda_bench_close(&b);
}

static void a_call_that_fails_is_named_and_ends_its_capture(void **state) {
    (void)state;
    static const struct {
        int answer, breaks;
        const char *sentence;
    } cases[] = {
        {3, 0, "call \"gemm\" returned 3"},
        {3, 1, "call \"gemm\" returned 3"},
        {0, 1,
         "call \"gemm\" broke the capture: cuda device: ending its capture: an error without a "
         "name (901), which the driver does not know"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_cuda_bench b;
        fig_cuda_bench_open(&b, NULL);
        b.s.answer = cases[i].answer;
        b.s.breaks = cases[i].breaks;
        assert_int_equal(fig_cuda_bench_kernel(&b, none), FIG_OK);
        assert_int_equal(fig_cuda_bench_call(&b, none), FIG_CALLBACK);
        check_message(cases[i].sentence);
        assert_int_equal(fig_cuda_bench_kernel(&b, none), FIG_ORDER);
        check_message("cuda device: a call that failed has left the graph half-done");
        assert_int_equal(api->exec_create(b.dev, &b.exec, b.graph), FIG_ORDER);
        api->graph_destroy(b.dev, b.graph);
        b.s.answer = b.s.breaks = 0; /* the stream can capture again */
        assert_int_equal(api->graph_create(b.dev, &b.graph), FIG_OK);
        fig_cuda_bench_build(&b);
        fig_cuda_bench_close(&b);
    }
}

static void a_capture_that_the_driver_refuses_makes_no_node(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_bench_open(&b, NULL);
    fake->fail_name = "cuStreamGetCaptureInfo", fake->fail_with = 400;
    assert_int_equal(fig_cuda_bench_call(&b, none), FIG_CALLBACK);
    fake->fail_name = "cuStreamBeginCaptureToGraph";
    api->graph_destroy(b.dev, b.graph);
    assert_int_equal(api->graph_create(b.dev, &b.graph), FIG_OK);
    assert_int_equal(fig_cuda_bench_call(&b, none), FIG_DRIVER);
    assert_int_equal(b.s.calls, 1);
    fake->fail_name = NULL;
    assert_int_equal(fig_cuda_bench_call(&b, none), FIG_OK); /* the refused capture had not begun */
    fig_cuda_bench_close(&b);
}

static void an_exec_outlives_its_graph_and_takes_patches(void **state) {
    (void)state;
    fig_cuda_bench b;
    fig_cuda_scene other;
    fig_dev_exec *second;
    fig_cuda_scene_init(&other);
    fig_cuda_bench_open(&b, NULL);
    fig_cuda_bench_build(&b);
    assert_int_equal(api->exec_create(b.dev, &second, b.graph), FIG_OK);
    api->graph_destroy(b.dev, b.graph);
    b.graph = NULL;
    assert_int_equal(
        api->exec_patch(b.dev, b.exec, 0, &other.fetch.params, sizeof other.fetch.params), FIG_OK);
    assert_int_equal(api->exec_launch(b.dev, b.exec, b.stream), FIG_OK);
    assert_int_equal(other.fetch.plan.rows, 5);
    assert_int_equal(b.s.fetch.plan.rows, 0);
    api->exec_destroy(b.dev, b.exec);
    b.exec = NULL;
    assert_int_equal(api->exec_patch(b.dev, second, 0, &b.s.fetch.params, sizeof b.s.fetch.params),
                     FIG_OK);
    assert_int_equal(api->exec_launch(b.dev, second, b.stream), FIG_OK);
    assert_int_equal(b.s.fetch.plan.rows, 5);
    api->exec_destroy(b.dev, second);
    fig_cuda_bench_close(&b);
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Makes a call if all calls before it succeeded. After each call, the caller's context must be
 * current. */
#define USE(status, call)                                                                          \
    do {                                                                                           \
        if ((status) == FIG_OK) (status) = (call);                                                 \
        if (fake->current != fig_fake_cuda_foreign()) fail_msg("%s keeps the context", #call);     \
    } while (0)

/* Calls every function that can fail once, in order. Stops at the first failure. */
static fig_status use_all(int64_t fail_at_call, fig_cuda_scene *s) {
    const fig_engine_options options = {
        .test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call)};
    const fig_dev_launch kernel = fig_cuda_scene_launch(s);
    const fig_dev_call call = fig_cuda_scene_call(s);
    const uint32_t first = 0;
    fig_dev *dev = NULL;
    fig_dev_stream *stream = NULL;
    fig_dev_graph *graph = NULL;
    fig_dev_exec *exec = NULL;
    fig_block memory = {0}, pinned = {0};
    uint64_t word = 1;
    int64_t pending = -1;
    fig_status fault = FIG_OK, status = FIG_OK;
    USE(status, api->open(&dev, &options));
    USE(status, api->allocate(dev, &memory, FIG_MEMORY_DEVICE, sizeof word));
    USE(status, api->stream_open(dev, &stream));
    USE(status, api->copy_in(dev, stream, memory.device, &word, sizeof word));
    USE(status, api->push(dev, stream, memory.device, &word, sizeof word));
    USE(status, api->copy_out(dev, stream, &word, memory.device, sizeof word));
    USE(status, api->graph_create(dev, &graph));
    USE(status, api->graph_kernel(dev, graph, &kernel, none));
    USE(status, api->graph_call(dev, graph, &call, (fig_dev_after){&first, 1}));
    USE(status, api->exec_create(dev, &exec, graph));
    USE(status, api->exec_patch(dev, exec, 0, &s->fetch.params, sizeof s->fetch.params));
    USE(status, api->exec_launch(dev, exec, stream));
    USE(status, api->stream_wait(dev, stream, 20000000));
    USE(status, api->stream_query(dev, stream, &pending, &fault));
    USE(status, api->graph_kernel(dev, graph, &kernel, (fig_dev_after){&first, 1}));
    USE(status, api->stream_fence(dev, stream, 1));
    USE(status, api->stream_pass(dev, stream, 1));
    USE(status, api->stream_follow(dev, stream, NULL));
    USE(status, api->stream_lead(dev, stream, NULL));
    USE(status, api->graph_append(dev, graph, stream, NULL, NULL));
    USE(status, api->allocate(dev, &pinned, FIG_MEMORY_PINNED, sizeof word));
    USE(status, api->stream_wait(dev, stream, -1));
    if (dev != NULL) {
        api->stream_close(dev, stream);
        api->graph_destroy(dev, graph);
        api->exec_destroy(dev, exec);
        api->release(dev, &memory);
        api->release(dev, &pinned);
        api->close(dev);
    }
    return status;
}

static void each_call_fails_when_asked_and_says_so(void **state) {
    (void)state;
    static const char *const names[] = {
        "open",       "allocate",     "stream_open",  "copy_in",     "push",
        "copy_out",   "graph_create", "graph_kernel", "graph_call",  "exec_create",
        "exec_patch", "exec_launch",  "stream_wait",  "stream_query"};
    enum { NAMES = sizeof names / sizeof names[0] };
    for (int n = 1; n <= NAMES; n++) {
        fig_cuda_scene s;
        char sentence[128];
        fig_cuda_scene_init(&s);
        snprintf(sentence, sizeof sentence, "cuda device: call %d (%s) failed as asked", n,
                 names[n - 1]);
        assert_int_equal(use_all(n, &s), n == 2 ? FIG_NOMEM : FIG_DRIVER);
        check_message(sentence);
        assert_int_equal(fake->held, 0);
    }
}

/* Returns 1 if the call has a status to report. Calls that free, guess or restore the thread's
 * state have none. */
static int has_a_status(const char *call) {
    return !fig_fake_cuda_is_guess(call) && strstr(call, "Destroy") == NULL &&
           strstr(call, "Free") == NULL && strstr(call, "Unload") == NULL &&
           strstr(call, "Release") == NULL && strcmp(call, "cuCtxPopCurrent") != 0 &&
           strcmp(call, "cuThreadExchangeStreamCaptureMode") != 0;
}

/* The last calls are those of close, for its context and its wait. */
static void every_call_to_the_driver_may_fail(void **state) {
    (void)state;
    static const fig_cu_result results[] = {801, FIG_CU_OUT_OF_MEMORY, FIG_CU_ILLEGAL_ADDRESS,
                                            FIG_CU_CAPTURE_INVALIDATED};
    for (size_t r = 0; r < sizeof results / sizeof results[0]; r++) {
        int64_t closing = INT64_MAX;
        for (int64_t n = 1;; n++) {
            fig_cuda_scene s;
            fig_cuda_scene_init(&s);
            fake->calls = 0, fake->failed = NULL, fake->launches = 0;
            fake->fail_at = n, fake->fail_with = results[r];
            fig_status status = use_all(0, &s);
            assert_int_equal(fake->held, 0);
            assert_int_equal(fake->unsafe, 0);
            if (fake->failed == NULL) {
                assert_int_equal(status, FIG_OK);
                assert_in_range(n, 80, 500); /* otherwise this test has tested nothing */
                break;
            }
            if (status == FIG_OK) {
                if (has_a_status(fake->failed) && closing == INT64_MAX) closing = n;
                continue;
            }
            if (closing != INT64_MAX)
                fail_msg("call %d, %s, failed and nothing else did", (int)closing, fake->failed);
            if (status != FIG_DRIVER && status != FIG_NOMEM && status != FIG_LOST &&
                status != FIG_NO_DEVICE && status != FIG_CALLBACK)
                fail_msg("call %d, %s: %s", (int)n, fake->failed, fig_status_name(status));
            assert_true(fig_message()[0] != '\0');
        }
    }
}

static void a_lack_of_host_memory_gives_a_status_and_a_message(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        fig_cuda_scene s;
        fig_cuda_scene_init(&s);
        fake->launches = 0;
        fig_fault_arm(n);
        fig_status status = use_all(0, &s);
        int64_t seen = fig_fault_disarm();
        assert_int_equal(fake->held, 0);
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            assert_in_range(n, 15, 60); /* otherwise this test has tested nothing */
            return;
        }
        if (status != FIG_NOMEM && status != FIG_CALLBACK)
            fail_msg("fault %d: %s: %s", (int)n, fig_status_name(status), fig_message());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_kernel_with_other_params_is_refused),
        FIG_CUDA_BENCH_TEST(a_kernel_without_an_image_is_refused_by_name),
        FIG_CUDA_BENCH_TEST(shared_memory_is_asked_for_once_and_within_the_chip),
        FIG_CUDA_BENCH_TEST(only_edges_between_kernels_are_programmatic),
        FIG_CUDA_BENCH_TEST(the_edge_behind_a_call_that_ends_with_a_kernel_is_programmatic),
        FIG_CUDA_BENCH_TEST(no_edge_behind_a_call_that_follows_the_fetch_is_programmatic),
        FIG_CUDA_BENCH_TEST(a_held_context_is_entered_again_only_for_foreign_code),
        FIG_CUDA_BENCH_TEST(no_edge_to_a_plain_launch_is_programmatic),
        FIG_CUDA_BENCH_TEST(a_graph_gets_the_edges_that_its_lanes_ask_for),
        FIG_CUDA_BENCH_TEST(no_node_waits_for_a_leaf),
        FIG_CUDA_BENCH_TEST(a_driver_that_loses_programmatic_edges_is_detected),
        FIG_CUDA_BENCH_TEST(a_kernel_that_fails_leaves_the_graph_as_it_was),
        FIG_CUDA_BENCH_TEST(a_call_is_captured_once_and_runs_in_every_step),
        FIG_CUDA_BENCH_TEST(a_call_that_enqueues_nothing_still_orders),
        FIG_CUDA_BENCH_TEST(a_call_that_fails_is_named_and_ends_its_capture),
        FIG_CUDA_BENCH_TEST(a_capture_that_the_driver_refuses_makes_no_node),
        FIG_CUDA_BENCH_TEST(an_exec_outlives_its_graph_and_takes_patches),
        FIG_CUDA_BENCH_TEST(each_call_fails_when_asked_and_says_so),
        FIG_CUDA_BENCH_TEST(every_call_to_the_driver_may_fail),
        FIG_CUDA_BENCH_TEST(a_lack_of_host_memory_gives_a_status_and_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
