/* test_carrier.c: tests exchanges between host ranks, as threads and as processes. */
#include "engine/ranks/carrier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/ranks/crew.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum { COUNT = 4, LIMIT = 5000, ROUNDS = 1500 };

/* Returns number i of a rank's contribution. Large and small numbers are mixed, so the bits of a
 * sum show the order of its additions. */
static float value_of(int64_t round, int32_t rank, size_t i) {
    const uint32_t mixed = (uint32_t)(round * 2654435761 + rank * 40503 + (int64_t)i * 9973);
    const float small = (float)(mixed % 1000) / 997.0f;
    return mixed % 3 == 0 ? small * 1e7f : small;
}

static fig_status check_sum(const void *const *parts, int64_t round, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float sum = 0, right = 0;
        for (int32_t rank = 0; rank < COUNT; rank++) {
            sum += ((const float *)parts[rank])[i];
            right += value_of(round, rank, i);
        }
        if (memcmp(&sum, &right, sizeof sum) != 0) return FIG_CALLBACK;
    }
    return FIG_OK;
}

/* Exchanges random sizes, equal on all ranks, after random delays, different on each rank. */
static fig_status reduce_often(fig_crew_member *m) {
    float mine[LIMIT / sizeof(float)];
    const void *parts[COUNT];
    fig_carrier *carrier;
    fig_random sizes = fig_random_seed(7), delays = fig_random_seed(11 + (uint64_t)m->rank);
    fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    for (int64_t round = 0; round < ROUNDS && status == FIG_OK; round++) {
        const size_t count = (size_t)fig_random_range(&sizes, 0, LIMIT / (int)sizeof(float));
        if (fig_random_range(&delays, 0, 15) == 0)
            fig_crew_pause_us(fig_random_range(&delays, 0, 200));
        for (size_t i = 0; i < count; i++)
            mine[i] = value_of(round, m->rank, i);
        const fig_carrier_call call = {round, 3, (int32_t)round % 5, mine, count * sizeof(float)};
        status = fig_carrier_exchange(carrier, &call, parts);
        for (int32_t i = 0; i < COUNT && status == FIG_OK; i++)
            if ((uintptr_t)parts[i] % 64 != 0) status = FIG_CALLBACK;
        if (status == FIG_OK) status = check_sum(parts, round, count);
    }
    fig_carrier_close(carrier);
    return status;
}

static void sums_have_the_same_bits_on_all_ranks_every_time(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, reduce_often);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

/* ---- Ranks that differ ---------------------------------------------------------------------- */

/* Makes two exchanges. In the second, the rank in *user makes a different call. */
static const fig_carrier_call other_calls[] = {
    {9, 2, 1, "abcd", 4}, {8, 3, 1, "abcd", 4}, {8, 2, 7, "abcd", 4}, {8, 2, 1, "abcd", 2}};
static const char *const other_words[] = {
    "rank 0 has step 8, rank 2 has 9", "rank 0 has bucket 2, rank 2 has 3",
    "rank 0 has node 1, rank 2 has 7", "rank 0 has bytes 4, rank 2 has 2"};

static fig_status make_another_call(fig_crew_member *m) {
    const fig_carrier_call call = {8, 2, 1, "abcd", 4};
    const void *parts[COUNT];
    fig_carrier *carrier;
    fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    if (status == FIG_OK) status = fig_carrier_exchange(carrier, &call, parts);
    if (status == FIG_OK)
        status = fig_carrier_exchange(carrier, m->rank == 2 ? m->user : &call, parts);
    if (status == FIG_OK || fig_carrier_exchange(carrier, &call, parts) == FIG_OK ||
        fig_ranks_check(m->ranks) != FIG_LOST)
        status = FIG_CALLBACK;
    fig_carrier_close(carrier);
    return status;
}

static void ranks_that_disagree_learn_where(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    for (size_t i = 0; i < sizeof other_calls / sizeof other_calls[0]; i++) {
        fig_carrier_call other = other_calls[i];
        fig_crew_init(crew, COUNT);
        crew[2].user = &other;
        fig_crew_run_local(crew, COUNT, make_another_call);
        fig_crew_expect(crew, COUNT, FIG_INVALID, other_words[i]);
    }
}

static fig_status stay_away(fig_crew_member *m) {
    const fig_carrier_call call = {8, 2, 1, "abcd", 4};
    const void *parts[COUNT];
    fig_carrier *carrier;
    fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    if (status != FIG_OK) return status;
    while (m->rank == 1 && fig_ranks_check(m->ranks) == FIG_OK)
        fig_crew_pause_us(1000);
    status = fig_carrier_exchange(carrier, &call, parts);
    fig_carrier_close(carrier);
    return status;
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    fig_crew_run_local(crew, COUNT, stay_away);
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT,
                    "rank 1 did not come to node 1 of step 8 within 1.5 s");
}

static fig_status close_early(fig_crew_member *m) {
    const fig_carrier_call call = {8, 2, 1, "abcd", 4};
    const void *parts[COUNT];
    fig_carrier *carrier;
    fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    if (status == FIG_OK) status = fig_carrier_exchange(carrier, &call, parts);
    if (status == FIG_OK && m->rank != 3) status = fig_carrier_exchange(carrier, &call, parts);
    fig_carrier_close(carrier);
    return m->rank == 3 ? FIG_LOST : status;
}

static void an_engine_that_closed_is_not_waited_for(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, close_early);
    crew[3].is_away = 1;
    fig_crew_expect(crew, COUNT, FIG_LOST, "rank 3 has closed its engine");
}

static fig_status open_with_another_limit(fig_crew_member *m) {
    fig_carrier *carrier;
    const fig_status status = fig_carrier_open(&carrier, m->ranks, m->rank == 1 ? 64 : 128);
    fig_carrier_close(carrier);
    return status;
}

static fig_status give_too_much(fig_crew_member *m) {
    static const uint8_t bytes[LIMIT + 1];
    const fig_carrier_call call = {1, 1, 1, bytes, sizeof bytes};
    const void *parts[COUNT];
    fig_carrier *carrier;
    fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    if (status == FIG_OK) status = fig_carrier_exchange(carrier, &call, parts);
    fig_carrier_close(carrier);
    return status;
}

static void limits_are_the_same_and_are_kept(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, open_with_another_limit);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "rank 0 exchanges up to 128 bytes, rank 1 up to 64");
    fig_crew_run_local(crew, COUNT, give_too_much);
    fig_crew_expect(crew, COUNT, FIG_TOO_LARGE, "exchanges 5001 bytes, limit 5000");
}

/* ---- Processes ------------------------------------------------------------------------------ */

static int outlive(fig_crew_member *m) {
    char words[32];
    const void *parts[COUNT];
    fig_carrier *carrier;
    float mine[64];
    fig_status status = fig_crew_open(m);
    if (status == FIG_OK) status = fig_carrier_open(&carrier, m->ranks, sizeof mine);
    if (status != FIG_OK) return 1;
    fig_crew_at_work(m, words);
    for (int64_t round = 0; status == FIG_OK; round++) {
        for (size_t i = 0; i < 64; i++)
            mine[i] = value_of(round, m->rank, i);
        const fig_carrier_call call = {round, 1, 0, mine, sizeof mine};
        status = fig_carrier_exchange(carrier, &call, parts);
        if (status == FIG_OK && check_sum(parts, round, 64) != FIG_OK) return 2;
    }
    if (status != FIG_LOST || strstr(fig_message(), words) == NULL) return 3;
    fig_carrier_close(carrier);
    fig_ranks_close(m->ranks);
    return 0;
}

static void the_death_of_a_process_ends_an_exchange(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        const fig_crew_killing killing = {COUNT, i % COUNT, i * 700, outlive};
        assert_int_equal(fig_crew_kill(&killing), FIG_OK);
    }
}

/* ---- Faults --------------------------------------------------------------------------------- */

/* Makes rank 1's n-th call fail. Then either all ranks have a carrier or none has one. */
static fig_status open_with_a_fault(fig_crew_member *m) {
    fig_carrier *carrier;
    if (m->rank == 1) fig_fault_arm(*(int64_t *)m->user);
    const fig_status status = fig_carrier_open(&carrier, m->ranks, LIMIT);
    if (m->rank == 1) *(int64_t *)m->user -= fig_fault_disarm();
    fig_carrier_close(carrier);
    return status;
}

static void a_failed_call_on_one_rank_gives_a_status_on_all(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    int32_t failures = 0;
    int64_t left = 0;
    for (int64_t n = 1; left <= 0; n++) {
        left = n;
        fig_crew_init(crew, COUNT);
        crew[1].user = &left;
        fig_crew_run_local(crew, COUNT, open_with_a_fault);
        for (int32_t i = 1; i < COUNT; i++)
            assert_int_equal(crew[i].status, crew[0].status);
        assert_true(crew[0].status == FIG_OK || left <= 0);
        failures += crew[0].status != FIG_OK;
    }
    assert_true(failures >= 4); /* two callocs, open and mmap; a failing close does no harm */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_same_bits_on_all_ranks_every_time),
        cmocka_unit_test(ranks_that_disagree_learn_where),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(an_engine_that_closed_is_not_waited_for),
        cmocka_unit_test(limits_are_the_same_and_are_kept),
        cmocka_unit_test(the_death_of_a_process_ends_an_exchange),
        cmocka_unit_test(a_failed_call_on_one_rank_gives_a_status_on_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
