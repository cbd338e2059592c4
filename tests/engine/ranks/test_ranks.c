/* test_ranks.c: tests groups of ranks, as threads and as processes. */
#include "include/figraph_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/ranks/group.h"
#include "tests/support/ranks/crew.h"
#include "tests/support/fault.h"

enum { COUNT = 4, ROUNDS = 200 };

/* ---- Meet ---------------------------------------------------------------------------------- */

static fig_status gather_often(fig_crew_member *m) {
    for (int32_t round = 0; round < ROUNDS; round++) {
        const int32_t mine[2] = {m->rank, round};
        int32_t all[COUNT][2] = {{0}};
        fig_status status = fig_ranks_all_gather(m->ranks, mine, sizeof mine, all);
        if (status != FIG_OK) return status;
        for (int32_t i = 0; i < COUNT; i++)
            if (all[i][0] != i || all[i][1] != round) return FIG_CALLBACK;
        if (round % 3 == m->rank && (status = fig_ranks_check(m->ranks)) != FIG_OK) return status;
        if ((status = fig_ranks_barrier(m->ranks)) != FIG_OK) return status;
    }
    return FIG_OK;
}

static void all_ranks_get_the_bytes_that_each_gives(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, gather_often);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static fig_status live(fig_crew_member *m) {
    fig_ranks_info info = {.size = sizeof info};
    fig_status status = fig_crew_open(m);
    if (status == FIG_OK) status = gather_often(m);
    if (status == FIG_OK) status = fig_ranks_read_info(m->ranks, &info);
    if (status == FIG_OK &&
        (info.count != COUNT || info.rank != m->rank || info.local_count != COUNT ||
         info.local_rank != m->rank || info.process_count != 1))
        status = FIG_CALLBACK;
    fig_ranks_close(m->ranks);
    return status;
}

static void ranks_over_tcp_do_the_same(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run(crew, COUNT, live);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static fig_status give_the_most(fig_crew_member *m) {
    uint8_t *mine = malloc(FIG_RANKS_BYTES_LIMIT);
    uint8_t *all = malloc((size_t)COUNT * FIG_RANKS_BYTES_LIMIT);
    memset(mine, m->rank + 1, FIG_RANKS_BYTES_LIMIT);
    fig_status status = fig_ranks_all_gather(m->ranks, mine, FIG_RANKS_BYTES_LIMIT, all);
    for (int32_t i = 0; i < COUNT && status == FIG_OK; i++)
        if (all[(size_t)(i + 1) * FIG_RANKS_BYTES_LIMIT - 1] != i + 1) status = FIG_CALLBACK;
    if (status == FIG_OK &&
        fig_ranks_all_gather(m->ranks, mine, FIG_RANKS_BYTES_LIMIT + 1, all) != FIG_TOO_LARGE)
        status = FIG_CALLBACK;
    free(mine);
    free(all);
    return status;
}

static void the_most_that_a_rank_may_give_arrives(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, give_the_most);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static void a_rank_that_is_alone_meets_itself(void **state) {
    (void)state;
    fig_ranks *ranks;
    const int32_t mine = 7;
    int32_t all = 0;
    assert_int_equal(fig_ranks_open(&ranks, FIG_OPTIONS(fig_ranks_options, .count = 1)), FIG_OK);
    assert_int_equal(fig_ranks_barrier(ranks), FIG_OK);
    assert_int_equal(fig_ranks_all_gather(ranks, &mine, sizeof mine, &all), FIG_OK);
    assert_int_equal(all, 7);
    fig_ranks_close(ranks);
    fig_ranks_close(NULL);
}

/* ---- Agree --------------------------------------------------------------------------------- */

static const char *const files[COUNT] = {"a", "b", "a", "a"};
static const char *const gpus[COUNT] = {"0", "1", "2", "1"};

static fig_status agree_on(fig_crew_member *m, const char *name, const char *value,
                           int32_t distinct) {
    const fig_ranks_field fields[] = {
        {.name = "version", .bytes = "1", .count = 1},
        {.name = name, .bytes = value, .count = strlen(value), .distinct = distinct}};
    return fig_ranks_agree(m->ranks, fields, 2);
}

static fig_status agree_on_files(fig_crew_member *m) {
    if (agree_on(m, "file", "a", 0) != FIG_OK) return FIG_CALLBACK;
    return agree_on(m, "file", files[m->rank], 0);
}

static fig_status agree_on_gpus(fig_crew_member *m) {
    const char value[2] = {(char)('0' + m->rank), '\0'};
    if (agree_on(m, "gpu", value, 1) != FIG_OK) return FIG_CALLBACK;
    return agree_on(m, "gpu", gpus[m->rank], 1);
}

static fig_status agree_on_other_fields(fig_crew_member *m) {
    return agree_on(m, m->rank == 3 ? "spec" : "file", "a", 0);
}

static fig_status agree_after_failing(fig_crew_member *m) {
    if (agree_on_files(m) != FIG_INVALID) return FIG_CALLBACK;
    return agree_on(m, "file", "a", 0);
}

static void a_field_that_differs_is_named_with_its_ranks(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, agree_on_files);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "file differs between ranks 0, 2 and 3 and rank 1");
    fig_crew_run_local(crew, COUNT, agree_on_gpus);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "gpu is the same on ranks 1 and 3");
    fig_crew_run_local(crew, COUNT, agree_on_other_fields);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "agree on differs between ranks 0 to 2 and rank 3");
    /* the failed agreement has not lost the group */
    fig_crew_run_local(crew, COUNT, agree_after_failing);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

/* ---- Failure ------------------------------------------------------------------------------- */

static fig_status meet_without_rank_2(fig_crew_member *m) {
    while (m->rank == 2 && fig_ranks_check(m->ranks) == FIG_OK)
        fig_crew_pause_us(1000);
    const fig_status status = fig_ranks_barrier(m->ranks);
    return fig_ranks_barrier(m->ranks) == FIG_LOST ? status : FIG_CALLBACK;
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    fig_crew_run_local(crew, COUNT, meet_without_rank_2);
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT, "rank 2 did not come to fig_ranks_barrier within 1.");
}

static fig_status meet_for_two_things(fig_crew_member *m) {
    int32_t all[2 * COUNT];
    const int32_t mine[2] = {0};
    return fig_ranks_all_gather(m->ranks, mine, m->rank == 1 ? 8 : 4, all);
}

static fig_status meet_in_two_calls(fig_crew_member *m) {
    const int32_t mine = 0;
    int32_t all[COUNT];
    return m->rank == 3 ? fig_ranks_barrier(m->ranks)
                        : fig_ranks_all_gather(m->ranks, &mine, 4, all);
}

static void ranks_that_meet_for_different_purposes_are_reported(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, meet_for_two_things);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "in fig_ranks_all_gather with 8");
    fig_crew_run_local(crew, COUNT, meet_in_two_calls);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "in fig_ranks_barrier with 0");
}

static fig_status abort_on_rank_3(fig_crew_member *m) {
    uint32_t word = 0;
    fig_status status = fig_group_watch(m->ranks, &word);
    if (status != FIG_OK) return status;
    if (m->rank == 3) {
        fig_ranks_abort(m->ranks, "out of pages");
        fig_ranks_abort(m->ranks, "the second reason is not told");
    }
    for (int ms = 0; ms < 10000 && __atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0; ms++)
        fig_crew_pause_us(1000);
    if (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0) return FIG_CALLBACK;
    fig_group_unwatch(m->ranks, &word);
    if (fig_ranks_barrier(m->ranks) != FIG_LOST) return FIG_CALLBACK;
    return fig_ranks_check(m->ranks);
}

static void every_rank_sees_an_abort(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, abort_on_rank_3);
    fig_crew_expect(crew, COUNT, FIG_LOST, "rank 3 gave up: out of pages");
}

static fig_status close_on_rank(fig_crew_member *m, int32_t rank) {
    fig_status status = fig_crew_open(m);
    if (status == FIG_OK) status = fig_ranks_barrier(m->ranks);
    if (status == FIG_OK && m->rank != rank) status = fig_ranks_barrier(m->ranks);
    fig_ranks_close(m->ranks);
    return m->rank == rank && status == FIG_OK ? FIG_LOST : status;
}

static fig_status close_on_rank_0(fig_crew_member *m) {
    return close_on_rank(m, 0);
}

static fig_status close_on_rank_2(fig_crew_member *m) {
    return close_on_rank(m, 2);
}

static void a_rank_that_closed_is_not_waited_for(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run(crew, COUNT, close_on_rank_0);
    crew[0].is_away = 1;
    fig_crew_expect(crew, COUNT, FIG_LOST, "rank 0 has closed its ranks");
    fig_crew_init(crew, COUNT);
    fig_crew_run(crew, COUNT, close_on_rank_2);
    crew[2].is_away = 1;
    fig_crew_expect(crew, COUNT, FIG_LOST, "rank 2 has closed its ranks");
}

static fig_status leave_at_will(fig_crew_member *m) {
    fig_status status = fig_crew_open(m);
    if (status == FIG_OK) status = fig_ranks_barrier(m->ranks);
    fig_crew_pause_us(m->rank * 20000);
    if (status == FIG_OK) status = fig_ranks_check(m->ranks);
    fig_ranks_close(m->ranks);
    return status;
}

static void closing_one_by_one_is_no_loss(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run(crew, COUNT, leave_at_will);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static int outlive(fig_crew_member *m) {
    char words[32];
    fig_status status = fig_crew_open(m);
    if (status != FIG_OK) return 1;
    fig_crew_at_work(m, words);
    while (status == FIG_OK)
        status = fig_ranks_barrier(m->ranks);
    if (status != FIG_LOST || strstr(fig_message(), words) == NULL) return 2;
    fig_ranks_close(m->ranks);
    return 0;
}

static void the_death_of_a_process_is_noticed_by_all(void **state) {
    (void)state;
    for (int32_t i = 0; i < 12; i++) {
        const fig_crew_killing killing = {COUNT, i % COUNT, i * 700, outlive};
        assert_int_equal(fig_crew_kill(&killing), FIG_OK);
    }
}

/* ---- Fork and faults ------------------------------------------------------------------------ */

static fig_status fork_a_child(fig_crew_member *m) {
    int status = 0;
    if (m->rank != 1) return fig_ranks_barrier(m->ranks);
    const pid_t child = fork();
    if (child == 0) {
        fig_ranks_abort(m->ranks, "a child has no say");
        const int is_right = fig_ranks_barrier(m->ranks) == FIG_LOST &&
                             fig_ranks_check(m->ranks) == FIG_LOST &&
                             strstr(fig_message(), "forked") != NULL;
        fig_ranks_close(m->ranks);
        _exit(!is_right);
    }
    if (waitpid(child, &status, 0) != child || status != 0) return FIG_CALLBACK;
    return fig_ranks_barrier(m->ranks);
}

static void a_forked_child_gets_an_error_and_its_parent_goes_on(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run_local(crew, COUNT, fork_a_child);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static void a_lack_of_memory_or_threads_gives_a_status(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        fig_ranks *ranks[3];
        fig_fault_arm(n);
        const fig_status status = fig_ranks_open_local(ranks, 3, NULL);
        if (fig_fault_disarm() < n) {
            assert_int_equal(status, FIG_OK);
            for (int i = 0; i < 3; i++)
                fig_ranks_close(ranks[i]);
            return;
        }
        assert_int_equal(status, FIG_NOMEM);
        for (int i = 0; i < 3; i++)
            assert_null(ranks[i]);
    }
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    fig_ranks *ranks[2];
    const fig_ranks_field nameless = {.bytes = "a", .count = 1};
    const fig_ranks_field odd = {.name = "odd", .distinct = 2};
    fig_ranks_info info = {.size = 0};
    assert_int_equal(fig_ranks_open_local(ranks, 0, NULL), FIG_INVALID);
    assert_int_equal(
        fig_ranks_open_local(ranks, 2, FIG_OPTIONS(fig_ranks_options, .timeout_us = -1)),
        FIG_INVALID);
    assert_int_equal(fig_ranks_open_local(ranks, 1, NULL), FIG_OK);
    assert_int_equal(fig_ranks_agree(ranks[0], &nameless, 1), FIG_INVALID);
    assert_int_equal(fig_ranks_agree(ranks[0], &odd, 1), FIG_INVALID);
    assert_int_equal(fig_ranks_agree(ranks[0], &odd, FIG_RANKS_FIELD_LIMIT + 1), FIG_INVALID);
    assert_int_equal(fig_ranks_read_info(ranks[0], &info), FIG_INVALID);
    fig_ranks_close(ranks[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_get_the_bytes_that_each_gives),
        cmocka_unit_test(ranks_over_tcp_do_the_same),
        cmocka_unit_test(the_most_that_a_rank_may_give_arrives),
        cmocka_unit_test(a_rank_that_is_alone_meets_itself),
        cmocka_unit_test(a_field_that_differs_is_named_with_its_ranks),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(ranks_that_meet_for_different_purposes_are_reported),
        cmocka_unit_test(every_rank_sees_an_abort),
        cmocka_unit_test(a_rank_that_closed_is_not_waited_for),
        cmocka_unit_test(closing_one_by_one_is_no_loss),
        cmocka_unit_test(the_death_of_a_process_is_noticed_by_all),
        cmocka_unit_test(a_forked_child_gets_an_error_and_its_parent_goes_on),
        cmocka_unit_test(a_lack_of_memory_or_threads_gives_a_status),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
