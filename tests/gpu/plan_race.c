/* plan_race.c: lets a host stage as fast as it can while a GPU takes the plans, for a given number
 * of steps.
 *
 *     build/release/tests/gpu/plan_race [--steps N] [--stretch N] [--seed N]
 *
 * FIG_DEVICE=cuda --steps 1000000 is the long run: a million steps in a ring of two slots with
 * every plan's checksum checked, then 100 000 with four slots, and 100 000 without the check.
 * Lengths, sequences, pages and horizons change in every step (race.h). No plan may be torn, lost,
 * taken twice or taken by a replay without a staged step. tests/gpu/mutants removes each guard and
 * expects this program to fail. It also runs on the host. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/steps/race.h"

static long long steps = 20000, stretch = 64, seed = 1;
static fig_graphs *graphs;
static fig_race race;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run(int32_t slots, int32_t check_plans, int64_t count) {
    fig_engine_options options = fig_place_options();
    fig_engine_stats stats = {.size = sizeof stats};
    options.slots = slots;
    options.check_plans = check_plans;
    if (!fig_race_open(&race, graphs, &options, (uint64_t)seed)) fail_msg("%s", race.sentence);
    const double begin = now_s();
    if (!fig_race_run(&race, count, (int32_t)stretch))
        fail_msg("seed %lld: %s", seed, race.sentence);
    const double us = (now_s() - begin) * 1e6 / (double)race.launches;
    fig_engine_read_stats(race.engine, &stats);
    print_message("race: %d slots, %s: %" PRId64 " launches of %.1f us, 0 torn, 0 lost; %" PRId64
                  " with nothing staged ran no rows; %" PRId64 " taken back, %" PRId64
                  " times full, %" PRId64 " splits reused, %" PRId64 " bytes of pages ahead\n",
                  (int)slots, check_plans ? "checked" : "unchecked", race.launches, us, race.early,
                  race.taken_back, stats.busy, stats.reused_splits, stats.page_bytes);
    assert_true(race.early > 0 && race.taken_back > 0 && stats.busy > 0);
    fig_race_close(&race);
}

static void no_plan_is_torn_or_lost_in_a_ring_of_two_slots(void **state) {
    (void)state;
    run(2, 1, steps);
}

static void no_plan_is_torn_or_lost_in_a_ring_of_four_slots(void **state) {
    (void)state;
    run(FIG_RACE_SLOTS, 1, steps / 10);
}

static void no_plan_is_torn_or_lost_without_checksums(void **state) {
    (void)state;
    run(2, 0, steps / 10);
}

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

static int read_options(int count, char **words) {
    for (int i = 1; i < count; i += 2) {
        long long *option = strcmp(words[i], "--steps") == 0     ? &steps
                            : strcmp(words[i], "--stretch") == 0 ? &stretch
                            : strcmp(words[i], "--seed") == 0    ? &seed
                                                                 : NULL;
        if (option == NULL || i + 1 == count) return 0;
        *option = atoll(words[i + 1]);
    }
    return steps >= 1000 && stretch >= 1 && stretch <= 1 << 20;
}

int main(int count, char **words) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plan_is_torn_or_lost_in_a_ring_of_two_slots),
        cmocka_unit_test(no_plan_is_torn_or_lost_in_a_ring_of_four_slots),
        cmocka_unit_test(no_plan_is_torn_or_lost_without_checksums),
    };
    if (!read_options(count, words)) {
        fprintf(stderr, "plan_race [--steps N, 1000 at least] [--stretch N] [--seed N]\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
