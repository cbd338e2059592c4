/* test_late_host.c: tests a host that is late, goes away or meets a fault: its steps have defined
 * results, and nothing hangs. tests/gpu/late_host.c tests this for segments in a caller's graph. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

enum { LATE_US = 100000, ROWS = 3 };

static fig_graphs *graphs;
static fig_race race; /* only the race's engine is used */
static float *lse;    /* [FIG_RACE_ROWS], in the test's memory, which outlives the engine */
static const int32_t lengths[ROWS] = {5, 0, 90};

static int set_up(void **state) {
    fig_hang_watch(state);
    graphs = fig_race_graphs();
    lse = fig_place_allocate(FIG_RACE_ROWS * sizeof *lse);
    return graphs == NULL || lse == NULL;
}

static int tear_down(void **state) {
    fig_graphs_destroy(graphs);
    fig_place_free(lse);
    return fig_hang_unwatch(state);
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != FIG_OK) fail_msg("%s", fig_message());                                       \
    } while (0)

static fig_engine *open_engine(void) {
    const fig_engine_options options = fig_place_options();
    if (!fig_race_open(&race, graphs, &options, 1)) fail_msg("%s", race.sentence);
    OK(fig_engine_bind(race.engine, FIG_OPTIONS(fig_binding, .name = "lse", .address = lse,
                                                .bytes = FIG_RACE_ROWS * sizeof *lse)));
    for (int32_t row = 0; row < FIG_RACE_ROWS; row++)
        lse[row] = -1;
    return race.engine;
}

static fig_step three_rows(int32_t horizon) {
    return (fig_step){
        .size = sizeof(fig_step), .rows = ROWS, .kv_lengths = lengths, .horizon = horizon};
}

/* Checks the results of a launch whose rows have grown by this many tokens. */
static void check_grown(int32_t grown) {
    for (int32_t row = 0; row < ROWS; row++) {
        const float want = lengths[row] == 0 ? -INFINITY : log2f((float)(lengths[row] + grown));
        if (lse[row] == want || fabsf(lse[row] - want) < 1e-3f) continue;
        fail_msg("lse[%d] is %g, want %g", (int)row, (double)lse[row], (double)want);
    }
    assert_true(lse[ROWS] == -1);
}

static void check_not_run(void) {
    for (int32_t row = 0; row < ROWS; row++)
        assert_true(lse[row] == -1);
}

/* ---- Late launches ------------------------------------------------------------------------- */

static void a_launch_long_after_its_stage_is_right(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step step = three_rows(1);
    OK(fig_engine_stage(engine, &step));
    fig_hang_pause(LATE_US);
    check_not_run();
    OK(fig_engine_launch(engine));
    OK(fig_engine_wait(engine, FIG_HANG_US));
    check_grown(0);
    fig_race_close(&race);
}

static void a_horizon_goes_on_after_a_long_pause(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step step = three_rows(4), next = three_rows(1);
    OK(fig_engine_stage(engine, &step));
    for (int32_t grown = 0; grown < 4; grown++) {
        OK(fig_engine_launch(engine));
        fig_hang_pause(LATE_US);
        OK(fig_engine_wait(engine, FIG_HANG_US));
        check_grown(grown);
        /* This plan goes after the rest of the horizon. */
        if (grown == 1) OK(fig_engine_stage(engine, &next));
    }
    fig_hang_pause(LATE_US);
    OK(fig_engine_launch(engine));
    OK(fig_engine_wait(engine, FIG_HANG_US));
    check_grown(0);
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    fig_race_close(&race);
}

/* When a late launch comes, its plan is either where the previous launch prefetched it or still in
 * the ring. */
static void steps_with_pauses_anywhere_are_right(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step once = three_rows(1), twice = three_rows(2);
    OK(fig_engine_stage(engine, &twice));
    OK(fig_engine_launch(engine));
    fig_hang_pause(LATE_US / 2);
    OK(fig_engine_stage(engine, &once));
    fig_hang_pause(LATE_US / 2);
    /* the second launch of the first plan; it prefetches the next plan */
    OK(fig_engine_launch(engine));
    OK(fig_engine_wait(engine, FIG_HANG_US));
    check_grown(1);
    OK(fig_engine_launch(engine));
    OK(fig_engine_wait(engine, FIG_HANG_US));
    check_grown(0);
    fig_race_close(&race);
}

static void a_step_taken_back_late_is_never_run(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t others[ROWS] = {50, 60, 70};
    const fig_step first = three_rows(1), third = three_rows(2);
    fig_step second = three_rows(1);
    second.kv_lengths = others;
    OK(fig_engine_stage(engine, &first));
    OK(fig_engine_stage(engine, &second));
    OK(fig_engine_launch(engine));
    OK(fig_engine_wait(engine, FIG_HANG_US)); /* the first step has prefetched the second plan */
    OK(fig_engine_take_back(engine));
    OK(fig_engine_stage(engine, &third));
    for (int32_t grown = 0; grown < 2; grown++) {
        OK(fig_engine_launch(engine));
        OK(fig_engine_wait(engine, FIG_HANG_US));
        check_grown(grown);
    }
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    fig_race_close(&race);
}

/* Plans after a horizon that has begun can be taken back; the horizon itself stays. */
static void taking_back_leaves_a_horizon_that_is_under_way(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step four = three_rows(4), one = three_rows(1);
    OK(fig_engine_stage(engine, &four));
    OK(fig_engine_launch(engine));
    OK(fig_engine_stage(engine, &one));
    OK(fig_engine_take_back(engine));
    for (int32_t grown = 1; grown < 4; grown++) {
        OK(fig_engine_launch(engine));
        OK(fig_engine_wait(engine, FIG_HANG_US));
        check_grown(grown);
    }
    assert_int_equal(fig_engine_launch(engine), FIG_ORDER);
    fig_race_close(&race);
}

/* For each take_back, the engine must make a separate launch that tells the device. The device may
 * have no room for that launch. */
static void taking_back_succeeds_however_full_the_device_is(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    fig_status status = FIG_OK;
    int taken_back = 0;
    g.held = 1;
    fig_gate_run(&g, 2);
    sem_wait(&g.entered);
    while ((status = fig_gate_stage(&g, 3)) == FIG_OK && taken_back < 1000) {
        assert_int_equal(fig_engine_take_back(g.engine), FIG_OK);
        taken_back++;
    }
    assert_int_equal(status, FIG_BUSY);
    /* no step is staged, so there is nothing to take back */
    assert_int_equal(fig_engine_take_back(g.engine), FIG_ORDER);
    sem_post(&g.leave);
    fig_gate_wait(&g);
    g.held = 0;
    fig_gate_run(&g, 4);
    fig_gate_wait(&g);
    assert_int_equal(g.last.rows, 4);
    assert_int_equal(g.calls, 2);
    assert_int_equal(fig_gate_stats(g.engine).taken_back, taken_back);
    fig_gate_close(&g);
}

/* A caller's graph may fetch a plan just as it is taken back. The fetch reports the plan as
 * consumed first, and the step as launched only later. */
static void a_plan_that_is_being_fetched_is_not_taken_back(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    fig_fetch_words *words = g.engine->pinned.host;
    assert_int_equal(fig_gate_stage(&g, 2), FIG_OK);
    words->consumed = 1;
    assert_int_equal(fig_engine_take_back(g.engine), FIG_ORDER);
    assert_string_equal(fig_message(), "take back: a graph of yours has fetched the plan");
    assert_int_equal(fig_gate_progress(g.engine).staged, 1);
    assert_int_equal(fig_gate_stats(g.engine).taken_back, 0);
    words->consumed = 0; /* as if no graph had fetched the plan */
    assert_int_equal(fig_engine_take_back(g.engine), FIG_OK);
    fig_gate_run(&g, 3);
    fig_gate_wait(&g);
    assert_int_equal(g.last.rows, 3);
    fig_gate_close(&g);
}

/* ---- Steps that are left at close ---------------------------------------------------------- */

static void steps_in_flight_at_close_end_first(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    g.held = 1;
    fig_gate_run(&g, 2);
    fig_gate_run(&g, 3);
    fig_gate_run(&g, 4);
    for (int i = 0; i < 3; i++)
        fig_gate_leave_later(&g);
    fig_engine_close(g.engine);
    g.engine = NULL;
    assert_int_equal(g.calls, 3);
    fig_gate_check(g.x, g.act, 4);
    fig_gate_close(&g);
}

static void many_steps_in_flight_at_close_end_first(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    static const int32_t shorter[ROWS] = {5, 0, 70};
    fig_step step = three_rows(50);
    step.kv_lengths = shorter;
    OK(fig_engine_stage(engine, &step));
    for (int i = 0; i < 50; i++)
        OK(fig_engine_launch(engine));
    fig_race_close(&race);
    assert_true(fabsf(lse[0] - log2f(5 + 49)) < 1e-3f);
    assert_true(fabsf(lse[2] - log2f(70 + 49)) < 1e-3f);
}

static void a_step_staged_at_close_never_runs(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step step = three_rows(1);
    OK(fig_engine_stage(engine, &step));
    OK(fig_engine_stage(engine, &step));
    fig_race_close(&race);
    check_not_run();
}

static void a_horizon_half_used_at_close_ends_there(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step step = three_rows(4);
    OK(fig_engine_stage(engine, &step));
    OK(fig_engine_launch(engine));
    OK(fig_engine_launch(engine));
    fig_race_close(&race);
    check_grown(1);
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Polls until the device has completed this many steps. Returns the last progress. */
static fig_progress poll_until(fig_engine *engine, int64_t completed) {
    fig_progress progress = {.size = sizeof progress};
    while (progress.completed < completed) {
        OK(fig_engine_poll(engine, &progress));
        fig_hang_pause(1000);
    }
    return progress;
}

static void a_loop_goes_on_after_a_call_that_failed(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    fig_gate_run(&g, 2);
    assert_int_equal(poll_until(g.engine, 1).fault, FIG_OK);
    g.answer = 7;
    fig_gate_run(&g, 3);
    assert_int_equal(poll_until(g.engine, 2).fault, FIG_CALLBACK);
    g.answer = 0;
    for (int32_t rows = 1; rows <= 4; rows++) {
        fig_gate_run(&g, rows);
        /* Polls report the fault until a wait has reported it. */
        assert_int_equal(poll_until(g.engine, 2 + rows).fault, FIG_CALLBACK);
    }
    fig_gate_check(g.x, g.act, 4);
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_CALLBACK);
    assert_string_equal(fig_message(), "step 2: call \"gemm\" returned 7");
    assert_int_equal(fig_engine_wait(g.engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(fig_gate_progress(g.engine).fault, FIG_OK);
    fig_gate_close(&g);
}

/* Launches a replay without a staged step, as a caller's graph might do. */
static void a_loop_goes_on_after_a_replay_of_nothing(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const fig_step step = three_rows(2);
    fig_progress progress = {.size = sizeof progress};
    OK(fig_engine_prepare(engine, 0));
    for (int32_t bucket = 0; bucket < 3; bucket++)
        OK(engine->api->exec_launch(
            engine->dev, engine->execs.of[fig_engine_exec_of(engine, (uint32_t)bucket)].exec,
            engine->stream));
    while (progress.fault == FIG_OK) {
        OK(fig_engine_poll(engine, &progress));
        fig_hang_pause(1000);
    }
    assert_int_equal(progress.fault, FIG_DRIVER);
    assert_int_equal(progress.launched, 0);
    check_not_run();
    OK(fig_engine_stage(engine, &step));
    OK(fig_engine_launch(engine));
    OK(fig_engine_launch(engine));
    OK(fig_engine_poll(engine, &progress));
    assert_int_equal(progress.fault, FIG_DRIVER);
    assert_int_equal(progress.launched, 2);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_DRIVER);
    assert_string_equal(fig_message(), "3 replays found no plan staged and ran no rows");
    check_grown(1);
    OK(fig_engine_wait(engine, FIG_HANG_US));
    OK(fig_engine_poll(engine, &progress));
    assert_int_equal(progress.fault, FIG_OK);
    fig_race_close(&race);
}

static void a_fault_at_close_does_not_hang(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    g.answer = 1;
    fig_gate_run(&g, 2);
    fig_gate_run(&g, 2);
    fig_engine_close(g.engine);
    g.engine = NULL;
    assert_int_equal(g.calls, 2);
    fig_gate_close(&g);
}

#define LATE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        LATE_TEST(a_launch_long_after_its_stage_is_right),
        LATE_TEST(a_horizon_goes_on_after_a_long_pause),
        LATE_TEST(steps_with_pauses_anywhere_are_right),
        LATE_TEST(a_step_taken_back_late_is_never_run),
        LATE_TEST(taking_back_leaves_a_horizon_that_is_under_way),
        LATE_TEST(taking_back_succeeds_however_full_the_device_is),
        LATE_TEST(a_plan_that_is_being_fetched_is_not_taken_back),
        LATE_TEST(steps_in_flight_at_close_end_first),
        LATE_TEST(many_steps_in_flight_at_close_end_first),
        LATE_TEST(a_step_staged_at_close_never_runs),
        LATE_TEST(a_horizon_half_used_at_close_ends_there),
        LATE_TEST(a_loop_goes_on_after_a_call_that_failed),
        LATE_TEST(a_loop_goes_on_after_a_replay_of_nothing),
        LATE_TEST(a_fault_at_close_does_not_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
