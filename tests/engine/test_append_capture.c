/* test_append_capture.c: tests segments in a graph that a caller captures, over a driver that needs
 * no GPU: the captured nodes, refusals while the graph lives, and every failure. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "planner/status.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/driver/fake_graph.h"
#include "tests/support/fault.h"

enum { ROWS = 4, WIDTH = 16, PRIMARY_DEVICE = 40 };

#undef fake
#define fake fig_cuda_bench_fake

/* Segment "a": act = silu_and_mul(x). Segment "b": out = silu_and_mul(act). Unused: spare. */
static _Alignas(16) float x[ROWS * 2 * WIDTH], act[ROWS * WIDTH], out[ROWS * WIDTH / 2];
static _Alignas(16) float other[ROWS * 2 * WIDTH];
static const int32_t lengths[ROWS] = {1, 2, 3, 4};

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

static fig_tensor tensor(fig_program *program, const char *name, int64_t width, fig_role role) {
    return fig_program_tensor(program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = role,
                                                   .dtype = FIG_F32, .rank = 2,
                                                   .dims = {FIG_DIM_BATCH, width}));
}

static fig_graphs *make_graphs(void) {
    static const fig_bucket two[] = {{2, 64}, {ROWS, 64}};
    fig_program *program;
    fig_graphs *graphs;
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_F32,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .ffn_width = WIDTH,
                           .batch_limit = ROWS,
                           .kv_limit = 64};
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    const fig_tensor in = tensor(program, "x", (int64_t)2 * WIDTH, FIG_ROLE_BOUND);
    const fig_tensor middle = tensor(program, "act", WIDTH, FIG_ROLE_BOUND);
    const fig_tensor end = tensor(program, "out", WIDTH / 2, FIG_ROLE_BOUND);
    tensor(program, "spare", WIDTH, FIG_ROLE_BOUND);
    fig_program_segment(program, "a");
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = in, .out = middle));
    fig_program_segment(program, "b");
    fig_silu_and_mul(program, FIG_OPTIONS(fig_gated_op, .in = middle, .out = end));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_options options = {.size = sizeof options, .buckets = two, .bucket_count = 2};
    if (fig_graphs_lower(&graphs, program, &options) != FIG_OK) fail_msg("%s", fig_message());
    fig_program_destroy(program);
    return graphs;
}

/* A caller with a stream of its own in the context that engine and caller share. */
typedef struct caller {
    fig_graphs *graphs;
    fig_engine *engine;
    fig_cu_stream stream;
    fig_cu_exec exec; /* of the captured graph */
} caller;

static fig_status bind(caller *c, const char *name, void *address, size_t bytes) {
    const fig_binding binding = {
        .size = sizeof binding, .name = name, .address = address, .bytes = bytes};
    return fig_engine_bind(c->engine, &binding);
}

static fig_status bind_all(caller *c) {
    FIG_TRY(bind(c, "x", x, sizeof x));
    FIG_TRY(bind(c, "act", act, sizeof act));
    return bind(c, "out", out, sizeof out);
}

static void open_stream(caller *c) {
    fig_cu_context context;
    *c = (caller){0};
    const int64_t fail_at = fake->fail_at;
    fake->fail_at = 0;
    assert_int_equal(fig_cuda_api_table()->DevicePrimaryCtxRetain(&context, PRIMARY_DEVICE), 0);
    fake->fail_at = fail_at;
    fake->calls = 0;
    c->stream = fig_fake_cuda_stream_create(context);
    c->graphs = make_graphs();
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(i % 13) * 0.25f - 1;
}

static void close_stream(caller *c) {
    fake->fail_at = 0;
    fig_fake_cuda_stream_destroy(c->stream);
    fig_cuda_api_table()->DevicePrimaryCtxRelease(PRIMARY_DEVICE);
    fig_graphs_destroy(c->graphs);
}

static void open_caller(caller *c, int own) {
    open_stream(c);
    void *const on = c->stream;
    const fig_engine_options options = {
        .size = sizeof options, .device = FIG_DEVICE_CUDA, .stream = own ? &on : NULL};
    if (fig_engine_open(&c->engine, c->graphs, &options) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(bind_all(c), FIG_OK);
}

static void close_caller(caller *c) {
    fig_fake_cuda_drop(c->exec);
    fig_engine_close(c->engine);
    close_stream(c);
}

/* stream: NULL means the engine's own. */
static fig_status append_to(fig_engine *engine, fig_cu_stream stream, const char *segment,
                            int32_t bucket) {
    void *const on = stream;
    const fig_append given = {.size = sizeof given,
                              .segment = segment,
                              .bucket = bucket,
                              .stream = stream != NULL ? &on : FIG_STREAM_OWN};
    return fig_engine_append(engine, &given);
}

static fig_status append(caller *c, const char *segment, int32_t bucket) {
    return append_to(c->engine, c->stream, segment, bucket);
}

static fig_status append_all(caller *c, int32_t bucket) {
    FIG_TRY(append(c, "fetch", bucket));
    FIG_TRY(append(c, "a", bucket));
    return append(c, "b", bucket);
}

static fig_status stage(caller *c, int32_t rows, int32_t bucket) {
    const fig_step step = {
        .size = sizeof step, .rows = rows, .kv_lengths = lengths, .bucket = bucket};
    return fig_engine_stage(c->engine, &step);
}

static void capture_all(caller *c, int32_t bucket) {
    fig_fake_cuda_capture(c->stream);
    if (append_all(c, bucket) != FIG_OK) fail_msg("%s", fig_message());
    c->exec = fig_fake_cuda_end(c->stream);
    assert_non_null(c->exec);
}

/* Computes the `out` of the engine's own launch. A caller's graph must give the same. */
static void expect(caller *c, int32_t rows, float *want) {
    const fig_step step = {.size = sizeof step, .rows = rows, .kv_lengths = lengths, .bucket = 2};
    memset(out, 0, sizeof out);
    assert_int_equal(fig_engine_step(c->engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(c->engine, -1), FIG_OK);
    memcpy(want, out, sizeof out);
    memset(out, 0, sizeof out);
}

/* ---- Captured nodes ------------------------------------------------------------------------ */

static void a_callers_graph_runs_the_step_that_was_staged(void **state) {
    (void)state;
    caller c;
    float want[ROWS * WIDTH / 2];
    open_caller(&c, 0);
    expect(&c, ROWS, want);
    const int64_t execs = fake->instantiated;
    capture_all(&c, 2);
    assert_int_equal(fake->children, 0); /* kernels became nodes of the caller's graph */
    assert_int_equal(fake->instantiated, execs + 1); /* only the caller's own exec */
    for (int32_t rows = 1; rows <= ROWS; rows++) {
        const size_t bytes = (size_t)rows * WIDTH / 2 * sizeof(float);
        memset(out, 0, sizeof out);
        assert_int_equal(stage(&c, rows, 2), FIG_OK);
        fig_fake_cuda_launch(c.exec, c.stream);
        assert_memory_equal(out, want, bytes);
        assert_true(rows == ROWS || out[rows * WIDTH / 2] == 0);
        fig_progress progress = {.size = sizeof progress};
        assert_int_equal(fig_engine_poll(c.engine, &progress), FIG_OK);
        assert_int_equal(progress.launched, rows + 1);
        assert_int_equal(progress.staged, rows + 1);
        assert_int_equal(progress.completed, rows); /* no fetch has reported the last step's end */
    }
    fig_fake_cuda_launch(c.exec, c.stream); /* no step is staged for this launch */
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_DRIVER);
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine_read_stats(c.engine, &stats);
    assert_int_equal(stats.launched, ROWS + 1);
    assert_int_equal(fig_engine_launch(c.engine), FIG_ORDER);
    check_message("launch: nothing is staged");
    close_caller(&c);
}

static void the_callers_work_lies_between_segments(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    assert_int_equal(stage(&c, ROWS, 2), FIG_OK);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append(&c, "fetch", 2), FIG_OK);
    assert_int_equal(append(&c, "a", 2), FIG_OK);
    const int64_t edges = fake->edges;
    assert_int_equal(append(&c, "b", 2), FIG_OK);
    assert_int_equal(fake->edges, edges + 1);
    c.exec = fig_fake_cuda_end(c.stream);
    close_caller(&c);
}

/* Each node begins while the one before it ends; the node after the fetch waits for the plan. */
static void check_row(fig_cu_graph graph, size_t node_count) {
    assert_int_equal(graph->node_count, node_count);
    assert_int_equal(graph->edge_count, node_count - 1);
    for (size_t i = 0; i + 1 < node_count; i++) {
        assert_ptr_equal(graph->edges[i].from, graph->nodes[i]);
        assert_ptr_equal(graph->edges[i].to, graph->nodes[i + 1]);
        assert_int_equal(graph->edges[i].data.type, FIG_CU_EDGE_PROGRAMMATIC);
    }
    for (size_t i = 1; i < node_count; i++) {
        fig_gated_params params;
        memcpy(&params, graph->nodes[i]->params, sizeof params);
        assert_int_equal(params.early_reads, i == 1 ? 0 : FIG_EARLY_READS_ON);
    }
}

/* Without "a", "b" is the node after the fetch. */
static void segments_follow_each_other_as_in_the_engines_launch(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    capture_all(&c, 2);
    check_row(c.exec->graph, 3);
    fig_fake_cuda_drop(c.exec);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append(&c, "fetch", 2), FIG_OK);
    assert_int_equal(append(&c, "b", 2), FIG_OK);
    c.exec = fig_fake_cuda_end(c.stream);
    check_row(c.exec->graph, 2);
    close_caller(&c);
}

/* Loading kernels, making execs and freeing memory that was bound do not break a capture. */
static void an_engine_may_be_prepared_inside_a_capture(void **state) {
    (void)state;
    caller c;
    fig_progress progress = {.size = sizeof progress};
    open_caller(&c, 0);
    assert_int_equal(bind(&c, "x", NULL, sizeof x), FIG_OK);
    assert_int_equal(fig_engine_prepare(c.engine, 0), FIG_OK);
    assert_int_equal(stage(&c, ROWS, 2), FIG_OK);
    assert_int_equal(append_to(c.engine, NULL, NULL, 2), FIG_OK);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(bind(&c, "x", x, sizeof x), FIG_OK);
    assert_int_equal(bind(&c, "spare", NULL, 0), FIG_OK);
    assert_int_equal(append_all(&c, 2), FIG_OK);
    assert_int_equal(fig_engine_poll(c.engine, &progress), FIG_OK);
    assert_int_equal(fig_engine_wait(c.engine, 1000), FIG_OK);
    c.exec = fig_fake_cuda_end(c.stream);
    assert_non_null(c.exec);
    close_caller(&c);
}

static void on_the_engines_own_stream_nothing_waits_while_it_captures(void **state) {
    (void)state;
    static const char *const sentence = "cuda device: the engine's stream is capturing: wait or "
                                        "copy before the capture or after it";
    caller c;
    const fig_span span = {.size = sizeof span, .name = "x", .bytes = 4};
    open_caller(&c, 1);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append_to(c.engine, NULL, "fetch", 1), FIG_OK);
    assert_int_equal(append_to(c.engine, c.stream, "a", 1), FIG_OK);
#define REFUSED(call)                                                                              \
    do {                                                                                           \
        assert_int_equal((call), FIG_ORDER);                                                       \
        check_message(sentence);                                                                   \
    } while (0)
    REFUSED(fig_engine_wait(c.engine, -1));
    REFUSED(fig_engine_wait(c.engine, 5));
    REFUSED(fig_engine_write(c.engine, &span, other));
    REFUSED(fig_engine_read(c.engine, &span, other));
#undef REFUSED
    c.exec = fig_fake_cuda_end(c.stream);
    assert_non_null(c.exec);
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_OK);
    close_caller(&c);
}

/* ---- Order --------------------------------------------------------------------------------- */

static void a_fetch_counts_in_its_own_capture_alone(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    fig_cu_context context;
    fig_cuda_api_table()->StreamGetCtx(c.stream, &context);
    fig_cu_stream second = fig_fake_cuda_stream_create(context);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append(&c, "a", 1), FIG_ORDER);
    check_message("append: segment a comes before \"fetch\" in this capture");
    assert_int_equal(append(&c, "fetch", 1), FIG_OK);
    fig_fake_cuda_capture(second);
    assert_int_equal(append_to(c.engine, second, "a", 1), FIG_ORDER);
    assert_int_equal(append_to(c.engine, second, NULL, 2), FIG_OK);
    assert_int_equal(append(&c, "a", 2), FIG_ORDER);
    check_message("append: segment a of bucket 2, the fetch before it is of bucket 1");
    assert_int_equal(append(&c, "a", 1), FIG_OK);
    assert_int_equal(append_to(c.engine, second, "b", 2), FIG_OK);
    assert_int_equal(append_to(c.engine, NULL, "a", 1), FIG_ORDER); /* it needs another fetch */
    c.exec = fig_fake_cuda_end(c.stream);
    fig_cu_exec of_second = fig_fake_cuda_end(second);
    for (int i = 0; i < 20; i++) { /* more captures than the engine remembers */
        fig_fake_cuda_capture(second);
        assert_int_equal(append_to(c.engine, second, "a", 1), FIG_ORDER);
        assert_int_equal(append_to(c.engine, second, "fetch", 1), FIG_OK);
        assert_int_equal(append_to(c.engine, second, "a", 1), FIG_OK);
        fig_fake_cuda_drop(fig_fake_cuda_end(second));
    }
    fig_fake_cuda_drop(of_second);
    fig_fake_cuda_stream_destroy(second);
    close_caller(&c);
}

static void a_stream_of_another_context_or_with_a_broken_capture_is_refused(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    fig_cu_stream alien = fig_fake_cuda_stream_create(fig_fake_cuda_foreign());
    assert_int_equal(append_to(c.engine, alien, "fetch", 1), FIG_INVALID);
    check_message("cuda device: the stream given is not of GPU 0's primary context");
    fig_fake_cuda_stream_destroy(alien);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append(&c, "fetch", 1), FIG_OK);
    fig_fake_cuda_break(c.stream);
    assert_int_equal(append(&c, "a", 1), FIG_ORDER);
    check_message("cuda device: the stream's capture is broken");
    assert_null(fig_fake_cuda_end(c.stream));
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_OK); /* the graph is gone */
    close_caller(&c);
}

/* ---- Work that runs at once, on a caller's stream ------------------------------------------ */

static void work_that_runs_at_once_holds_no_reference(void **state) {
    (void)state;
    caller c;
    float want[ROWS * WIDTH / 2];
    open_caller(&c, 0);
    expect(&c, 3, want);
    const int64_t execs = fake->instantiated;
    for (int i = 0; i < 3; i++) {
        memset(out, 0, sizeof out);
        assert_int_equal(stage(&c, 3, 2), FIG_OK);
        assert_int_equal(append_all(&c, 2), FIG_OK);
        assert_memory_equal(out, want, sizeof out);
    }
    assert_int_equal(fake->instantiated, execs + 3); /* each of three segments has one exec */
    fig_progress progress = {.size = sizeof progress};
    assert_int_equal(fig_engine_poll(c.engine, &progress), FIG_OK);
    assert_int_equal(progress.launched, 4);
    assert_int_equal(progress.completed, 4);
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_OK);
    assert_int_equal(stage(&c, 3, 2), FIG_OK);
    assert_int_equal(append_all(&c, 2), FIG_OK);
    assert_int_equal(fake->instantiated, execs + 3 + 3); /* other bindings need other execs */
    for (int i = 0; i < WIDTH / 2; i++)
        assert_true(out[i] == 0);
    close_caller(&c);
}

/* ---- Refusals while a graph exists --------------------------------------------------------- */

static void tensors_of_a_living_graph_are_not_bound_again(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    fig_fake_cuda_capture(c.stream);
    assert_int_equal(append(&c, "fetch", 2), FIG_OK);
    assert_int_equal(bind(&c, "x", x, sizeof x), FIG_OK); /* a fetch uses no tensor */
    assert_int_equal(append(&c, "a", 2), FIG_OK);
    c.exec = fig_fake_cuda_end(c.stream);
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_ORDER);
    check_message("tensor x: a graph of yours uses it");
    assert_int_equal(bind(&c, "act", NULL, 0), FIG_ORDER);
    check_message("tensor act: a graph of yours uses it");
    assert_int_equal(bind(&c, "spare", NULL, 0), FIG_OK);
    assert_int_equal(bind(&c, "out", NULL, 0), FIG_OK);
    assert_int_equal(fig_engine_prepare(c.engine, 0), FIG_OK);
    assert_int_equal(stage(&c, 2, 2), FIG_OK);
    fig_fake_cuda_launch(c.exec, c.stream);
    assert_true(act[1] == act[1]);
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_ORDER);
    fig_fake_cuda_drop(c.exec);
    c.exec = NULL;
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_OK);
    assert_int_equal(bind(&c, "act", NULL, 0), FIG_OK);
    assert_int_equal(fig_engine_prepare(c.engine, 0), FIG_OK);
    close_caller(&c);
}

static void a_step_staged_for_a_graph_that_ran_does_not_hold_up_a_bind(void **state) {
    (void)state;
    caller c;
    open_caller(&c, 0);
    capture_all(&c, 2);
    assert_int_equal(stage(&c, 2, 2), FIG_OK);
    assert_int_equal(bind(&c, "spare", NULL, 0), FIG_OK); /* no node uses it */
    assert_int_equal(stage(&c, 2, 2), FIG_OK);
    fig_fake_cuda_launch(c.exec, c.stream);
    fig_fake_cuda_drop(c.exec);
    c.exec = NULL;
    assert_int_equal(bind(&c, "x", other, sizeof other), FIG_OK);
    assert_int_equal(stage(&c, 2, 2), FIG_ORDER);
    check_message("prepare: 1 step staged with earlier bindings must be launched first");
    assert_int_equal(fig_engine_launch(c.engine), FIG_OK);
    assert_int_equal(stage(&c, 2, 2), FIG_OK);
    close_caller(&c);
}

/* The driver refuses the engine's launch after a caller's graph has taken the launch's plan. */
static caller *thief;

static fig_cu_result steal_and_refuse(fig_cu_exec exec, fig_cu_stream stream) {
    (void)exec, (void)stream;
    fig_fake_cuda_launch(thief->exec, thief->stream);
    return FIG_CU_OUT_OF_MEMORY;
}

static void a_plan_that_a_callers_graph_took_is_not_taken_back(void **state) {
    (void)state;
    caller c;
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = lengths, .bucket = 2};
    fig_progress progress = {.size = sizeof progress};
    open_caller(&c, 0);
    capture_all(&c, 2);
    fig_cuda_api *table = fig_cuda_api_table();
    const fig_cuda_api before = *table;
    thief = &c;
    table->GraphLaunch = steal_and_refuse;
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_NOMEM);
    assert_non_null(strstr(fig_message(), "cuGraphLaunch"));
    *table = before;
    assert_int_equal(fig_engine_poll(c.engine, &progress), FIG_OK);
    assert_int_equal(progress.staged, 1);
    assert_int_equal(progress.launched, 1);
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_OK);
    close_caller(&c);
}

/* Runs in a child process: memory that a living graph uses is kept until its process ends. */
static void a_graph_that_outlives_its_engine_runs_no_rows(void **state) {
    (void)state;
    caller c;
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        open_caller(&c, 0);
        capture_all(&c, 2);
        assert_int_equal(stage(&c, ROWS, 2), FIG_OK);
        fig_fake_cuda_launch(c.exec, c.stream);
        memset(out, 0, sizeof out);
        fig_engine_close(c.engine);
        fig_fake_cuda_launch(c.exec, c.stream);
        for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
            if (out[i] != 0) _exit(1);
        fig_fake_cuda_drop(c.exec);
        _exit(fake->unsafe == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Appends segments in a capture with nothing prepared, and then outside a capture. */
static fig_status use_all(caller *c, int64_t fail_at_call) {
    const fig_engine_options options = {
        .size = sizeof options,
        .device = FIG_DEVICE_CUDA,
        .test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call)};
    FIG_TRY(fig_engine_open(&c->engine, c->graphs, &options));
    FIG_TRY(bind_all(c));
    if (!fig_fake_cuda_capture(c->stream)) return fig_fail(FIG_NOMEM, "the caller's own");
    fig_status status = append_all(c, 2);
    c->exec = fig_fake_cuda_end(c->stream);
    FIG_TRY(status);
    if (c->exec == NULL) return fig_fail(FIG_NOMEM, "the caller's own");
    FIG_TRY(stage(c, 2, 2));
    fig_fake_cuda_launch(c->exec, c->stream);
    FIG_TRY(stage(c, 2, 1));
    FIG_TRY(append_all(c, 1));
    return fig_engine_wait(c->engine, -1);
}

/* Whichever call failed, nothing is held once the graph and then the engine are gone. */
static fig_status use_and_close(int64_t fail_at_call) {
    caller c;
    open_stream(&c);
    fig_status status = use_all(&c, fail_at_call);
    fig_fake_cuda_drop(c.exec);
    fig_engine_close(c.engine);
    close_stream(&c);
    assert_int_equal(fake->held, 0);
    assert_int_equal(fake->unsafe, 0);
    return status;
}

static void each_call_of_the_seam_fails_when_asked(void **state) {
    (void)state;
    int captures = 0, appends = 0;
    for (int64_t n = 1;; n++) {
        fake->launches = 0;
        fig_status status = use_and_close(n);
        if (status == FIG_OK) break;
        assert_true(status == FIG_DRIVER || status == FIG_NOMEM);
        assert_non_null(strstr(fig_message(), "failed as asked"));
        captures += strstr(fig_message(), "(stream_capture)") != NULL;
        appends += strstr(fig_message(), "(graph_append)") != NULL;
    }
    assert_int_equal(captures, 6);
    assert_int_equal(appends, 6);
}

static void each_call_to_the_driver_fails_once(void **state) {
    (void)state;
    static const fig_cu_result results[] = {801, FIG_CU_OUT_OF_MEMORY, FIG_CU_ILLEGAL_ADDRESS};
    for (size_t r = 0; r < sizeof results / sizeof results[0]; r++) {
        int seen = 0;
        for (int64_t n = 1;; n++) {
            fake->failed = NULL, fake->launches = 0;
            fake->fail_at = n, fake->fail_with = results[r];
            fig_status status = use_and_close(0);
            if (fake->failed == NULL) {
                assert_int_equal(status, FIG_OK);
                break;
            }
            if (status == FIG_OK) continue;
            assert_true(fig_message()[0] != '\0');
            seen += strcmp(fake->failed, "cuUserObjectCreate") == 0;
            seen += strcmp(fake->failed, "cuGraphRetainUserObject") == 0;
            seen += strcmp(fake->failed, "cuStreamUpdateCaptureDependencies") == 0;
        }
        assert_int_equal(seen, 3 * 3); /* three calls for each of three segments */
    }
}

static void a_lack_of_memory_gives_a_status_and_a_message(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        caller c;
        fake->launches = 0;
        open_stream(&c);
        fig_fault_arm(n);
        fig_status status = use_all(&c, 0);
        const int64_t seen = fig_fault_disarm();
        fig_fake_cuda_drop(c.exec);
        fig_engine_close(c.engine);
        close_stream(&c);
        assert_int_equal(fake->held, 0);
        if (seen < n) {
            assert_int_equal(status, FIG_OK);
            return;
        }
        assert_int_equal(status, FIG_NOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIG_CUDA_BENCH_TEST(a_callers_graph_runs_the_step_that_was_staged),
        FIG_CUDA_BENCH_TEST(the_callers_work_lies_between_segments),
        FIG_CUDA_BENCH_TEST(segments_follow_each_other_as_in_the_engines_launch),
        FIG_CUDA_BENCH_TEST(an_engine_may_be_prepared_inside_a_capture),
        FIG_CUDA_BENCH_TEST(on_the_engines_own_stream_nothing_waits_while_it_captures),
        FIG_CUDA_BENCH_TEST(a_fetch_counts_in_its_own_capture_alone),
        FIG_CUDA_BENCH_TEST(a_stream_of_another_context_or_with_a_broken_capture_is_refused),
        FIG_CUDA_BENCH_TEST(work_that_runs_at_once_holds_no_reference),
        FIG_CUDA_BENCH_TEST(tensors_of_a_living_graph_are_not_bound_again),
        FIG_CUDA_BENCH_TEST(a_step_staged_for_a_graph_that_ran_does_not_hold_up_a_bind),
        FIG_CUDA_BENCH_TEST(a_plan_that_a_callers_graph_took_is_not_taken_back),
        FIG_CUDA_BENCH_TEST(a_graph_that_outlives_its_engine_runs_no_rows),
        FIG_CUDA_BENCH_TEST(each_call_of_the_seam_fails_when_asked),
        FIG_CUDA_BENCH_TEST(each_call_to_the_driver_fails_once),
        FIG_CUDA_BENCH_TEST(a_lack_of_memory_gives_a_status_and_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
