/* test_staged.c: tests that a staged step keeps the memory, the callbacks and the place in the
 * order that it had when it was staged, and that an engine can be closed after one of its own
 * invariants broke. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/gate.h"

static void check_message(const char *sentence) {
    if (strstr(fig_message(), sentence) == NULL) fail_msg("\"%s\"", fig_message());
}

static int is_filled_with(const void *memory, size_t bytes, uint8_t value) {
    const uint8_t *at = memory;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value) return 0;
    return 1;
}

/* ---- Order */

static void a_step_behind_a_staged_one_is_refused_and_changes_nothing(void **state) {
    (void)state;
    fig_gate g;
    const fig_step step = fig_gate_step(3);
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 1), FIG_OK);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_ORDER);
    check_message("step: launches still due from earlier steps: 1;");
    assert_int_equal(fig_gate_progress(g.engine).staged, 1);
    assert_int_equal(fig_gate_progress(g.engine).launched, 0);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(g.last.rows, 1);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(g.last.rows, 3);
    fig_gate_close(&g);
}

static void launches_left_of_a_horizon_are_steps_that_wait(void **state) {
    (void)state;
    fig_gate g;
    fig_step step = fig_gate_step(2);
    fig_gate_open(&g, NULL);
    step.horizon = 3;
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_ORDER);
    check_message("step: launches still due from earlier steps: 2;");
    assert_int_equal(fig_engine_take_back(g.engine), FIG_OK);
    assert_int_equal(fig_engine_step(g.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_take_back(g.engine), FIG_OK);
    fig_gate_wait(&g);
    fig_gate_close(&g);
}

/* ---- Memory and callbacks of a staged step */

/* As the comment of fig_engine_bind() in figraph.h says, a wait between bind and launch makes no
 * difference. */
static void a_staged_step_keeps_the_memory_that_a_bind_replaced(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_act other;
    fig_gate_open(&g, NULL);
    fig_gate_fill(g.x, 1);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    assert_int_equal(fig_gate_bind(g.engine, "act", other, sizeof other), FIG_OK);
    fig_gate_wait(&g);
    memset(g.act, 0x55, sizeof g.act);
    memset(other, 0x55, sizeof other);
    const fig_progress before = fig_gate_progress(g.engine);
    assert_true(before.launched < before.staged);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    fig_gate_check(g.x, g.act, 4);
    assert_true(is_filled_with(other, sizeof other, 0x55));

    /* At this point every staged step has been launched and has ended, so the old memory is
     * free. */
    const fig_progress after = fig_gate_progress(g.engine);
    assert_int_equal(after.launched, after.staged);
    memset(g.act, 0x55, sizeof g.act);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    fig_gate_check(g.x, other, 4);
    assert_true(is_filled_with(g.act, sizeof g.act, 0x55));
    fig_gate_close(&g);
}

static void a_staged_step_keeps_the_callback_that_another_replaced(void **state) {
    (void)state;
    fig_gate g, other;
    fig_gate_open(&g, NULL);
    fig_gate_init(&other);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    assert_int_equal(fig_engine_register(g.engine, "gemm", fig_gate_callback, &other), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(g.calls, 1);
    assert_int_equal(other.calls, 0);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    assert_int_equal(g.calls, 1);
    assert_int_equal(other.calls, 1);
    fig_gate_close(&g);
}

static void memory_of_a_step_that_was_taken_back_is_free(void **state) {
    (void)state;
    fig_gate g;
    static _Alignas(16) fig_gate_act other;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    assert_int_equal(fig_gate_bind(g.engine, "act", other, sizeof other), FIG_OK);
    assert_int_equal(fig_engine_take_back(g.engine), FIG_OK);
    fig_gate_wait(&g);
    memset(g.act, 0x55, sizeof g.act);
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    assert_true(is_filled_with(g.act, sizeof g.act, 0x55));
    fig_gate_close(&g);
}

/* ---- Broken invariants */

/* Breaks an invariant on purpose, as a bug in the library would: a plan has lost its exec. All
 * builds report this, release builds too, since the device interface is a boundary. */
static void a_launch_without_an_exec_gives_a_status_and_the_engine_can_be_closed(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    fig_engine_plan *plan = fig_engine_plan_of(g.engine, g.engine->running);
    fig_dev_exec *exec = plan->exec;
    plan->exec = NULL;
    assert_int_equal(fig_engine_launch(g.engine), FIG_FAULT);
    assert_string_equal(fig_message(),
                        "a fault of libfigraph's own: host device: an exec of another stream, or "
                        "none");
    plan->exec = exec;
    assert_int_equal(fig_engine_launch(g.engine), FIG_OK);
    fig_gate_wait(&g);
    assert_int_equal(fig_gate_stage(&g, 4), FIG_OK);
    fig_engine_plan_of(g.engine, g.engine->running)->exec = NULL;
    assert_int_equal(fig_engine_launch(g.engine), FIG_FAULT);
    fig_gate_close(&g);
}

/* Passes launches to the device with an unknown operation, with params that are too short, and with
 * an unknown family. */
static void a_device_refuses_unknown_operations_and_families_and_short_params(void **state) {
    (void)state;
    fig_gate g;
    fig_dev_graph *graph;
    uint8_t params[FIG_PARAMS_LIMIT] = {0};
    fig_gate_open(&g, NULL);
    const fig_device_api *api = g.engine->api;
    assert_int_equal(api->graph_create(g.engine->dev, &graph), FIG_OK);
    fig_dev_launch launch = {.op = (fig_op)999, .params = params, .params_bytes = 8};
    const fig_dev_after after = {NULL, 0};
    assert_int_equal(api->graph_kernel(g.engine->dev, graph, &launch, after), FIG_FAULT);
    launch.op = FIG_OP_GATED;
    assert_int_equal(api->graph_kernel(g.engine->dev, graph, &launch, after), FIG_FAULT);
    check_message("a fault of libfigraph's own: device: a launch of operation 1, family 0, with 8 "
                  "bytes of params");
    launch.params_bytes = fig_kernel_table[FIG_OP_GATED].params_bytes;
    launch.family = FIG_FAMILY_LIMIT;
    assert_int_equal(api->graph_kernel(g.engine->dev, graph, &launch, after), FIG_FAULT);
    api->graph_destroy(g.engine->dev, graph);
    fig_gate_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_behind_a_staged_one_is_refused_and_changes_nothing),
        cmocka_unit_test(launches_left_of_a_horizon_are_steps_that_wait),
        cmocka_unit_test(a_staged_step_keeps_the_memory_that_a_bind_replaced),
        cmocka_unit_test(a_staged_step_keeps_the_callback_that_another_replaced),
        cmocka_unit_test(memory_of_a_step_that_was_taken_back_is_free),
        cmocka_unit_test(a_launch_without_an_exec_gives_a_status_and_the_engine_can_be_closed),
        cmocka_unit_test(a_device_refuses_unknown_operations_and_families_and_short_params),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
