/* test_post.c: tests a group's thread, while the test plays its peers frame by frame. */
#include "engine/ranks/member.h"
#include "engine/ranks/post.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "engine/seam/clock.h"
#include "engine/ranks/wire.h"
#include "tests/support/hang.h"

enum { GIVE = 1, RESULT = 2, LOST = 3, BYE = 4, MAGIC = 0x4b4e5246, TIMEOUT_US = 300000 };
/* A wait may last this long on a busy machine. A longer wait counts as a hang. */
static const int64_t ample_ns = FIG_HANG_NS;

typedef struct hand_frame {
    uint32_t magic, kind, call, bytes;
} hand_frame;

/* Rank `rank` of two, and the other end of its connection. */
typedef struct half {
    fig_ranks *ranks;
    int other;
} half;

static int64_t soon(void) {
    return fig_clock_ns() + ample_ns;
}

static void open_half(half *of, int32_t rank) {
    const fig_ranks_info info = {.count = 2,
                                 .rank = rank,
                                 .local_count = 2,
                                 .local_rank = rank,
                                 .process_count = 1,
                                 .timeout_us = TIMEOUT_US};
    int ends[2], links[2] = {-1, -1};
    assert_int_equal(fig_wire_pair(ends), FIG_OK);
    links[rank == 0 ? 1 : 0] = ends[0];
    of->other = ends[1];
    assert_int_equal(fig_member_open(&of->ranks, &info, links), FIG_OK);
}

static void close_half(half *of) {
    fig_ranks_close(of->ranks);
    fig_wire_close(&of->other);
}

static void say(const half *to, const void *bytes, size_t count) {
    assert_int_equal(fig_wire_send(to->other, bytes, count, soon()), FIG_OK);
}

static void await_lost(const half *of, const char *words) {
    const int64_t deadline = soon();
    while (fig_ranks_check(of->ranks) == FIG_OK && fig_clock_ns() < deadline)
        sched_yield();
    assert_int_equal(fig_ranks_check(of->ranks), FIG_LOST);
    if (strstr(fig_message(), words) == NULL) print_error("%s\n", fig_message());
    assert_non_null(strstr(fig_message(), words));
}

/* ---- Sound frames ---------------------------------------------------------------------------- */

/* Sends the peer's part of a call with 4 bytes, one byte at a time. */
static void *give_slowly(void *user) {
    const half *of = user;
    const struct {
        hand_frame head;
        int32_t body;
    } given = {{MAGIC, GIVE, FIG_GROUP_GATHER, 4}, 77};
    for (size_t i = 0; i < sizeof given; i++)
        (void)fig_wire_send(of->other, (const uint8_t *)&given + i, 1, soon());
    return NULL;
}

static void a_frame_that_comes_byte_by_byte_is_taken(void **state) {
    (void)state;
    half of;
    pthread_t thread;
    const int32_t mine = 5;
    int32_t all[2] = {0};
    hand_frame result;
    open_half(&of, 0);
    assert_int_equal(pthread_create(&thread, NULL, give_slowly, &of), 0);
    assert_int_equal(fig_ranks_all_gather(of.ranks, &mine, sizeof mine, all), FIG_OK);
    pthread_join(thread, NULL);
    assert_int_equal(all[0], 5);
    assert_int_equal(all[1], 77);
    assert_int_equal(fig_wire_receive(of.other, &result, sizeof result, soon()), FIG_OK);
    assert_int_equal(result.kind, RESULT);
    assert_int_equal(result.bytes, sizeof all);
    close_half(&of);
}

/* ---- Invalid frames -------------------------------------------------------------------------- */

static void bytes_that_are_not_a_frame_lose_the_group(void **state) {
    (void)state;
    static const hand_frame wrong[] = {{MAGIC + 1, GIVE, FIG_GROUP_GATHER, 4},
                                       {MAGIC, 0, 0, 0},
                                       {MAGIC, BYE + 1, 0, 0},
                                       {MAGIC, GIVE, FIG_GROUP_GATHER, FIG_RANKS_BYTES_LIMIT + 1},
                                       {MAGIC, RESULT, FIG_GROUP_GATHER, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        half of;
        open_half(&of, 0);
        say(&of, &wrong[i], sizeof wrong[i]);
        await_lost(&of, "rank 1 is gone");
        close_half(&of);
    }
}

static void a_rank_that_contributes_twice_loses_the_group(void **state) {
    (void)state;
    const hand_frame given = {MAGIC, GIVE, FIG_GROUP_BARRIER, 0};
    half of;
    open_half(&of, 0);
    say(&of, &given, sizeof given);
    say(&of, &given, sizeof given);
    await_lost(&of, "rank 1 gives to fig_ranks_barrier twice");
    close_half(&of);
}

static void a_loss_is_never_a_success(void **state) {
    (void)state;
    const hand_frame lost = {MAGIC, LOST, FIG_OK, 0};
    half of;
    open_half(&of, 0);
    say(&of, &lost, sizeof lost);
    await_lost(&of, "");
    assert_int_equal(fig_ranks_barrier(of.ranks), FIG_LOST);
    close_half(&of);
}

static void an_answer_to_no_question_loses_the_group(void **state) {
    (void)state;
    const hand_frame result = {MAGIC, RESULT, FIG_GROUP_BARRIER, 0};
    half of;
    open_half(&of, 1);
    say(&of, &result, sizeof result);
    await_lost(&of, "rank 0 answers rank 1 with a result that it did not ask for");
    close_half(&of);
}

/* Answers a call of 4 bytes with *user bytes. */
static void *answer_wrongly(void *user) {
    const half *of = user;
    hand_frame given;
    int32_t body[4] = {0};
    const hand_frame result = {MAGIC, RESULT, FIG_GROUP_GATHER, sizeof body};
    (void)fig_wire_receive(of->other, &given, sizeof given, soon());
    (void)fig_wire_receive(of->other, body, given.bytes, soon());
    (void)fig_wire_send(of->other, &result, sizeof result, soon());
    (void)fig_wire_send(of->other, body, sizeof body, soon());
    return NULL;
}

static void an_answer_of_another_size_writes_nothing(void **state) {
    (void)state;
    half of;
    pthread_t thread;
    const int32_t mine = 5;
    int32_t all[4] = {1, 2, 3, 4};
    open_half(&of, 1);
    assert_int_equal(pthread_create(&thread, NULL, answer_wrongly, &of), 0);
    assert_int_equal(fig_ranks_all_gather(of.ranks, &mine, sizeof mine, all), FIG_LOST);
    pthread_join(thread, NULL);
    assert_non_null(strstr(fig_message(), "with a result that it did not ask for"));
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(all[i], i + 1);
    close_half(&of);
}

/* ---- Peers that are stopped ------------------------------------------------------------------ */

static void ranks_wait_for_a_silent_rank_0_until_the_groups_timeout(void **state) {
    (void)state;
    half of;
    open_half(&of, 1);
    const int64_t before = fig_clock_ns();
    assert_int_equal(fig_ranks_barrier(of.ranks), FIG_TIMEOUT);
    assert_non_null(strstr(fig_message(), "rank 0 did not answer rank 1 in fig_ranks_barrier"));
    assert_true(fig_clock_ns() - before >= TIMEOUT_US * 1000);
    close_half(&of);
}

/* Rank 0 of three ranks, and the other ends of its connections. A connection's buffer holds less
 * than a result. */
typedef struct third {
    fig_ranks *ranks;
    int others[3]; /* by rank; there is none for rank 0 */
} third;

static void open_third(third *of, int64_t timeout_us) {
    const fig_ranks_info info = {
        .count = 3, .local_count = 3, .process_count = 1, .timeout_us = timeout_us};
    const int small = 4096;
    int links[3] = {-1, -1, -1};
    for (int rank = 1; rank < 3; rank++) {
        int ends[2];
        assert_int_equal(fig_wire_pair(ends), FIG_OK);
        assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
        links[rank] = ends[0];
        of->others[rank] = ends[1];
    }
    assert_int_equal(fig_member_open(&of->ranks, &info, links), FIG_OK);
}

static void close_third(third *of) {
    fig_ranks_close(of->ranks);
    fig_wire_close(&of->others[1]);
    fig_wire_close(&of->others[2]);
}

enum { MOST = FIG_RANKS_BYTES_LIMIT };

/* Every rank gives its own number. Afterwards rank 0 has the result, and the others can take it. */
static void gather_numbers(const third *of) {
    static const hand_frame given = {MAGIC, GIVE, FIG_GROUP_GATHER, MOST};
    uint8_t *all = calloc(3, MOST), *mine = calloc(1, MOST);
    for (int rank = 1; rank < 3; rank++) {
        memset(mine, rank, MOST);
        assert_int_equal(fig_wire_send(of->others[rank], &given, sizeof given, soon()), FIG_OK);
        assert_int_equal(fig_wire_send(of->others[rank], mine, MOST, soon()), FIG_OK);
    }
    memset(mine, 0, MOST);
    if (fig_ranks_all_gather(of->ranks, mine, MOST, all) != FIG_OK) fail_msg("%s", fig_message());
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(all[rank * MOST + MOST - 1], rank);
    free(mine);
    free(all);
}

static void take_numbers(const third *of, int rank) {
    uint8_t *all = calloc(3, MOST);
    hand_frame head;
    assert_int_equal(fig_wire_receive(of->others[rank], &head, sizeof head, soon()), FIG_OK);
    assert_int_equal(head.kind, RESULT);
    assert_int_equal(head.bytes, 3 * MOST);
    assert_int_equal(fig_wire_receive(of->others[rank], all, 3 * MOST, soon()), FIG_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(all[i * MOST + MOST - 1], i);
    free(all);
}

/* Rank 1 takes the first result only after rank 2 has taken it. */
static void a_slow_rank_holds_no_other_up(void **state) {
    (void)state;
    third of;
    open_third(&of, 20000000);
    gather_numbers(&of);
    take_numbers(&of, 2);
    take_numbers(&of, 1);
    gather_numbers(&of); /* rank 1 gets whole frames as well */
    take_numbers(&of, 1);
    take_numbers(&of, 2);
    close_third(&of);
}

static void a_stopped_rank_is_named_to_the_others(void **state) {
    (void)state;
    third of;
    hand_frame head;
    char words[256] = "";
    open_third(&of, 1500000);
    gather_numbers(&of);
    take_numbers(&of, 2);
    assert_int_equal(fig_wire_receive(of.others[2], &head, sizeof head, soon()), FIG_OK);
    assert_int_equal(head.kind, LOST);
    assert_int_equal(head.call, FIG_TIMEOUT);
    assert_in_range(head.bytes, 1, sizeof words - 1);
    assert_int_equal(fig_wire_receive(of.others[2], words, head.bytes, soon()), FIG_OK);
    assert_non_null(strstr(words, "ranks: rank 1 did not take the result of a call within 1.31"));
    assert_int_equal(fig_ranks_check(of.ranks), FIG_LOST);
    close_third(&of);
}

static void a_frame_out_of_place_does_not_count_as_a_goodbye(void **state) {
    (void)state;
    static const struct {
        int32_t rank;
        hand_frame frame;
        const char *words;
    } wrong[] = {{0,
                  {MAGIC, RESULT, FIG_GROUP_BARRIER, 0},
                  "rank 1 sent a frame out of place, of "
                  "kind 2 with 0 bytes"},
                 {1, {MAGIC, GIVE, FIG_GROUP_BARRIER, 0}, "rank 0 sent a frame out of place"},
                 {1, {MAGIC, BYE, 0, 4}, "rank 0 sent a frame out of place, of kind 4 with 4"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        half of;
        open_half(&of, wrong[i].rank);
        say(&of, &wrong[i].frame, sizeof wrong[i].frame);
        if (wrong[i].frame.bytes > 0) say(&of, "four", wrong[i].frame.bytes);
        await_lost(&of, wrong[i].words);
        close_half(&of);
    }
}

/* The peer sends more than the connection holds and never reads a result. */
static void a_peer_that_reads_nothing_holds_no_rank_up_for_ever(void **state) {
    (void)state;
    enum { BYTES = FIG_RANKS_BYTES_LIMIT };
    const hand_frame given = {MAGIC, GIVE, FIG_GROUP_GATHER, BYTES};
    uint8_t *mine = calloc(1, BYTES), *all = calloc(2, BYTES);
    half of;
    open_half(&of, 0);
    for (int round = 0; round < 8; round++) { /* each round sends 128 KiB back */
        if (fig_wire_send(of.other, &given, sizeof given, fig_clock_ns() + 1000000) == FIG_OK)
            (void)fig_wire_send(of.other, mine, BYTES, fig_clock_ns() + 300000000);
        (void)fig_ranks_all_gather(of.ranks, mine, BYTES, all);
    }
    close_half(&of);
    free(mine);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_that_comes_byte_by_byte_is_taken),
        cmocka_unit_test(bytes_that_are_not_a_frame_lose_the_group),
        cmocka_unit_test(a_rank_that_contributes_twice_loses_the_group),
        cmocka_unit_test(a_loss_is_never_a_success),
        cmocka_unit_test(an_answer_to_no_question_loses_the_group),
        cmocka_unit_test(an_answer_of_another_size_writes_nothing),
        cmocka_unit_test(ranks_wait_for_a_silent_rank_0_until_the_groups_timeout),
        cmocka_unit_test(a_slow_rank_holds_no_other_up),
        cmocka_unit_test(a_stopped_rank_is_named_to_the_others),
        cmocka_unit_test(a_frame_out_of_place_does_not_count_as_a_goodbye),
        cmocka_unit_test(a_peer_that_reads_nothing_holds_no_rank_up_for_ever),
    };
    return cmocka_run_group_tests(tests, fig_hang_watch, fig_hang_unwatch);
}
