/* test_routes.c: tests the choice of a message's route: one shot for few bytes, two shots for more,
 * NCCL for many. A route that does not exist must never be chosen. */
#include "planner/routes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ALL = FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT | FIG_ROUTE_NCCL };

static uint32_t choose(uint32_t allowed, int32_t ranks, uint64_t bytes, int is_gathered) {
    const fig_route_wish wish = {allowed, ranks, bytes, is_gathered};
    return fig_routes_choose(&wish);
}

static void unknown_routes_go_in_one_shot(void **state) {
    (void)state;
    assert_int_equal(choose(0, 0, 0, 0), FIG_ROUTE_ONE_SHOT);
    assert_int_equal(choose(0, 8, UINT64_MAX, 0), FIG_ROUTE_ONE_SHOT);
}

/* As messages grow, two shots replace one shot, and NCCL replaces two shots. The order is never
 * reversed. */
static void larger_messages_go_from_one_shot_to_two_to_nccl(void **state) {
    (void)state;
    for (int32_t ranks = 2; ranks <= 8; ranks++) {
        uint32_t before = FIG_ROUTE_ONE_SHOT;
        for (uint64_t bytes = 16; bytes <= UINT64_C(1) << 40; bytes *= 2) {
            const uint32_t way = choose(ALL, ranks, bytes, 0);
            assert_true(way >= before);
            assert_int_equal(way == FIG_ROUTE_NCCL, bytes > fig_routes_own_limit(ranks));
            before = way;
        }
        assert_int_equal(choose(ALL, ranks, 16, 0), FIG_ROUTE_ONE_SHOT);
        assert_int_equal(before, FIG_ROUTE_NCCL);
    }
}

/* Checks for each message in a file that the chosen route is the fastest one, or close to it. */
static void check_measured(const char *path, int32_t ranks) {
    static const double SLACK = 1.02;
    char line[256];
    unsigned long long bytes;
    double us[3];
    int count = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) fail_msg("%s is not there", path);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, ",h200,");
        if (at == NULL ||
            sscanf(at, ",h200,%*d,%*d,%*d,%llu,%lf,%lf,%lf", &bytes, &us[0], &us[1], &us[2]) != 4)
            continue;
        const uint32_t way = choose(ALL, ranks, bytes, 0);
        const double took = us[way == FIG_ROUTE_NCCL ? 2 : way == FIG_ROUTE_TWO_SHOT];
        for (int i = 0; i < 3; i++)
            if (took > us[i] * SLACK)
                fail_msg("%s: %llu bytes go another way in %g us, theirs takes %g", path, bytes,
                         us[i], took);
        count++;
    }
    fclose(file);
    assert_true(count > 10);
}

static void every_message_goes_the_way_that_was_measured_to_be_the_quickest(void **state) {
    (void)state;
    check_measured("tools/bench/results/h200_allreduce_2.csv", 2);
    check_measured("tools/bench/results/h200_allreduce_4.csv", 4);
}

/* With more ranks, more bytes are sent at once, so two shots begin at the same size or a smaller
 * one. */
static void more_ranks_begin_two_shots_at_no_larger_size(void **state) {
    (void)state;
    for (uint64_t bytes = 16; bytes <= 1 << 20; bytes *= 2)
        for (int32_t ranks = 2; ranks < 8; ranks++)
            assert_true(choose(ALL, ranks + 1, bytes, 0) >= choose(ALL, ranks, bytes, 0));
}

static void a_way_that_is_not_allowed_is_never_taken(void **state) {
    (void)state;
    for (uint32_t allowed = 1; allowed <= ALL; allowed++)
        for (int32_t ranks = 1; ranks <= 9; ranks++)
            for (uint64_t bytes = 16; bytes <= 1 << 30; bytes *= 4) {
                const uint32_t way = choose(allowed, ranks, bytes, 0);
                assert_true((way & allowed) != 0 && (way & (way - 1)) == 0);
            }
}

static void nothing_is_gathered_in_two_shots(void **state) {
    (void)state;
    for (uint64_t bytes = 16; bytes <= 1 << 30; bytes *= 2) {
        assert_int_equal(choose(FIG_ROUTE_ONE_SHOT | FIG_ROUTE_TWO_SHOT, 8, bytes, 1),
                         FIG_ROUTE_ONE_SHOT);
        assert_int_not_equal(choose(ALL, 8, bytes, 1), FIG_ROUTE_TWO_SHOT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_routes_go_in_one_shot),
        cmocka_unit_test(larger_messages_go_from_one_shot_to_two_to_nccl),
        cmocka_unit_test(every_message_goes_the_way_that_was_measured_to_be_the_quickest),
        cmocka_unit_test(more_ranks_begin_two_shots_at_no_larger_size),
        cmocka_unit_test(a_way_that_is_not_allowed_is_never_taken),
        cmocka_unit_test(nothing_is_gathered_in_two_shots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
