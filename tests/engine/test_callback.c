/* test_callback.c: tests callbacks that call their own engine, and a close with a timeout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/gate.h"

/* The statuses that a callback got from its own engine and from another engine. */
typedef struct caller {
    fig_engine *engine, *other;
    fig_status own[6], others;
    int calls;
} caller;

static int call_the_engines(void *user, const fig_call_args *args) {
    caller *c = user;
    const fig_step step = fig_gate_step(1);
    void *address;
    (void)args;
    c->own[0] = fig_engine_wait(c->engine, -1);
    c->own[1] = fig_engine_stage(c->engine, &step);
    c->own[2] = fig_engine_prepare(c->engine, 0);
    c->own[3] = fig_engine_close_within(c->engine, -1);
    c->own[4] = fig_engine_address(c->engine, "x", &address);
    c->own[5] = fig_engine_close(c->engine);
    c->others = c->other != NULL ? fig_engine_wait(c->other, -1) : FIG_OK;
    c->calls++;
    return 0;
}

static void check(const caller *c) {
    assert_true(c->calls > 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(c->own[i], FIG_ORDER);
    assert_int_equal(c->others, FIG_OK);
}

/* On the host the callback runs on the device's thread, and a wait there would wait for its own
 * thread. */
static void on_the_host_a_callback_gets_a_status_and_no_deadlock(void **state) {
    (void)state;
    fig_gate g, other;
    const fig_step step = fig_gate_step(1);
    fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST));
    fig_gate_open(&other, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST));
    caller c = {.engine = g.engine, .other = other.engine};
    assert_int_equal(fig_engine_register(g.engine, "gemm", call_the_engines, &c), FIG_OK);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_OK);
    check(&c);
    fig_gate_close(&other);
    fig_gate_close(&g);
}

/* On CUDA the callback runs on the thread that prepares, in the middle of preparing. */
static void on_cuda_a_callback_gets_a_status_and_changes_nothing(void **state) {
    (void)state;
    static _Alignas(16) fig_gate_x x;
    static _Alignas(16) fig_gate_act act;
    fig_graphs *graphs = fig_gate_graphs();
    caller c = {0};
    fig_cuda_bench_set_up(state);
    assert_int_equal(fig_engine_open(&c.engine, graphs,
                                     FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)),
                     FIG_OK);
    assert_int_equal(fig_gate_bind(c.engine, "x", x, sizeof x), FIG_OK);
    assert_int_equal(fig_gate_bind(c.engine, "act", act, sizeof act), FIG_OK);
    assert_int_equal(fig_engine_register(c.engine, "gemm", call_the_engines, &c), FIG_OK);
    if (fig_engine_prepare(c.engine, 0) != FIG_OK) fail_msg("%s", fig_message());
    check(&c);
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_OK);
    assert_int_equal(fig_engine_close(c.engine), FIG_OK);
    fig_graphs_destroy(graphs);
    assert_int_equal(fig_cuda_bench_tear_down(state), 0);
}

/* ---- Closing ------------------------------------------------------------------------------- */

static void a_close_that_runs_out_of_time_leaves_the_engine_as_it_was(void **state) {
    (void)state;
    fig_gate g;
    const fig_step step = fig_gate_step(2);
    fig_gate_open(&g, FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_HOST));
    g.held = 1;
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_close_within(g.engine, 0), FIG_TIMEOUT);
    assert_int_equal(fig_engine_close_within(g.engine, 2000), FIG_TIMEOUT);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    sem_post(&g.leave), sem_post(&g.leave);
    fig_gate_wait(&g);
    assert_int_equal(g.calls, 2);
    assert_int_equal(fig_engine_close_within(g.engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(fig_engine_close_within(NULL, 0), FIG_OK);
    g.engine = NULL;
    fig_gate_close(&g);
}

/* On a lost GPU there is no work to wait for, and no memory to keep for it. */
static void a_lost_gpu_is_closed_at_once(void **state) {
    static _Alignas(16) fig_gate_x x;
    static _Alignas(16) fig_gate_act act;
    fig_graphs *graphs = fig_gate_graphs();
    const fig_step step = fig_gate_step(1);
    caller c = {0};
    fig_cuda_bench_set_up(state);
    assert_int_equal(fig_engine_open(&c.engine, graphs,
                                     FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)),
                     FIG_OK);
    assert_int_equal(fig_gate_bind(c.engine, "x", x, sizeof x), FIG_OK);
    assert_int_equal(fig_gate_bind(c.engine, "act", act, sizeof act), FIG_OK);
    assert_int_equal(fig_engine_register(c.engine, "gemm", call_the_engines, &c), FIG_OK);
    fig_cuda_bench_fake->work_ends = FIG_CU_ILLEGAL_ADDRESS;
    assert_int_equal(fig_engine_step(c.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(c.engine, -1), FIG_LOST);
    assert_int_equal(fig_engine_close_within(c.engine, FIG_HANG_US), FIG_OK);
    fig_graphs_destroy(graphs);
    assert_int_equal(fig_cuda_bench_tear_down(state), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(on_the_host_a_callback_gets_a_status_and_no_deadlock,
                                        fig_hang_watch, fig_hang_unwatch),
        cmocka_unit_test_setup_teardown(on_cuda_a_callback_gets_a_status_and_changes_nothing,
                                        fig_hang_watch, fig_hang_unwatch),
        cmocka_unit_test_setup_teardown(a_close_that_runs_out_of_time_leaves_the_engine_as_it_was,
                                        fig_hang_watch, fig_hang_unwatch),
        cmocka_unit_test_setup_teardown(a_lost_gpu_is_closed_at_once, fig_hang_watch,
                                        fig_hang_unwatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
