/* test_look_ahead.c: tests that the look-ahead kernel prefetches the plan that the next fetch would
 * take, and that it reports the plans that a fetch took without reporting them to the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/fetch_bench.h"
#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

#define SLOTS FIG_FETCH_BENCH_SLOTS
#define ALL FIG_FETCH_BENCH_ALL

static const fig_fetch_bench_scale small = {20, 9, 2};
static fig_fetch_bench_plan plan; /* publishing a plan copies it */

static void draw_and_publish(fig_fetch_bench *b, uint32_t bucket, uint64_t number) {
    fig_fetch_bench_draw(b, &plan, bucket);
    fig_fetch_bench_publish(b, &plan, number);
}

/* ---- Prefetched plans ---------------------------------------------------------------------- */

static void a_look_ahead_and_a_fetch_make_what_a_fetch_makes(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)fig_place_cases(60); seed++) {
        const fig_fetch_bench_scale scale =
            seed % 3 == 0 ? (fig_fetch_bench_scale){1500, 150, 4} : small;
        fig_fetch_bench *alone = fig_fetch_bench_open(seed, scale, 0);
        fig_fetch_bench *ahead = fig_fetch_bench_open(seed, scale, 0);
        for (uint64_t number = 1; number <= 5; number++) {
            fig_fetch_bench_draw(alone, &plan, 0);
            plan.head.sections |= number % 2 ? FIG_PLAN_HAS_CHECKSUM : 0;
            fig_fetch_bench_add_pages(alone, &plan, (uint32_t)seed);
            fig_fetch_bench_publish(alone, &plan, number);
            fig_fetch_bench_publish(ahead, &plan, number);
            fig_fetch_bench_look(ahead);
            assert_true(ahead->state->ahead == number);
            fig_fetch_bench_fetch(alone, 0, 1);
            fig_fetch_bench_fetch(ahead, 0, 1);
            assert_memory_equal(alone->plan + sizeof plan.head, ahead->plan + sizeof plan.head,
                                alone->plan_bytes - sizeof plan.head);
            assert_memory_equal(alone->table, ahead->table, sizeof alone->entries);
        }
        assert_true(ahead->words->replays == 5 && ahead->words->missed == 0);
        fig_fetch_bench_close(alone);
        fig_fetch_bench_close(ahead);
    }
}

static void the_ring_is_not_read_again_for_a_plan_taken_ahead(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(1, small, 0);
    draw_and_publish(b, 0, 1);
    fig_fetch_bench_look(b);
    memset(b->ring, 0xee, SLOTS * (size_t)b->slot_bytes);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->replays == 1 && b->words->missed == 0);
    fig_fetch_bench_close(b);
}

static void a_second_look_leaves_the_plan_that_the_first_took(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(2, small, 0);
    draw_and_publish(b, 0, 1);
    fig_fetch_bench_look(b);
    memset(b->ring + sizeof plan.head, 0xee, b->slot_bytes - sizeof plan.head);
    draw_and_publish(b, 1, 2);
    fig_fetch_bench_look(b);
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_look(b);
    fig_fetch_bench_fetch(b, 1, 1);
    assert_true(b->words->replays == 2 && b->words->missed == 0);
    fig_fetch_bench_close(b);
}

static void a_slot_without_its_number_is_not_taken_ahead(void **state) {
    (void)state;
    for (int earlier = 0; earlier < 2; earlier++) {
        const uint64_t number = earlier ? SLOTS + 1 : 1;
        fig_fetch_bench *b = fig_fetch_bench_open(3, small, number - 1);
        if (earlier) /* the slot keeps its old tag while it is overwritten */
            draw_and_publish(b, 0, number - SLOTS);
        fig_fetch_bench_draw(b, &plan, 0);
        fig_fetch_bench_write(b, &plan, number);
        for (int i = 0; i < 2; i++) {
            fig_fetch_bench_look(b);
            assert_true(b->state->ahead == 0);
        }
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->missed == 1);
        fig_fetch_bench_publish(b, &plan, number);
        fig_fetch_bench_look(b);
        assert_true(b->state->ahead == number);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->missed == 1 && b->state->number == number);
        fig_fetch_bench_close(b);
    }
}

static void a_prefetched_plan_is_taken_only_if_it_is_next(void **state) {
    (void)state;
    static const uint64_t numbers[] = {0, 1, 6, 8, 7 + SLOTS, UINT64_MAX};
    for (size_t i = 0; i < 2 * sizeof numbers / sizeof numbers[0]; i++) {
        fig_fetch_bench *b = fig_fetch_bench_open(4, small, 6);
        uint8_t *behind = (uint8_t *)(b->state + 1);
        fig_fetch_bench_draw(b, &plan, 0);
        memcpy(behind, fig_fetch_bench_publish(b, &plan, 7), b->slot_bytes);
        /* the plan is erased from the ring */
        memset(b->ring, 0, SLOTS * (size_t)b->slot_bytes);
        memset(b->slots, 0, sizeof b->slots);
        b->is.ahead = b->state->ahead = numbers[i / 2];
        if (i % 2) draw_and_publish(b, 0, 7); /* or another plan takes its slot */
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->missed == (i % 2 == 0) && b->words->replays == i % 2);
        fig_fetch_bench_close(b);
    }
}

static void a_plan_taken_ahead_waits_for_its_own_bucket(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(5, small, 0);
    draw_and_publish(b, 1, 1);
    fig_fetch_bench_look(b);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 1);
    fig_fetch_bench_fetch(b, 1, 1);
    assert_true(b->words->missed == 1 && b->words->replays == 1);
    fig_fetch_bench_close(b);
}

static void a_drop_forgets_a_plan_taken_ahead(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(6, small, 0);
    draw_and_publish(b, 0, 1);
    fig_fetch_bench_look(b);
    memset(b->ring, 0, sizeof(uint64_t)); /* fig_ring_take_back() does the same */
    b->slots[1].number = 0;
    fig_fetch_bench_drop(b);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 1);
    draw_and_publish(b, 1, 1); /* another step's plan takes the slot */
    fig_fetch_bench_fetch(b, 1, 1);
    assert_true(b->words->missed == 1 && b->words->replays == 1);
    fig_fetch_bench_close(b);
}

/* For plans above 1 MB, the tag gives only a lower bound of the size. This plan has one row with
 * many pages. */
static void a_slot_longer_than_its_tag_can_say_is_taken_whole(void **state) {
    (void)state;
    enum { PAGES = FIG_PLAN_TAG_MOST + 300, BYTES = 64 + 16 + 16 * PAGES };
    fig_plan_shape shape = {.row_limit = 1};
    fig_plan_lay_out(&shape);
    uint8_t *ring = fig_place_allocate(BYTES), *on_device = fig_place_allocate(shape.layout.bytes);
    fig_fetch_state *at = fig_place_allocate(sizeof *at + BYTES);
    fig_fetch_words *words = fig_place_allocate(sizeof *words);
    int32_t *table = fig_place_allocate(PAGES * sizeof *table);
    assert_true(ring != NULL && on_device != NULL && at != NULL && words != NULL && table != NULL);
    const fig_fetch_params fetch = {ring, on_device, at, words, shape, 1, BYTES, 1};
    const fig_look_ahead_params look = {ring, at, words, 1, BYTES};
    fig_plan_page *pages = (fig_plan_page *)(void *)(ring + 80);
    for (int32_t i = 0; i < PAGES; i++)
        pages[i] = (fig_plan_page){.address = (uint64_t)(uintptr_t)&table[i], .page = i};
    fig_plan_head *head = (fig_plan_head *)(void *)ring;
    *head = (fig_plan_head){.tag = fig_plan_tag(1, BYTES),
                            .bytes = BYTES,
                            .rows = 1,
                            .sections = FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_CHECKSUM,
                            .horizon = 1,
                            .page_count = PAGES};
    head->checksum = fig_plan_sum(ring, BYTES, 1);
    for (int looks = 0; looks < 2; looks++) {
        memset(table, 0xa5, PAGES * sizeof *table);
        memset(at, 0, sizeof *at);
        memset(words, 0, sizeof *words);
        if (looks) fig_reference_launch(FIG_OP_LOOK_AHEAD, &look, NULL);
        assert_true(at->ahead == (uint64_t)looks);
        fig_reference_launch(FIG_OP_FETCH, &fetch, NULL);
        assert_true(words->replays == 1 && words->missed == 0);
        for (int32_t i = 0; i < PAGES; i++)
            assert_int_equal(table[i], i);
    }
    fig_place_free(ring);
    fig_place_free(on_device);
    fig_place_free(at);
    fig_place_free(words);
    fig_place_free(table);
}

/* ---- Reports to the host ------------------------------------------------------------------- */

static void a_fetch_that_tells_nothing_leaves_it_to_a_look_ahead(void **state) {
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        fig_fetch_bench *b = fig_fetch_bench_open(7, small, 0);
        fig_fetch_bench_draw(b, &plan, 0);
        plan.head.horizon = 3;
        fig_fetch_bench_publish(b, &plan, 1);
        if (looks) fig_fetch_bench_look(b);
        for (uint64_t launch = 1; launch <= 3; launch++) {
            fig_fetch_bench_fetch(b, 0, 0);
            assert_true(b->words->replays == launch - 1 && b->words->consumed == (launch > 1));
            fig_fetch_bench_look(b);
            assert_true(b->words->replays == launch && b->words->consumed == 1);
        }
        fig_fetch_bench_close(b);
    }
}

/* ---- Random sequences of calls ------------------------------------------------------------- */

/* Publishes a plan with a valid number of rows. It may leave out any section, and may be invalid in
 * another way. */
static void publish_any(fig_fetch_bench *b, uint64_t number) {
    fig_random *random = &b->random;
    const uint32_t bucket = fig_random_range(random, 0, 9) == 0;
    fig_fetch_bench_draw(b, &plan, bucket);
    if (fig_random_range(random, 0, 1))
        plan.head.sections = (uint32_t)fig_random_range(random, 0, 31);
    if (fig_random_range(random, 0, 2) && b->is.held == plan.head.exec + 1)
        plan.head.rows = b->is.rows;
    if (fig_random_range(random, 0, 3) == 0) plan.head.horizon = fig_random_range(random, 2, 4);
    plan.head.row_tokens = fig_random_range(random, 0, 2);
    if (fig_random_range(random, 0, 1))
        fig_fetch_bench_add_pages(b, &plan, (uint32_t)fig_random_range(random, 1, 60));
    uint8_t *slot = fig_fetch_bench_publish(b, &plan, number);
    if (fig_random_range(random, 0, 9) != 0) return;
    fig_plan_head head = plan.head;
    if ((head.sections & FIG_PLAN_HAS_CHECKSUM) && head.bytes > sizeof head) {
        slot[fig_random_range(random, sizeof head, (int32_t)head.bytes - 1)] ^= 4;
        b->slots[number % SLOTS].flaw = FIG_FETCH_BROKEN;
    } else {
        head.page_count += 5;
        fig_fetch_bench_spoil(b, number, &head);
    }
}

static void any_sequence_of_calls_does_what_the_headers_say(void **state) {
    (void)state;
    uint64_t replays = 0, missed = 0, torn = 0;
    for (uint64_t seed = 0; seed < (uint64_t)fig_place_cases(300); seed++) {
        const fig_fetch_bench_scale scale = {seed % 10 == 0 ? 1500 : 5 + (int32_t)seed % 70, 40, 4};
        fig_fetch_bench *b = fig_fetch_bench_open(seed, scale, seed * 1000);
        uint64_t published = b->is.number;
        for (int turn = 0; turn < 60; turn++) {
            if (published < b->is.number) published = b->is.number;
            switch (fig_random_range(&b->random, 0, 6)) {
            case 0:
            case 1:
                if (published < b->told.consumed + SLOTS) publish_any(b, ++published);
                break;
            case 2: fig_fetch_bench_look(b); break;
            case 3:
                if (fig_random_range(&b->random, 0, 9) == 0) fig_fetch_bench_drop(b);
                break;
            default: {
                const uint32_t bucket = fig_random_range(&b->random, 0, 9) == 0;
                fig_fetch_bench_fetch(b, bucket, (uint32_t)fig_random_range(&b->random, 0, 1));
            }
            }
        }
        replays += b->is.replays;
        missed += b->told.missed;
        torn += b->told.torn;
        fig_fetch_bench_close(b);
    }
    /* otherwise this test tested little */
    assert_true(replays > missed / 2 && missed > torn && torn > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_ahead_and_a_fetch_make_what_a_fetch_makes),
        cmocka_unit_test(the_ring_is_not_read_again_for_a_plan_taken_ahead),
        cmocka_unit_test(a_second_look_leaves_the_plan_that_the_first_took),
        cmocka_unit_test(a_slot_without_its_number_is_not_taken_ahead),
        cmocka_unit_test(a_prefetched_plan_is_taken_only_if_it_is_next),
        cmocka_unit_test(a_plan_taken_ahead_waits_for_its_own_bucket),
        cmocka_unit_test(a_drop_forgets_a_plan_taken_ahead),
        cmocka_unit_test(a_slot_longer_than_its_tag_can_say_is_taken_whole),
        cmocka_unit_test(a_fetch_that_tells_nothing_leaves_it_to_a_look_ahead),
        cmocka_unit_test(any_sequence_of_calls_does_what_the_headers_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
