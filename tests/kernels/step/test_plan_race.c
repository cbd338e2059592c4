/* test_plan_race.c: lets a host stage as fast as it can while the device takes plans. No plan may
 * be torn, lost, taken twice, or taken before it is staged. tests/gpu/mutants shows that each guard
 * is needed; tests/gpu/plan_race.c can run a million steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "include/figraph_unstable.h"
#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

enum { STEPS = 1000, STRETCH = 48, SLOTS = 2 };

static fig_graphs *graphs;
static fig_race race;

static int set_up(void **state) {
    (void)state;
    graphs = fig_race_graphs();
    return graphs == NULL;
}

static int tear_down(void **state) {
    (void)state;
    fig_graphs_destroy(graphs);
    return 0;
}

static void run(fig_engine_options options, uint64_t seed) {
    fig_engine_stats stats = {.size = sizeof stats};
    if (!fig_race_open(&race, graphs, &options, seed)) fail_msg("%s", race.sentence);
    if (!fig_race_run(&race, STEPS, STRETCH))
        fail_msg("seed %u: %s", (unsigned)seed, race.sentence);
    fig_engine_read_stats(race.engine, &stats);
    print_message(
        "%u launches, %u hasty, %u early, %u taken back, %u times busy, %u splits reused\n",
        (unsigned)race.launches, (unsigned)race.hasty, (unsigned)race.early,
        (unsigned)race.taken_back, (unsigned)stats.busy, (unsigned)stats.reused_splits);
    /* If one of these never happened, the test tested too little. */
    assert_true(stats.busy > 0 && stats.reused_splits > 0 && stats.page_bytes > 0);
    assert_true(race.early > 0 && race.taken_back > 0 && race.launches > STEPS);
    fig_race_close(&race);
}

static fig_engine_options checked(int32_t slots) {
    fig_engine_options options = fig_place_options();
    options.slots = slots;
    options.check_plans = 1;
    return options;
}

static void every_plan_is_taken_once_whole_and_in_order(void **state) {
    (void)state;
    run(checked(SLOTS), 1);
    run(checked(FIG_RACE_SLOTS), 2);
}

static void plans_are_taken_whole_without_checksums(void **state) {
    (void)state;
    fig_engine_options options = checked(SLOTS);
    options.check_plans = 0;
    run(options, 3);
}

/* The host device runs a graph's nodes in random order, so the look-ahead kernel runs before or
 * after the nodes beside it. */
static void plans_are_taken_whole_in_any_order_of_nodes(void **state) {
    (void)state;
    fig_engine_options options = checked(SLOTS);
    const fig_test_options test = {.size = sizeof test, .shuffle = 77};
    if (options.device == FIG_DEVICE_HOST) options.test = &test;
    run(options, 4);
}

/* ---- Torn plans are noticed ---------------------------------------------------------------- */

static fig_step four_rows(void) {
    static const int32_t lengths[] = {5, 17, 1, 90};
    return (fig_step){.size = sizeof(fig_step), .rows = 4, .kv_lengths = lengths};
}

/* Changes a byte of each section in turn, without the engine's knowledge. The changed step is lost,
 * and all later steps are right, since each plan here brings all sections. */
static void a_plan_of_which_a_byte_changed_runs_no_rows_and_is_counted(void **state) {
    (void)state;
    const fig_engine_options options = checked(SLOTS);
    const fig_step step = four_rows();
    uint64_t torn = 0;
    if (!fig_race_open(&race, graphs, &options, 5)) fail_msg("%s", race.sentence);
    for (uint32_t byte = sizeof(fig_plan_head); byte < 1u << 20; byte += 4) {
        uint8_t *slot =
            race.engine->ring.slots + torn % SLOTS * (size_t)race.engine->ring.slot_bytes;
        const fig_plan_head *head = (const fig_plan_head *)(void *)slot;
        race.engine->held.exec = -1; /* makes the next plan bring all sections */
        assert_int_equal(fig_engine_stage(race.engine, &step), FIG_OK);
        if (byte >= head->bytes) break;
        slot[byte] ^= 1;
        assert_int_equal(fig_engine_launch(race.engine), FIG_OK);
        assert_int_equal(fig_engine_wait(race.engine, FIG_HANG_US), FIG_DRIVER);
        assert_int_equal(fig_ring_torn(&race.engine->ring), ++torn);
    }
    assert_true(torn > 4 + 4 + 5);
    assert_int_equal(fig_engine_take_back(race.engine), FIG_OK);
    race.early = (int64_t)torn;
    fig_race_close(&race);
}

/* The plan after the torn one was staged before the host could know of the fault, so it is lost
 * too. It leaves out sections that the torn plan should have brought. */
static void the_sections_of_a_torn_plan_are_never_guessed(void **state) {
    (void)state;
    const fig_engine_options options = checked(SLOTS);
    static const int32_t others[] = {9, 9, 9, 9}, sequences[] = {3, 2, 1, 0};
    fig_step step = four_rows();
    float lse[4];
    const fig_span span = {.size = sizeof span, .name = "lse", .bytes = sizeof lse};
    if (!fig_race_open(&race, graphs, &options, 6)) fail_msg("%s", race.sentence);
    assert_int_equal(fig_engine_step(race.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(race.engine, FIG_HANG_US), FIG_OK);
    step.sequences = sequences;
    step.kv_lengths = others;
    assert_int_equal(fig_engine_stage(race.engine, &step), FIG_OK);
    race.engine->ring.slots[race.engine->ring.slot_bytes + sizeof(fig_plan_head)] ^= 1;
    assert_int_equal(fig_engine_stage(race.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_launch(race.engine), FIG_OK);
    assert_int_equal(fig_engine_launch(race.engine), FIG_OK);
    assert_int_equal(fig_engine_wait(race.engine, FIG_HANG_US), FIG_DRIVER);
    assert_int_equal(fig_ring_torn(&race.engine->ring), 1);
    assert_int_equal(fig_ring_late(&race.engine->ring), 1);
    assert_int_equal(fig_engine_read(race.engine, &span, lse), FIG_OK);
    assert_true(lse[2] == 0.0f && lse[3] > 6.4f && lse[3] < 6.6f); /* results of the first step */
    assert_int_equal(fig_engine_step(race.engine, &step), FIG_OK);
    assert_int_equal(fig_engine_wait(race.engine, FIG_HANG_US), FIG_OK);
    assert_int_equal(fig_engine_read(race.engine, &span, lse), FIG_OK);
    for (int32_t row = 0; row < 4; row++)
        assert_true(lse[row] > 3.16f && lse[row] < 3.18f);
    fig_race_close(&race);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_is_taken_once_whole_and_in_order),
        cmocka_unit_test(plans_are_taken_whole_without_checksums),
        cmocka_unit_test(plans_are_taken_whole_in_any_order_of_nodes),
        cmocka_unit_test(a_plan_of_which_a_byte_changed_runs_no_rows_and_is_counted),
        cmocka_unit_test(the_sections_of_a_torn_plan_are_never_guessed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
