/* late_host.c: tests, on a GPU, a host that stages late, or closes its engine, while a caller's
 * captured graphs still launch its steps: a launch without a plan runs no rows, and nothing hangs.
 *
 *     build/release/tests/gpu/late_host [--pauses N]
 *
 * FIG_DEVICE=cuda --pauses 600 is the long run: two minutes with pauses of 100 ms in which the GPU
 * is idle. test_late_host.c, which also runs on a GPU, tests the cases without a caller's graph.
 * Invariant: lse is in the test's own memory, so that it can be read after the engine was
 * closed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/driver/gpu_caller.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

enum { LATE_MS = 100, ROWS = 3, REPLAYS = 100 };

static int pauses = 10;
static int32_t bucket; /* the number of the bucket that serves a step of ROWS rows */
static const int32_t lengths[ROWS] = {5, 0, 90};
static fig_graphs *graphs;
static fig_race race; /* only race.engine is used */
static float *lse;    /* [FIG_RACE_ROWS] */

static int open_driver(void **state) {
    (void)state;
    if (fig_caller_open(&fig_gpu_caller) != 0) return 1;
    graphs = fig_race_graphs();
    fig_plan_report report = {.size = sizeof report};
    OK(fig_graphs_plan(graphs, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths),
                       &report));
    bucket = report.bucket;
    return 0;
}

/* Does not free graphs or the context: if a captured graph outlives its engine, the engine's memory
 * is kept until the process ends. */
static int close_driver(void **state) {
    (void)state;
    return fig_gpu_caller.stream == NULL ||
           fig_gpu_caller.cu->StreamDestroy(fig_gpu_caller.stream) != FIG_CU_SUCCESS;
}

/* If a test hangs, SIGALRM ends the program, which counts as a failure. */
static int set_up(void **state) {
    (void)state;
    alarm(FIG_HANG_S);
    lse = fig_place_allocate(FIG_RACE_ROWS * sizeof *lse);
    return lse == NULL;
}

static int tear_down(void **state) {
    (void)state;
    fig_place_free(lse);
    alarm(0);
    return 0;
}

/* ---- Steps --------------------------------------------------------------------------------- */

static fig_engine *open_engine(void) {
    const fig_engine_options options = fig_place_options();
    if (!fig_race_open(&race, graphs, &options, 1)) fail_msg("%s", race.sentence);
    OK(fig_engine_bind(race.engine, FIG_OPTIONS(fig_binding, .name = "lse", .address = lse,
                                                .bytes = FIG_RACE_ROWS * sizeof *lse)));
    OK(fig_engine_prepare(race.engine, 0));
    return race.engine;
}

static void stage(int32_t horizon) {
    OK(fig_engine_stage(race.engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths,
                                                 .bucket = bucket, .horizon = horizon)));
}

static void forget_lse(void) {
    for (int32_t row = 0; row < FIG_RACE_ROWS; row++)
        lse[row] = -1;
}

/* Checks the result of a launch in which the rows have grown by this many tokens. */
static void check_grown(int32_t grown) {
    for (int32_t row = 0; row < ROWS; row++) {
        const float want = lengths[row] == 0 ? -INFINITY : log2f((float)(lengths[row] + grown));
        if (lse[row] == want || fabsf(lse[row] - want) < 1e-3f) continue;
        fail_msg("lse[%d] is %g, want %g", (int)row, (double)lse[row], (double)want);
    }
}

static void check_not_run(void) {
    for (int32_t row = 0; row < FIG_RACE_ROWS; row++)
        if (lse[row] != -1) fail_msg("lse[%d] is %g: rows have run", (int)row, (double)lse[row]);
}

/* ---- A caller's graph ---------------------------------------------------------------------- */

typedef struct captured {
    fig_cu_graph graph;
    fig_cu_exec exec;
} captured;

static captured capture(void) {
    captured made = {NULL, NULL};
    fig_cu_instantiate_params params = {.flags = 0};
    void *const on = fig_gpu_caller.stream;
    CU(StreamBeginCapture, fig_gpu_caller.stream, 0);
    OK(fig_engine_append(race.engine, FIG_OPTIONS(fig_append, .bucket = bucket, .stream = &on)));
    CU(StreamEndCapture, fig_gpu_caller.stream, &made.graph);
    CU(GraphInstantiateWithParams, &made.exec, made.graph, &params);
    return made;
}

static void drop(const captured *made) {
    CU(GraphExecDestroy, made->exec);
    CU(GraphDestroy, made->graph);
}

static void replay(const captured *made, int times) {
    for (int i = 0; i < times; i++)
        CU(GraphLaunch, made->exec, fig_gpu_caller.stream);
    CU(StreamSynchronize, fig_gpu_caller.stream);
}

/* fig_engine_close takes back staged steps and the rest of a horizon; later launches find no
 * plan. */
static void a_graph_that_outlives_its_engine_runs_no_rows(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const captured made = capture();
    stage(4);
    replay(&made, 1);
    check_grown(0);
    replay(&made, 1);
    check_grown(1);
    stage(1);
    fig_engine_close(engine);
    forget_lse();
    replay(&made, REPLAYS);
    check_not_run();
    drop(&made);
}

static void a_graph_ends_if_its_engine_closes_while_it_runs(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const captured made = capture();
    stage(4);
    for (int i = 0; i < REPLAYS; i++)
        CU(GraphLaunch, made.exec, fig_gpu_caller.stream);
    fig_engine_close(engine);
    CU(StreamSynchronize, fig_gpu_caller.stream);
    forget_lse();
    replay(&made, REPLAYS);
    check_not_run();
    drop(&made);
}

static void a_loop_goes_on_after_a_replay_that_came_too_early(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const captured made = capture();
    fig_progress progress = {.size = sizeof progress};
    forget_lse();
    replay(&made, 3);
    check_not_run();
    OK(fig_engine_poll(engine, &progress));
    assert_int_equal(progress.fault, FIG_DRIVER);
    assert_int_equal(progress.launched, 0);
    stage(2);
    replay(&made, 2);
    check_grown(1);
    OK(fig_engine_poll(engine, &progress));
    /* poll repeats the fault until a wait has returned it */
    assert_int_equal(progress.fault, FIG_DRIVER);
    assert_int_equal(progress.launched, 2);
    assert_int_equal(fig_engine_wait(engine, FIG_HANG_US), FIG_DRIVER);
    OK(fig_engine_wait(engine, FIG_HANG_US));
    drop(&made);
    fig_race_close(&race);
}

static void a_graph_launched_long_after_its_stage_is_right(void **state) {
    (void)state;
    open_engine();
    const captured made = capture();
    const struct timespec late = {0, LATE_MS * 1000000L};
    for (int i = 0; i < pauses; i++) {
        stage(2);
        if (i % 2 == 0) nanosleep(&late, NULL);
        replay(&made, 1);
        check_grown(0);
        if (i % 2 == 1) nanosleep(&late, NULL);
        replay(&made, 1);
        check_grown(1);
    }
    OK(fig_engine_wait(race.engine, FIG_HANG_US));
    drop(&made);
    fig_race_close(&race);
}

/* ---- Graphs of the engine's own ------------------------------------------------------------ */

static void a_launch_long_after_the_one_before_is_right(void **state) {
    (void)state;
    fig_engine *engine = open_engine();
    const struct timespec late = {0, LATE_MS * 1000000L};
    for (int i = 0; i < pauses; i++) {
        stage(3);
        for (int32_t grown = 0; grown < 3; grown++) {
            if (i % 3 == grown) nanosleep(&late, NULL);
            OK(fig_engine_launch(engine));
            if (grown != i % 2) continue;
            stage(1); /* queued behind the rest of the horizon */
            OK(fig_engine_take_back(engine));
        }
        OK(fig_engine_wait(engine, FIG_HANG_US));
        check_grown(2);
    }
    fig_race_close(&race);
}

static void thousands_of_steps_in_flight_at_close_end_first(void **state) {
    (void)state;
    enum { HORIZON = 30, PLANS = 100 };
    fig_engine *engine = open_engine();
    for (int plan = 0; plan < PLANS; plan++) {
        const fig_step step = {.size = sizeof step,
                               .rows = ROWS,
                               .kv_lengths = lengths,
                               .bucket = bucket,
                               .horizon = HORIZON};
        while (fig_engine_stage(engine, &step) == FIG_BUSY)
            ;
        for (int i = 0; i < HORIZON; i++)
            OK(fig_engine_launch(engine));
    }
    forget_lse();
    fig_race_close(&race);
    check_grown(HORIZON - 1);
}

#define LATE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int count, char **words) {
    const struct CMUnitTest tests[] = {
        LATE_TEST(a_loop_goes_on_after_a_replay_that_came_too_early),
        LATE_TEST(a_graph_launched_long_after_its_stage_is_right),
        LATE_TEST(a_launch_long_after_the_one_before_is_right),
        LATE_TEST(thousands_of_steps_in_flight_at_close_end_first),
        LATE_TEST(a_graph_that_outlives_its_engine_runs_no_rows),
        LATE_TEST(a_graph_ends_if_its_engine_closes_while_it_runs),
    };
    if (count == 3 && strcmp(words[1], "--pauses") == 0) pauses = atoi(words[2]);
    if ((count != 1 && count != 3) || pauses < 1 || pauses > 1000) {
        fprintf(stderr, "late_host [--pauses N, 1 to 1000]\n");
        return 2;
    }
    if (fig_place_device() != FIG_DEVICE_CUDA) {
        fprintf(stderr, "late_host: FIG_DEVICE must be cuda\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
