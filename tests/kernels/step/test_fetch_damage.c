/* test_fetch_damage.c: tests that no plan runs behind a damaged one unless the host knew of the
 * damage when it staged the plan, and that a damaged plan cannot pass as one of another bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/kernels/fetch_bench.h"
#include "tests/support/place.h"

static const fig_fetch_bench_scale tiny = {2, 3, 1}, small = {20, 9, 2};
static fig_fetch_bench_plan plan;

static uint8_t *publish(fig_fetch_bench *b, uint32_t bucket, uint64_t number, uint32_t sections) {
    fig_fetch_bench_draw(b, &plan, bucket);
    plan.head.sections |= sections;
    return fig_fetch_bench_publish(b, &plan, number);
}

/* Changes the last word of a published plan, which has a checksum. */
static void damage(fig_fetch_bench *b, uint64_t number, uint8_t *slot) {
    slot[plan.head.bytes - 1] ^= 1;
    b->slots[number % FIG_FETCH_BENCH_SLOTS].flaw = FIG_FETCH_BROKEN;
}

/* Plans 2 and 3 are in the ring before the host can know that plan 1 is damaged. They bring all
 * sections, but not the page table entries that plan 1 should have brought. */
static void a_plan_staged_before_the_damage_was_known_runs_no_rows(void **state) {
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        fig_fetch_bench *b = fig_fetch_bench_open(1, small, 0);
        damage(b, 1, publish(b, 0, 1, FIG_PLAN_HAS_CHECKSUM));
        publish(b, 0, 2, 0);
        publish(b, 0, 3, FIG_PLAN_HAS_CHECKSUM);
        for (uint64_t number = 1; number <= 3; number++) {
            if (looks) fig_fetch_bench_look(b);
            fig_fetch_bench_fetch(b, 0, 1);
            assert_true(b->words->missed == number && b->words->consumed == number);
        }
        assert_true(b->words->torn == 1 && b->words->late == 2);
        publish(b, 0, 4, 0);
        if (looks) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->missed == 3 && b->words->replays == 4);
        fig_fetch_bench_close(b);
    }
}

/* Otherwise a host that runs ahead would never catch up. */
static void late_plans_do_not_make_later_plans_late(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(2, small, 0);
    damage(b, 1, publish(b, 0, 1, FIG_PLAN_HAS_CHECKSUM));
    publish(b, 0, 2, 0);
    fig_fetch_bench_fetch(b, 0, 1);
    publish(b, 0, 3, 0); /* the host knows of plan 1, but not what will become of plan 2 */
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 2 && b->words->torn == 1 && b->words->late == 1);
    fig_fetch_bench_close(b);
}

/* The host must learn of it, because it queues the entries of damaged plans alone. */
static void a_late_plan_that_is_damaged_counts_as_damaged(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(3, small, 0);
    damage(b, 1, publish(b, 0, 1, FIG_PLAN_HAS_CHECKSUM));
    damage(b, 2, publish(b, 0, 2, FIG_PLAN_HAS_CHECKSUM));
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->torn == 2 && b->words->late == 0);
    fig_fetch_bench_close(b);
}

static void the_stamp_of_a_plan_wraps(void **state) {
    (void)state;
    for (uint32_t late = 0; late < 2; late++) {
        fig_fetch_bench *b = fig_fetch_bench_open(4, small, 0);
        b->is.torn = b->state->torn = 65536 + late;
        fig_fetch_bench_draw(b, &plan, 0);
        plan.late = late;
        fig_fetch_bench_publish(b, &plan, 1);
        assert_int_equal(plan.head.sections >> 16, 0);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->late == late);
        plan.late = 0;
        fig_fetch_bench_close(b);
    }
}

/* If the damage is in the word that names the bucket, no launch would ever take the plan. */
static void a_damaged_plan_of_no_bucket_does_not_stay_for_good(void **state) {
    (void)state;
    for (int n = 0; n < 8; n++) {
        const int is_short = n & 1, looks = n >> 1 & 1, is_known = n >> 2;
        fig_fetch_bench *b = fig_fetch_bench_open(5, is_short ? tiny : small, 0);
        uint8_t *slot = publish(b, 0, 1, is_short ? 0 : FIG_PLAN_HAS_CHECKSUM);
        fig_plan_head *head = (fig_plan_head *)(void *)slot;
        head->exec = is_known ? 1 : 77;
        b->slots[1].head.exec = head->exec;
        b->slots[1].flaw = FIG_FETCH_BROKEN;
        if (looks) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 1 && b->words->missed == 1 && b->words->consumed == 1);
        publish(b, 0, 2, 0);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->replays == 2 && b->words->missed == 1);
        fig_fetch_bench_close(b);
    }
}

static void an_undamaged_plan_of_another_bucket_waits_for_its_launch(void **state) {
    (void)state;
    static const uint32_t sections[] = {0, FIG_PLAN_HAS_CHECKSUM};
    for (int n = 0; n < 8; n++) {
        fig_fetch_bench *b = fig_fetch_bench_open(6, n & 1 ? tiny : small, 0);
        publish(b, 1, 1, sections[n >> 1 & 1]);
        if (n >> 2) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->missed == 1 && b->words->consumed == 0);
        fig_fetch_bench_fetch(b, 1, 1);
        assert_true(b->words->missed == 1 && b->words->consumed == 1);
        fig_fetch_bench_close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_staged_before_the_damage_was_known_runs_no_rows),
        cmocka_unit_test(late_plans_do_not_make_later_plans_late),
        cmocka_unit_test(a_late_plan_that_is_damaged_counts_as_damaged),
        cmocka_unit_test(the_stamp_of_a_plan_wraps),
        cmocka_unit_test(a_damaged_plan_of_no_bucket_does_not_stay_for_good),
        cmocka_unit_test(an_undamaged_plan_of_another_bucket_waits_for_its_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
