/* test_engine.c: tests everything that a caller may do with an engine, and the errors for
 * everything else. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

static void check_message(const char *sentence) {
    assert_string_equal(fig_message(), sentence);
}

static const fig_decode_options small_decode = {
    .dtype = FIG_F32, .layers = 1, .page_size = 16, .batch_limit = 4, .kv_limit = 128};

/* ---- Open ---------------------------------------------------------------------------------- */

static fig_status open_with(const fig_engine_options *options) {
    fig_graphs *graphs = fig_gate_graphs();
    fig_engine *engine = (fig_engine *)(void *)&graphs;
    fig_status status = fig_engine_open(&engine, graphs, options);
    assert_true((engine != NULL) == (status == FIG_OK));
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return status;
}

/* Opens an engine with this device, and returns the device that it got. */
static fig_device device_of(fig_device device) {
    fig_graphs *graphs = fig_gate_graphs();
    fig_engine *engine;
    if (fig_engine_open(&engine, graphs, FIG_OPTIONS(fig_engine_options, .device = device)) !=
        FIG_OK)
        fail_msg("%s", fig_message());
    const fig_device became = fig_engine_device(engine);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
    return became;
}

/* If the tests run on cuda, an engine must open there. Elsewhere the machine may still have a GPU,
 * but the library has no kernels for it. */
static void auto_is_the_host_where_there_is_no_gpu_at_all(void **state) {
    (void)state;
    const fig_status cuda = open_with(FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA));
    if (cuda != FIG_OK) {
        assert_int_equal(cuda, FIG_NO_DEVICE);
        assert_true(fig_message()[0] != '\0');
        assert_int_equal(fig_place_device(), FIG_DEVICE_HOST);
    } else {
        assert_int_equal(device_of(FIG_DEVICE_CUDA), FIG_DEVICE_CUDA);
    }
    assert_int_equal(device_of(FIG_DEVICE_HOST), FIG_DEVICE_HOST);
    if (fig_device_cuda.is_absent())
        assert_int_equal(device_of(FIG_DEVICE_AUTO), FIG_DEVICE_HOST);
    else
        assert_int_equal(open_with(NULL), cuda);
}

static void options_out_of_range_are_refused_by_name(void **state) {
    (void)state;
    assert_int_equal(open_with(FIG_OPTIONS(fig_engine_options, .slots = 1)), FIG_INVALID);
    check_message("engine: slots is 1, limits 2 to 64");
    assert_int_equal(open_with(FIG_OPTIONS(fig_engine_options, .slots = 65)), FIG_INVALID);
    assert_int_equal(
        open_with(FIG_OPTIONS(fig_engine_options, .device = fig_place_device(), .slots = 64)),
        FIG_OK);
    assert_int_equal(open_with(FIG_OPTIONS(fig_engine_options, .busy_us = -1)), FIG_INVALID);
    check_message("engine: busy_us is -1, it must not be negative");
    assert_int_equal(
        open_with(FIG_OPTIONS(fig_engine_options,
                              .test = FIG_OPTIONS(fig_test_options, .fail_at_call = -1))),
        FIG_INVALID);
    assert_int_equal(open_with(FIG_OPTIONS(fig_engine_options, .device = (fig_device)7)),
                     FIG_INVALID);
    check_message("engine: device is 7, which is no fig_device");
    fig_engine *engine;
    assert_int_equal(fig_engine_open(&engine, NULL, NULL), FIG_INVALID);
    assert_null(engine);
}

/* ---- Bindings ------------------------------------------------------------------------------ */

static void a_tensor_bound_again_is_used_from_the_next_step_on(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_act other_act;
    static _Alignas(16) fig_gate_x other_x;
    static const fig_gate_act zeros;
    fig_gate_open(&g, NULL);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    assert_int_equal(fig_gate_stats(g.engine).prepares, 1);
    assert_int_equal(fig_gate_stats(g.engine).patched_launches, 0);

    memset(g.act, 0, sizeof g.act);
    assert_int_equal(fig_gate_bind(g.engine, "act", other_act, sizeof other_act), FIG_OK);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, other_act, 4);
    assert_memory_equal(g.act, zeros, sizeof zeros);
    assert_int_equal(fig_gate_stats(g.engine).prepares, 2);
    assert_int_equal(fig_gate_stats(g.engine).patched_launches, 1); /* a launch of the only exec */

    fig_gate_fill(other_x, -2.0f);
    assert_int_equal(fig_gate_bind(g.engine, "x", other_x, sizeof other_x), FIG_OK);
    fig_gate_run(&g, 3);
    fig_gate_wait(&g);
    assert_ptr_equal(g.last_read, other_x);
    fig_gate_check(other_x, other_act, 3);
    assert_int_equal(fig_gate_stats(g.engine).prepares, 3);
    fig_gate_run(&g, 3);
    fig_gate_wait(&g);
    assert_int_equal(fig_gate_stats(g.engine).prepares, 3);
    fig_gate_close(&g);
}

static void a_step_in_flight_keeps_the_addresses_it_was_launched_with(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_act other;
    memset(other, 0, sizeof other);
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_bind(g.engine, "act", NULL, 0), FIG_OK);
    g.held = 1;
    fig_gate_run(&g, 4);
    sem_wait(&g.entered);
    assert_int_equal(fig_gate_bind(g.engine, "act", other, sizeof other), FIG_OK);
    fig_gate_leave_later(&g);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK); /* prepares, which waits for the first step */
    fig_progress progress = fig_gate_progress(g.engine);
    assert_int_equal(progress.completed, 1);
    assert_int_equal(other[0], 0);
    assert_int_equal(fig_gate_stats(g.engine).owned_bytes, 0);
    sem_post(&g.leave);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    fig_gate_check(g.x, other, 4);
    fig_gate_close(&g);
}

/* The host device waits for an exec's launches before it patches the exec, but a GPU's driver does
 * not. So this test watches the device interface: a wait must come between the last launch and the
 * release. */
static int launches_since_wait, releases;

static fig_status count_launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    launches_since_wait++;
    return fig_device_host.exec_launch(dev, exec, stream);
}

static fig_status count_wait(fig_dev *dev, fig_dev_stream *stream, int64_t timeout_us) {
    launches_since_wait = 0;
    return fig_device_host.stream_wait(dev, stream, timeout_us);
}

static void check_release(fig_dev *dev, fig_block *block) {
    if (block->device != NULL) {
        assert_int_equal(launches_since_wait, 0);
        releases++;
    }
    fig_device_host.release(dev, block);
}

static void memory_of_steps_in_flight_is_given_back_after_a_wait(void **state) {
    (void)state;
    fig_gate g;
    fig_device_api spy = fig_device_host;
    spy.exec_launch = count_launch;
    spy.stream_wait = count_wait;
    spy.release = check_release;
    launches_since_wait = releases = 0;
    fig_gate_open(&g, NULL);
    g.engine->api = g.engine->bindings.api = &spy;
    assert_int_equal(fig_gate_bind(g.engine, "act", NULL, 0), FIG_OK);
    fig_gate_run(&g, 4);
    assert_int_equal(fig_gate_bind(g.engine, "act", NULL, 0), FIG_OK);
    assert_int_equal(releases, 0);
    fig_gate_run(&g, 4);
    assert_int_equal(releases, 1);
    fig_gate_wait(&g);
    fig_gate_close(&g);
}

static void a_staged_step_is_launched_before_its_tensors_may_move(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_act other;
    memset(other, 0, sizeof other);
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    assert_int_equal(fig_gate_bind(g.engine, "act", other, sizeof other), FIG_OK);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_ORDER);
    check_message("prepare: 1 step staged with earlier bindings must be launched first");
    assert_int_equal(fig_engine_prepare(g.engine, 0), FIG_ORDER);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, other, 4);
    fig_gate_close(&g);
}

/* ---- Calls --------------------------------------------------------------------------------- */

static void a_call_sees_its_step_and_its_tensors(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    for (int32_t rows = 1; rows <= 4; rows++) {
        memset(g.act, 0, sizeof g.act);
        fig_gate_fill(g.x, (float)rows);
        fig_gate_run(&g, rows);
        fig_gate_wait(&g);
        fig_gate_check(g.x, g.act, rows);
        assert_int_equal(g.calls, rows);
        assert_int_equal(g.last.rows, rows);
        assert_int_equal(g.last.bucket.batch, rows <= 2 ? 2 : 4);
        assert_int_equal(g.last.bucket.kv, FIG_GATE_KV);
        assert_int_equal(g.last.device, FIG_DEVICE_HOST);
        assert_null(g.last.stream);
        assert_int_equal(g.last.tag, 5);
        assert_string_equal(g.last_bytes, "scale");
        assert_ptr_equal(g.last_read, g.x);
    }
    fig_gate_close(&g);
}

static void a_failing_call_fails_its_step_once(void **state) {
    (void)state;
    fig_gate g;
    static const fig_gate_act zeros;
    fig_gate_open(&g, NULL);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    memset(g.act, 0, sizeof g.act);
    g.answer = 3;
    fig_gate_run(&g, 4);
    while (fig_gate_progress(g.engine).completed < 2) {
    }
    g.answer = 4;
    fig_gate_run(&g, 4);
    while (fig_gate_progress(g.engine).completed < 3) {
    }
    g.answer = 0;
    assert_memory_equal(g.act, zeros, sizeof zeros);
    assert_int_equal(fig_gate_progress(g.engine).fault, FIG_CALLBACK);
    assert_int_equal(fig_gate_progress(g.engine).fault, FIG_CALLBACK);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_CALLBACK);
    check_message("step 2: call \"gemm\" returned 3");
    assert_int_equal(fig_gate_progress(g.engine).fault, FIG_OK);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_OK);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    fig_gate_close(&g);
}

static void a_prepare_keeps_a_fault_for_the_wait(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_x other;
    fig_gate_open(&g, NULL);
    g.answer = 9;
    fig_gate_run(&g, 1);
    assert_int_equal(fig_gate_bind(g.engine, "x", other, sizeof other), FIG_OK);
    assert_int_equal(fig_engine_prepare(g.engine, 0), FIG_OK);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_CALLBACK);
    check_message("step 1: call \"gemm\" returned 9");
    fig_gate_close(&g);
}

static void a_call_without_its_callback_is_named(void **state) {
    (void)state;
    fig_gate gate, other;
    fig_graphs *graphs = fig_gate_graphs();
    fig_engine *engine;
    const fig_step step = fig_gate_step(1);
    fig_gate_init(&gate);
    fig_gate_init(&other);
    const fig_engine_options options = fig_gate_options();
    assert_int_equal(fig_engine_open(&engine, graphs, &options), FIG_OK);
    assert_int_equal(fig_gate_bind(engine, "x", NULL, 0), FIG_OK);
    assert_int_equal(fig_gate_bind(engine, "act", NULL, 0), FIG_OK);
    assert_int_equal(fig_engine_step(engine, &step), FIG_UNBOUND);
    check_message("call gemm: no callback is registered");
    assert_int_equal(fig_engine_register(engine, "gemv", fig_gate_callback, &gate), FIG_INVALID);
    check_message("the program has no call gemv");
    assert_int_equal(fig_engine_register(engine, "gemm", NULL, &gate), FIG_INVALID);
    assert_int_equal(fig_engine_register(engine, NULL, fig_gate_callback, &gate), FIG_INVALID);
    assert_int_equal(fig_engine_register(engine, "gemm", fig_gate_callback, &gate), FIG_OK);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_register(engine, "gemm", fig_gate_callback, &other), FIG_OK);
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(gate.calls, 1);
    assert_int_equal(other.calls, 1);
    fig_engine_close(engine);
    fig_graphs_destroy(graphs);
}

/* ---- Steps --------------------------------------------------------------------------------- */

static void a_step_larger_than_every_bucket_is_refused(void **state) {
    (void)state;
    static const fig_bucket bucket = {2, 64};
    static const int32_t long_row[] = {129, 1}, longer_row[] = {300}, three[] = {1, 1, 1};
    static const int32_t fits[] = {128};
    fig_decode decode;
    fig_engine *engine;
    fig_decode_options options = small_decode;
    options.kv_limit = 256;
    options.buckets = &bucket;
    options.bucket_count = 1;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = three};
    assert_int_equal(fig_engine_step(engine, &step), FIG_TOO_LARGE);
    step.rows = 2, step.kv_lengths = long_row;
    assert_int_equal(fig_engine_step(engine, &step), FIG_TOO_LARGE);
    step.rows = 1, step.kv_lengths = longer_row;
    assert_int_equal(fig_engine_step(engine, &step), FIG_TOO_LARGE);
    assert_int_equal(fig_gate_progress(engine).staged, 0);
    step.kv_lengths = fits;
    assert_int_equal(fig_engine_step(engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_launch_of_nothing_is_refused(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_engine_launch(g.engine), FIG_ORDER);
    check_message("launch: nothing is staged");
    fig_gate_run(&g, 1);
    assert_int_equal(fig_engine_launch(g.engine), FIG_ORDER);
    fig_gate_wait(&g);
    fig_gate_close(&g);
}

/* Step 1 blocks in its callback, which comes before the point where its slot becomes free. */
static void fill_ring(fig_gate *g, int slots) {
    g->held = 1;
    fig_gate_run(g, 4);
    sem_wait(&g->entered);
    for (int i = 1; i < slots; i++)
        fig_gate_run(g, 4);
}

static void drain(fig_gate *g, int steps) {
    for (int i = 0; i < steps; i++)
        sem_post(&g->leave);
    fig_gate_wait(g);
}

static void a_full_ring_refuses_a_step(void **state) {
    (void)state;
    for (int slots = 2; slots <= 64; slots *= 2) {
        fig_gate g;
        fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .slots = slots));
        fill_ring(&g, slots);
        assert_int_equal(fig_gate_stage(&g, 4), FIG_BUSY);
        assert_int_equal(fig_gate_stage(&g, 4), FIG_BUSY);
        assert_int_equal(fig_gate_stats(g.engine).busy, 2);
        assert_int_equal(fig_gate_progress(g.engine).staged, slots);
        drain(&g, slots);
        fig_gate_run(&g, 4);
        drain(&g, 1);
        assert_int_equal(g.calls, slots + 1);
        assert_int_equal(fig_gate_stats(g.engine).launched, slots + 1);
        fig_gate_check(g.x, g.act, 4);
        fig_gate_close(&g);
    }
}

static void a_stage_waits_for_a_slot_as_long_as_it_may(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .slots = 2, .busy_us = 5000));
    fill_ring(&g, 2);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_BUSY);
    drain(&g, 2);
    fig_gate_close(&g);
    fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .slots = 2, .busy_us = FIG_HANG_US));
    fill_ring(&g, 2);
    fig_gate_leave_later(&g);
    fig_gate_run(&g, 4);
    assert_int_equal(fig_gate_stats(g.engine).busy, 0);
    drain(&g, 2);
    assert_int_equal(g.calls, 3);
    fig_gate_close(&g);
}

static void a_wait_ends_at_its_bound_and_a_poll_at_once(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    g.held = 1;
    fig_gate_run(&g, 1);
    assert_int_equal(fig_gate_stage(&g, 1), FIG_OK);
    sem_wait(&g.entered);
    assert_int_equal(fig_engine_wait(g.engine, 0), FIG_TIMEOUT);
    assert_int_equal(fig_engine_wait(g.engine, 2000), FIG_TIMEOUT);
    check_message("still running after 2000 us: 1 step to end");
    fig_progress progress = fig_gate_progress(g.engine);
    assert_int_equal(progress.staged, 2);
    assert_int_equal(progress.launched, 1);
    assert_int_equal(progress.completed, 0);
    drain(&g, 1);
    assert_int_equal(fig_gate_progress(g.engine).completed, 1);
    sem_post(&g.leave);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    fig_gate_close(&g);
}

static void closing_waits_for_steps_in_flight(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    g.held = 1;
    fig_gate_run(&g, 4);
    fig_gate_run(&g, 4);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    sem_wait(&g.entered);
    sem_post(&g.leave);
    fig_gate_leave_later(&g);
    fig_engine_close(g.engine);
    assert_int_equal(g.calls, 2);
    fig_gate_check(g.x, g.act, 4);
    fig_graphs_destroy(g.graphs);
    fig_engine_close(NULL);
}

/* No public call can launch a plan that was not staged, so this test uses internals. */
static void a_replay_that_finds_no_plan_does_nothing_and_is_reported(void **state) {
    (void)state;
    fig_gate g;
    static const fig_gate_act zeros;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_engine_prepare(g.engine, 0), FIG_OK);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    memset(g.act, 0, sizeof g.act);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            g.engine->api->exec_launch(g.engine->dev, g.engine->execs.of[i].exec, g.engine->stream),
            FIG_OK);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_DRIVER);
    check_message("2 replays found no plan staged and ran no rows");
    assert_int_equal(g.last.rows, 0);
    assert_memory_equal(g.act, zeros, sizeof zeros);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_OK);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    fig_gate_close(&g);
}

/* The step promises too few tokens in all, so a bucket is chosen that is too small. */
static void lengths_beyond_their_bucket_run_no_rows_and_are_reported(void **state) {
    (void)state;
    static const fig_bucket buckets[] = {{4, 32}, {4, 512}};
    static const int32_t few[] = {16, 0, 100, 12}, many[] = {513, 500, 512, 400};
    static fig_decode decode;
    fig_engine *engine;
    fig_random random = fig_random_seed(6);
    fig_decode_options options = small_decode;
    options.kv_limit = 512;
    options.buckets = buckets;
    options.bucket_count = 2;
    options.reads_lengths = 1;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    for (int32_t s = 0; s < 4; s++)
        fig_decode_prefill(&decode, s, 512, &random);
    for (int i = 0; i < 6; i++) {
        const int too_many = i % 3 == 1, idle = i % 3 == 2;
        fig_step step = {.size = sizeof step, .rows = 4, .kv_lengths = i % 3 == 0 ? few : many};
        fig_step given = fig_decode_step(&decode, &step);
        if (!idle) given.token_limit = 128;
        fig_decode_fill(&decode, &random);
        assert_int_equal(fig_engine_step(engine, &given), FIG_OK);
        fig_status status = fig_engine_wait(engine, FIG_HANG_US);
        if (too_many) {
            assert_int_equal(status, FIG_TOO_LARGE);
            check_message("1 step ran no rows: lengths on the device are more than the bucket "
                          "holds, or nothing was staged");
            assert_memory_equal(decode.memory, decode.before, decode.memory_bytes);
            continue;
        }
        assert_int_equal(status, FIG_OK);
        int32_t lengths[] = {step.kv_lengths[0], step.kv_lengths[1], step.kv_lengths[2],
                             step.kv_lengths[3]};
        /* Row 0, of 513 tokens, belongs to no sequence and is idle. */
        if (lengths[0] > 512) lengths[0] = 0;
        step.kv_lengths = lengths;
        int32_t positions[] = {lengths[0] > 0 ? lengths[0] - 1 : decode.positions[0],
                               decode.positions[1], decode.positions[2], decode.positions[3]};
        step.positions = positions;
        fig_decode_check(&decode, &step);
    }
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

static void a_poll_and_a_wait_report_the_same(void **state) {
    (void)state;
    static const fig_bucket buckets[] = {{2, 32}, {2, 128}};
    static const int32_t many[] = {128, 128};
    static fig_decode decode;
    fig_engine *engine;
    fig_decode_options options = small_decode;
    options.batch_limit = 2;
    options.buckets = buckets;
    options.bucket_count = 2;
    options.reads_lengths = 1;
    fig_decode_open(&decode, &options);
    assert_int_equal(fig_place_open(&engine, decode.graphs), FIG_OK);
    fig_decode_bind(&decode, engine);
    const fig_step step = {.size = sizeof step, .rows = 2, .kv_lengths = many};
    fig_step given = fig_decode_step(&decode, &step);
    given.token_limit = 64;
    assert_int_equal(fig_engine_step(engine, &given), FIG_OK);
    while (fig_gate_progress(engine).completed < 1) {
    }
    assert_int_equal(fig_gate_progress(engine).fault, FIG_TOO_LARGE);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_TOO_LARGE);
    assert_int_equal(fig_gate_progress(engine).fault, FIG_OK);
    fig_engine_close(engine);
    fig_decode_close(&decode);
}

/* A caller may be compiled with an older or a newer header than the library's. */
static void a_struct_that_the_caller_knows_in_part_is_filled_in_part(void **state) {
    (void)state;
    struct {
        fig_progress progress;
        uint64_t more;
    } newer = {.more = 7};
    fig_gate g;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 1), FIG_OK);
    fig_progress older = {.size = offsetof(fig_progress, launched), .launched = 77};
    assert_int_equal(fig_engine_poll(g.engine, &older), FIG_OK);
    assert_int_equal(older.staged, 1);
    assert_int_equal(older.launched, 77);
    newer.progress.size = sizeof newer;
    assert_int_equal(fig_engine_poll(g.engine, &newer.progress), FIG_OK);
    assert_int_equal(newer.progress.size, sizeof newer);
    assert_int_equal(newer.progress.staged, 1);
    assert_int_equal(newer.more, 0);
    fig_gate_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_host_where_there_is_no_gpu_at_all),
        cmocka_unit_test(options_out_of_range_are_refused_by_name),
        cmocka_unit_test(a_tensor_bound_again_is_used_from_the_next_step_on),
        cmocka_unit_test(a_step_in_flight_keeps_the_addresses_it_was_launched_with),
        cmocka_unit_test(memory_of_steps_in_flight_is_given_back_after_a_wait),
        cmocka_unit_test(a_staged_step_is_launched_before_its_tensors_may_move),
        cmocka_unit_test(a_call_sees_its_step_and_its_tensors),
        cmocka_unit_test(a_failing_call_fails_its_step_once),
        cmocka_unit_test(a_prepare_keeps_a_fault_for_the_wait),
        cmocka_unit_test(a_call_without_its_callback_is_named),
        cmocka_unit_test(a_step_larger_than_every_bucket_is_refused),
        cmocka_unit_test(a_launch_of_nothing_is_refused),
        cmocka_unit_test(a_full_ring_refuses_a_step),
        cmocka_unit_test(a_stage_waits_for_a_slot_as_long_as_it_may),
        cmocka_unit_test(a_wait_ends_at_its_bound_and_a_poll_at_once),
        cmocka_unit_test(closing_waits_for_steps_in_flight),
        cmocka_unit_test(a_replay_that_finds_no_plan_does_nothing_and_is_reported),
        cmocka_unit_test(lengths_beyond_their_bucket_run_no_rows_and_are_reported),
        cmocka_unit_test(a_poll_and_a_wait_report_the_same),
        cmocka_unit_test(a_struct_that_the_caller_knows_in_part_is_filled_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
