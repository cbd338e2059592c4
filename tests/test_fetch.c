/* test_fetch.c: the device takes the plans of the ring whole, in order, and no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/twin.h"

enum { SLOTS = 3, SLOT_BYTES = 256, PLAN_BYTES = 192, BUCKET = 5 };

/* A ring, the device's end of it, and a plan with a guard behind it; in memory of place.h. */
typedef struct fetch_bench {
    _Alignas(16) uint8_t ring[SLOTS * SLOT_BYTES];
    _Alignas(16) uint8_t plan[SLOT_BYTES];
    uint64_t cursor;
    fig_fetch_words words;
    fig_fetch_params params;
    _Alignas(16) float in[2][4], out[2][2]; /* of a kernel behind the fetch */
} fetch_bench;

static fetch_bench *memory; /* one for all, since each test opens it anew */

static fetch_bench *open_bench(uint64_t cursor) {
    fetch_bench *bench = memory;
    memset(bench, 0, sizeof *bench);
    memset(bench->plan, 0xee, sizeof bench->plan);
    bench->cursor = bench->words.consumed = cursor;
    bench->params = (fig_fetch_params){.ring = bench->ring,
                                       .plan = bench->plan,
                                       .cursor = &bench->cursor,
                                       .words = &bench->words,
                                       .slot_count = SLOTS,
                                       .slot_bytes = SLOT_BYTES,
                                       .bucket = BUCKET,
                                       .plan_bytes = PLAN_BYTES};
    return bench;
}

/* Bytes of a plan differ by its number. */
static fig_plan_head *publish(fetch_bench *bench, uint64_t number, uint32_t bytes) {
    uint8_t *slot = bench->ring + (number - 1) % SLOTS * SLOT_BYTES;
    for (int i = 0; i < SLOT_BYTES; i++)
        slot[i] = (uint8_t)(number * 31 + (uint64_t)i);
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    *head = (fig_plan_head){.sequence = number, .bytes = bytes, .bucket = BUCKET, .rows = 2};
    return head;
}

static void run(const fetch_bench *bench) {
    fig_twin_launch(FIG_OP_FETCH, &bench->params, NULL);
}

/* The plan is number `number`, of `bytes` bytes, and not a byte more was written. */
static void assert_fetched(const fetch_bench *bench, uint64_t number, uint32_t bytes) {
    const uint8_t *slot = bench->ring + (number - 1) % SLOTS * SLOT_BYTES;
    assert_memory_equal(bench->plan, slot, bytes);
    for (size_t i = bytes; i < sizeof bench->plan; i++)
        assert_int_equal(bench->plan[i], 0xee);
    assert_true(bench->cursor == number && bench->words.consumed == number);
}

/* A plan of zero rows, one more missed, and the ring as it was. */
static void assert_missed(const fetch_bench *bench, uint64_t cursor, uint64_t missed) {
    static const fig_plan_head nothing;
    assert_memory_equal(bench->plan, &nothing, sizeof nothing);
    assert_true(bench->cursor == cursor && bench->words.consumed == cursor);
    assert_true(bench->words.missed == missed);
}

static void the_next_plan_is_copied_whole_and_reported_consumed(void **state) {
    (void)state;
    for (uint32_t bytes = 64; bytes <= PLAN_BYTES; bytes += 16) {
        fetch_bench *bench = open_bench(0);
        publish(bench, 1, bytes);
        run(bench);
        assert_fetched(bench, 1, bytes);
        assert_true(bench->words.missed == 0);
    }
}

static void plans_are_taken_in_order_around_the_ring(void **state) {
    (void)state;
    fetch_bench *bench = open_bench(0);
    for (uint64_t number = 1; number <= 4 * SLOTS + 1; number++) {
        if (number == 1) publish(bench, 1, 128);
        publish(bench, number + 1, 128); /* one ahead */
        run(bench);
        assert_fetched(bench, number, 128);
    }
}

static void numbers_past_32_bits_find_their_slot(void **state) {
    (void)state;
    for (uint64_t cursor = UINT32_MAX - 4ull; cursor < UINT32_MAX + 4ull; cursor++) {
        fetch_bench *bench = open_bench(cursor);
        publish(bench, cursor + 1, 128);
        run(bench);
        assert_fetched(bench, cursor + 1, 128);
    }
}

static void an_empty_slot_gives_zero_rows_and_counts_as_missed(void **state) {
    (void)state;
    fetch_bench *bench = open_bench(0);
    run(bench);
    assert_missed(bench, 0, 1);
    run(bench);
    assert_missed(bench, 0, 2);
    publish(bench, 1, 128);
    run(bench);
    assert_fetched(bench, 1, 128);
    assert_true(bench->words.missed == 2);
}

static void a_stale_plan_is_never_taken_again(void **state) {
    (void)state;
    fetch_bench *bench = open_bench(0);
    for (uint64_t number = 1; number <= SLOTS; number++) {
        publish(bench, number, 128);
        run(bench);
    }
    run(bench); /* slot 0 holds number 1 still */
    assert_missed(bench, SLOTS, 1);
}

static void a_plan_of_another_bucket_waits_for_its_own_graph(void **state) {
    (void)state;
    fetch_bench *bench = open_bench(0);
    publish(bench, 1, 128)->bucket = BUCKET + 1;
    run(bench);
    assert_missed(bench, 0, 1);
    memset(bench->plan, 0xee, sizeof bench->plan);
    bench->params.bucket = BUCKET + 1;
    run(bench);
    assert_fetched(bench, 1, 128);
}

static void a_plan_larger_than_its_bounds_or_smaller_than_its_head_is_missed(void **state) {
    (void)state;
    static const uint32_t bytes[] = {0, 48, PLAN_BYTES + 16, SLOT_BYTES + 16, UINT32_MAX};
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        fetch_bench *bench = open_bench(0);
        publish(bench, 1, bytes[i]);
        run(bench);
        assert_missed(bench, 0, 1);
    }
    fetch_bench *bench = open_bench(0);
    bench->params.slot_bytes = 128; /* where the bound says more than a slot can hold */
    publish(bench, 1, 144);
    run(bench);
    assert_missed(bench, 0, 1);
}

static void rows_run_by_what_was_fetched_and_none_after_a_miss(void **state) {
    (void)state;
    fetch_bench *bench = open_bench(0);
    for (int i = 0; i < 8; i++)
        bench->in[i / 4][i % 4] = i % 4 < 2 ? 1 : 2;
    for (int i = 0; i < 4; i++)
        bench->out[i / 2][i % 2] = 7;
    fig_gated_params gated = {.in = bench->in,
                              .out = bench->out,
                              .plan = bench->plan,
                              .in_stride = 4,
                              .out_stride = 2,
                              .rows = {.row_limit = 2, .multiple = 1},
                              .width = 2,
                              .dtype = FIG_F32};
    publish(bench, 1, 128);
    run(bench);
    run(bench); /* nothing is there: the plan fetched before must not run again */
    fig_twin_launch(FIG_OP_GATED, &gated, NULL);
    for (int i = 0; i < 4; i++)
        assert_true(bench->out[i / 2][i % 2] == 7);
}

static int open_memory(void **state) {
    (void)state;
    memory = fig_place_allocate(sizeof *memory);
    return memory == NULL;
}

static int close_memory(void **state) {
    (void)state;
    fig_place_free(memory);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_plan_is_copied_whole_and_reported_consumed),
        cmocka_unit_test(plans_are_taken_in_order_around_the_ring),
        cmocka_unit_test(numbers_past_32_bits_find_their_slot),
        cmocka_unit_test(an_empty_slot_gives_zero_rows_and_counts_as_missed),
        cmocka_unit_test(a_stale_plan_is_never_taken_again),
        cmocka_unit_test(a_plan_of_another_bucket_waits_for_its_own_graph),
        cmocka_unit_test(a_plan_larger_than_its_bounds_or_smaller_than_its_head_is_missed),
        cmocka_unit_test(rows_run_by_what_was_fetched_and_none_after_a_miss),
    };
    return cmocka_run_group_tests(tests, open_memory, close_memory);
}
