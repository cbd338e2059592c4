/* test_fetch_tokens.c: tests the section that says how many of each row's queries are tokens: it
 * belongs to the plan that brings it, and no other plan depends on it. */
#include "kernels/step/fetch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/kernels/fetch_bench.h"
#include "tests/support/place.h"

enum { WITH_PLACE, WITHOUT }; /* buckets: with and without a place for that section */

static const fig_fetch_bench_scale small = {9, 7, FIG_CLASS_LIMIT};
static const fig_fetch_bench_scale large = {FIG_FETCH_BENCH_ROWS, FIG_FETCH_BENCH_WORKERS,
                                            FIG_CLASS_LIMIT};
static fig_fetch_bench_plan plan;

static void tokens_travel_with_any_plan_or_with_none(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)fig_place_cases(40); seed++) {
        fig_fetch_bench *b = fig_fetch_bench_open(seed, seed % 4 == 0 ? large : small, 0);
        for (uint64_t number = 1; number <= 6; number++) {
            fig_fetch_bench_draw(b, &plan, WITH_PLACE);
            if (number % 2 == 0) plan.head.sections &= ~(uint32_t)FIG_PLAN_HAS_POSITIONS;
            if (number % 3 != 0) plan.head.sections |= FIG_PLAN_HAS_TOKENS;
            if (seed % 2 == 0) plan.head.sections |= FIG_PLAN_HAS_CHECKSUM;
            fig_fetch_bench_publish(b, &plan, number);
            if (number % 4 == 0) fig_fetch_bench_look(b);
            fig_fetch_bench_fetch(b, WITH_PLACE, 1);
        }
        assert_true(b->words->replays == 6 && b->words->missed == 0);
        fig_fetch_bench_close(b);
    }
}

/* The sections that a device holds never include this one. So a plan without it is valid even after
 * a torn plan. */
static void a_plan_behind_a_torn_one_has_its_own_or_none(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(4, small, 0);
    for (uint64_t number = 1; number <= 4; number++) {
        fig_fetch_bench_draw(b, &plan, WITH_PLACE);
        if (number % 2 == 1) plan.head.sections |= FIG_PLAN_HAS_TOKENS | FIG_PLAN_HAS_CHECKSUM;
        plan.flaw = number % 2 == 1 ? FIG_FETCH_BROKEN : FIG_FETCH_FLAWLESS;
        uint8_t *slot = fig_fetch_bench_publish(b, &plan, number);
        if (number % 2 == 1) slot[sizeof(fig_plan_head)] ^= 1;
        fig_fetch_bench_fetch(b, WITH_PLACE, 1);
    }
    assert_true(b->words->torn == 2 && b->words->missed == 2);
    fig_fetch_bench_close(b);
}

static void tokens_for_which_a_plan_has_no_place_tear_it(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(3, small, 0);
    fig_fetch_bench_draw(b, &plan, WITHOUT);
    plan.head.sections |= FIG_PLAN_HAS_TOKENS;
    plan.flaw = FIG_FETCH_UNSOUND;
    fig_fetch_bench_publish(b, &plan, 1);
    fig_fetch_bench_fetch(b, WITHOUT, 1);
    assert_true(b->words->torn == 1);
    fig_fetch_bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_travel_with_any_plan_or_with_none),
        cmocka_unit_test(a_plan_behind_a_torn_one_has_its_own_or_none),
        cmocka_unit_test(tokens_for_which_a_plan_has_no_place_tear_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
