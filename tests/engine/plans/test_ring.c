/* test_ring.c: tests the plan ring in plain memory; the fetch's reference kernel plays the
 * device. */
#include "engine/plans/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/support/hang.h"
#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

enum { SLOT_LIMIT = 64, ROWS = 16, SECTIONS = 3, WORDS = ROWS * SECTIONS };
enum { SLOT_BYTES = 64 + 4 * WORDS };

/* A plan whose every word identifies it, in a slot and on the device. */
typedef struct test_plan {
    _Alignas(16) fig_plan_head head;
    int32_t words[WORDS];
} test_plan;
static_assert(sizeof(test_plan) == SLOT_BYTES, "a plan fills a slot");

typedef struct bench {
    fig_ring ring;
    fig_fetch_words words;
    test_plan slots[SLOT_LIMIT];
    test_plan plan; /* on the device */
    _Alignas(16) fig_fetch_state state;
    test_plan ahead;
    uint64_t torn; /* the number of the first plan that a thread found incomplete; 0: none */
    int looks;     /* 1: a look-ahead follows each fetch and reads what the fetch does not read */
    fig_fetch_params fetch, drop;
    fig_look_ahead_params look;
} bench;
static_assert(offsetof(bench, ahead) == offsetof(bench, state) + sizeof(fig_fetch_state),
              "the slot taken ahead lies behind the state");

static fig_plan_shape shape_of_bench(void) {
    fig_plan_shape shape = {.row_limit = ROWS};
    fig_plan_lay_out(&shape);
    return shape;
}

static bench *bench_open(uint32_t slot_count) {
    bench *b = fig_place_allocate(sizeof *b);
    assert_non_null(b);
    memset(b, 0, sizeof *b);
    fig_ring_init(&b->ring, (uint8_t *)b->slots, &b->words, slot_count, SLOT_BYTES);
    b->fetch = (fig_fetch_params){.ring = (uint8_t *)b->slots,
                                  .plan = (uint8_t *)&b->plan,
                                  .state = &b->state,
                                  .words = &b->words,
                                  .shape = shape_of_bench(),
                                  .slot_count = slot_count,
                                  .slot_bytes = SLOT_BYTES,
                                  .tells = 1};
    b->drop = (fig_fetch_params){
        .state = &b->state, .words = &b->words, .shape = {.exec = FIG_FETCH_DROP}};
    b->look = (fig_look_ahead_params){.ring = (uint8_t *)b->slots,
                                      .state = &b->state,
                                      .words = &b->words,
                                      .slot_count = slot_count,
                                      .slot_bytes = SLOT_BYTES};
    return b;
}

static void replay(bench *b) {
    fig_reference_launch(FIG_OP_FETCH, &b->fetch, NULL);
    if (b->looks) fig_reference_launch(FIG_OP_LOOK_AHEAD, &b->look, NULL);
}

/* Writes a plan without its tag, as fig_plan_write() does. */
static void write_plan(uint8_t *slot, uint64_t number) {
    test_plan *plan = (test_plan *)(void *)slot;
    plan->head.bytes = SLOT_BYTES;
    plan->head.exec = 0;
    plan->head.rows = ROWS;
    plan->head.horizon = 1;
    plan->head.sections = FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_POSITIONS |
                          FIG_PLAN_HAS_SPLITS;
    for (int i = 0; i < WORDS; i++)
        plan->words[i] = (int32_t)number;
    plan->head.checksum = fig_plan_sum(slot, SLOT_BYTES, number);
}

static void stage(bench *b, int32_t wait_us) {
    uint8_t *slot;
    assert_int_equal(fig_ring_claim(&b->ring, wait_us, &slot), FIG_OK);
    write_plan(slot, b->ring.next);
    fig_ring_publish(&b->ring, slot, SLOT_BYTES);
}

/* Returns 1 if every word of the device's plan is that of plan `number`. */
static int is_whole(const bench *b, uint64_t number) {
    if (b->plan.head.tag != fig_plan_tag(number, SLOT_BYTES) || b->plan.head.rows != ROWS) return 0;
    for (int i = 0; i < WORDS; i++)
        if (b->plan.words[i] != (int32_t)number) return 0;
    return 1;
}

static void check_fetched(const bench *b, uint64_t number) {
    if (is_whole(b, number)) return;
    fail_msg("plan %llu: head says %llu of %d rows, first word is of plan %d",
             (unsigned long long)number, (unsigned long long)fig_plan_tag_number(b->plan.head.tag),
             b->plan.head.rows, b->plan.words[0]);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void a_full_ring_refuses_a_claim(void **state) {
    (void)state;
    for (uint32_t count = 1; count <= 5; count++) {
        bench *b = bench_open(count);
        uint8_t *slot;
        char sentence[64];
        for (uint32_t i = 0; i < count; i++)
            stage(b, 0);
        assert_int_equal(fig_ring_claim(&b->ring, 0, &slot), FIG_BUSY);
        assert_null(slot);
        snprintf(sentence, sizeof sentence, "all %u slots are in flight", count);
        assert_string_equal(fig_message(), sentence);
        replay(b);
        assert_int_equal(fig_ring_claim(&b->ring, 0, &slot), FIG_OK);
        assert_ptr_equal(slot, &b->slots[0]);
        fig_place_free(b);
    }
}

static void a_plan_in_flight_is_never_overwritten(void **state) {
    (void)state;
    bench *b = bench_open(2);
    uint8_t *slot;
    stage(b, 0);
    stage(b, 0);
    if (fig_ring_claim(&b->ring, 0, &slot) == FIG_OK) write_plan(slot, 3);
    replay(b);
    check_fetched(b, 1);
    replay(b);
    check_fetched(b, 2);
    fig_place_free(b);
}

static void a_claimed_slot_stays_the_next_until_it_is_published(void **state) {
    (void)state;
    bench *b = bench_open(3);
    uint8_t *first, *again;
    assert_int_equal(fig_ring_claim(&b->ring, 0, &first), FIG_OK);
    assert_int_equal(fig_ring_claim(&b->ring, 0, &again), FIG_OK);
    assert_ptr_equal(first, again);
    replay(b); /* no plan has been published */
    assert_int_equal(b->plan.head.rows, 0);
    assert_int_equal(fig_ring_missed(&b->ring), 1);
    fig_ring_publish(&b->ring, first, SLOT_BYTES);
    assert_int_equal(fig_ring_claim(&b->ring, 0, &again), FIG_OK);
    assert_ptr_equal(again, &b->slots[1]);
    fig_place_free(b);
}

static void a_replay_without_a_new_plan_runs_no_rows(void **state) {
    (void)state;
    bench *b = bench_open(2);
    for (uint64_t number = 1; number <= 7; number++) {
        stage(b, 0);
        replay(b);
        check_fetched(b, number);
        replay(b); /* every slot, the next one included, holds an old plan */
        assert_int_equal(b->plan.head.rows, 0);
        assert_int_equal(fig_ring_missed(&b->ring), number);
        assert_int_equal(fig_ring_consumed(&b->ring), number);
    }
    fig_place_free(b);
}

static void a_plan_taken_back_is_never_found(void **state) {
    (void)state;
    bench *b = bench_open(3);
    uint8_t *slot, *again;
    for (uint64_t number = 1; number <= 7; number++) {
        assert_int_equal(fig_ring_claim(&b->ring, 0, &slot), FIG_OK);
        write_plan(slot, 100 + number); /* the plan of another step, which never runs */
        fig_ring_publish(&b->ring, slot, SLOT_BYTES);
        assert_ptr_equal(fig_ring_take_back(&b->ring), slot);
        replay(b);
        assert_int_equal(b->plan.head.rows, 0);
        assert_int_equal(fig_ring_missed(&b->ring), number);
        assert_int_equal(fig_ring_claim(&b->ring, 0, &again), FIG_OK);
        assert_ptr_equal(slot, again);
        stage(b, 0);
        replay(b);
        check_fetched(b, number);
    }
    fig_place_free(b);
}

static void a_plan_taken_back_is_dropped_by_a_device_that_looked_ahead(void **state) {
    (void)state;
    bench *b = bench_open(3);
    uint8_t *slot;
    b->fetch.tells = 0;
    stage(b, 0);
    replay(b);
    check_fetched(b, 1);
    assert_int_equal(fig_ring_claim(&b->ring, 0, &slot), FIG_OK);
    write_plan(slot, 100); /* the plan of another step, which never runs */
    fig_ring_publish(&b->ring, slot, SLOT_BYTES);
    fig_reference_launch(FIG_OP_LOOK_AHEAD, &b->look, NULL);
    fig_ring_take_back(&b->ring);
    fig_reference_launch(FIG_OP_FETCH, &b->drop, NULL);
    replay(b);
    assert_int_equal(b->plan.head.rows, 0);
    stage(b, 0);
    replay(b);
    check_fetched(b, 2);
    fig_place_free(b);
}

static void a_plan_taken_back_leaves_those_before_it(void **state) {
    (void)state;
    bench *b = bench_open(2);
    uint8_t *slot;
    stage(b, 0);
    stage(b, 0);
    fig_ring_take_back(&b->ring);
    stage(b, 0);
    assert_int_equal(fig_ring_claim(&b->ring, 0, &slot), FIG_BUSY);
    replay(b);
    check_fetched(b, 1);
    replay(b);
    check_fetched(b, 2);
    fig_place_free(b);
}

static void *replay_after_a_while(void *user) {
    fig_hang_pause(20000);
    replay(user);
    return NULL;
}

static void a_bounded_wait_ends_when_a_slot_is_free(void **state) {
    (void)state;
    bench *b = bench_open(2);
    pthread_t thread;
    stage(b, 0);
    stage(b, 0);
    assert_int_equal(pthread_create(&thread, NULL, replay_after_a_while, b), 0);
    stage(b, FIG_HANG_US);
    assert_int_equal(fig_ring_consumed(&b->ring), 1);
    pthread_join(thread, NULL);
    check_fetched(b, 1);
    fig_place_free(b);
}

static void a_bounded_wait_ends_at_its_bound(void **state) {
    (void)state;
    bench *b = bench_open(2);
    uint8_t *slot;
    stage(b, 0);
    stage(b, 0);
    int64_t start = now_us();
    assert_int_equal(fig_ring_claim(&b->ring, 30000, &slot), FIG_BUSY);
    assert_true(now_us() - start >= 30000);
    assert_null(slot);
    fig_place_free(b);
}

/* Plans that pass. With few slots the threads wait for each other at each plan; on a busy machine
 * such a wait takes milliseconds. */
enum { PASSED = 20000, PASSED_PER_SLOT = 2000 };

static uint64_t passed_of(const bench *b) {
    const uint64_t passed = (uint64_t)b->ring.slot_count * PASSED_PER_SLOT;
    return passed < PASSED ? passed : PASSED;
}

/* Replays without waiting for a plan, so it often replays too early. */
static void *replay_all(void *user) {
    bench *b = user;
    int64_t deadline = now_us() + FIG_HANG_US;
    for (uint64_t number = 1; number <= passed_of(b) && now_us() < deadline;) {
        replay(b);
        if (b->plan.head.rows == 0) {
            sched_yield();
            continue;
        }
        if (b->torn == 0 && !is_whole(b, number)) b->torn = number;
        number++;
    }
    return NULL;
}

static void pass_plans(int looks) {
    for (uint32_t count = 1; count <= SLOT_LIMIT; count *= 4) {
        bench *b = bench_open(count);
        b->looks = looks;
        b->fetch.tells = !looks;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, replay_all, b), 0);
        for (uint64_t i = 0; i < passed_of(b); i++)
            stage(b, FIG_HANG_US);
        pthread_join(thread, NULL);
        assert_int_equal(b->torn, 0);
        assert_int_equal(fig_ring_consumed(&b->ring), passed_of(b));
        assert_int_equal(fig_ring_replays(&b->ring), passed_of(b));
        assert_int_equal(fig_ring_torn(&b->ring), 0);
        fig_place_free(b);
    }
}

static void plans_pass_whole_and_in_order_between_threads(void **state) {
    (void)state;
    pass_plans(0);
}

static void plans_taken_ahead_pass_whole_and_in_order_between_threads(void **state) {
    (void)state;
    pass_plans(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_ring_refuses_a_claim),
        cmocka_unit_test(a_plan_in_flight_is_never_overwritten),
        cmocka_unit_test(a_claimed_slot_stays_the_next_until_it_is_published),
        cmocka_unit_test(a_replay_without_a_new_plan_runs_no_rows),
        cmocka_unit_test(a_plan_taken_back_is_never_found),
        cmocka_unit_test(a_plan_taken_back_is_dropped_by_a_device_that_looked_ahead),
        cmocka_unit_test(a_plan_taken_back_leaves_those_before_it),
        cmocka_unit_test(a_bounded_wait_ends_when_a_slot_is_free),
        cmocka_unit_test(a_bounded_wait_ends_at_its_bound),
        cmocka_unit_test(plans_pass_whole_and_in_order_between_threads),
        cmocka_unit_test(plans_taken_ahead_pass_whole_and_in_order_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
