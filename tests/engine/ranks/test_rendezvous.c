/* test_rendezvous.c: tests how ranks find each other, and that strangers cannot join. */
#define _DEFAULT_SOURCE /* syscall */
#include "engine/ranks/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/seam/clock.h"
#include "engine/ranks/secret.h"
#include "engine/ranks/wire.h"
#include "tests/support/ranks/crew.h"
#include "tests/support/hang.h"

enum { COUNT = 4, STRANGERS = 100, GREETING_BYTES = 40, CLAIM_BYTES = 88, VERDICT_BYTES = 256 };

/* Values of `user`. spread: the member meets the others as ranks on several hosts do, by host name
 * and listening at every address. own: it meets them as ranks of one user do without a secret. */
static char spread[] = "spread", own[] = "own";

static fig_environment environment_of(const fig_crew_member *m) {
    fig_environment out = {.count = m->count,
                           .rank = m->rank,
                           .port = m->port,
                           .one_host = 1,
                           .timeout_us = m->timeout_us,
                           .address = "127.0.0.1"};
    snprintf(out.secret, sizeof out.secret, "%s", m->secret);
    if (m->user == spread) {
        out.one_host = 0;
        snprintf(out.address, sizeof out.address, "localhost");
    }
    if (m->user == own) out.own_user = 1;
    return out;
}

/* Meets the others, then sends the own rank over each connection to check where the connection
 * leads. */
static fig_status meet(fig_crew_member *m) {
    const fig_environment environment = environment_of(m);
    int links[FIG_RANKS_LIMIT];
    fig_status status = fig_rendezvous_meet(&environment, links);
    for (int32_t i = 0; i < m->count && status == FIG_OK; i++) {
        int32_t other = m->rank;
        if (m->rank == 0 ? i == 0 : i > 0) {
            if (links[i] != -1) status = FIG_CALLBACK;
            continue;
        }
        const int64_t deadline = fig_clock_ns() + m->timeout_us * 1000;
        status = fig_wire_send(links[i], &m->rank, sizeof m->rank, deadline);
        if (status == FIG_OK) status = fig_wire_receive(links[i], &other, sizeof other, deadline);
        if (status == FIG_OK && other != i) status = FIG_CALLBACK;
    }
    for (int32_t i = 0; i < m->count; i++) {
        if (status != FIG_OK && status != FIG_CALLBACK && links[i] != -1) status = FIG_CALLBACK;
        fig_wire_close(&links[i]);
    }
    return status;
}

static fig_status meet_late(fig_crew_member *m) {
    fig_crew_pause_us(m->rank == 0 ? 150000 : 10000 * m->rank);
    return meet(m);
}

static void each_rank_is_connected_to_rank_0(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
    fig_crew_run(crew, COUNT, meet_late); /* again at the same port, without a pause */
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static void a_host_may_be_given_by_its_name(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    for (int32_t i = 0; i < COUNT; i++)
        crew[i].user = spread;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

/* ---- Ranks that do not come ---------------------------------------------------------------- */

static void a_rank_that_never_arrives_is_named_to_all(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[2].is_away = 1;
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT, "rank 2 did not come within 1.5 s");
}

/* Rank 0 and the other ranks have a longer timeout. */
static void a_rank_that_can_wait_no_longer_still_hears_who_is_missing(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[1].timeout_us = FIG_CREW_ABSENT_US;
    crew[2].is_away = 1;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT, "rank 2 did not come within ");
}

static void rank_0_that_never_arrives_is_named(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    for (int32_t i = 0; i < COUNT; i++)
        crew[i].timeout_us = FIG_CREW_ABSENT_US;
    crew[0].is_away = 1;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT, "rank 0 did not come within 1.5 s");
}

/* ---- Ranks that do not fit ----------------------------------------------------------------- */

static void ranks_of_groups_of_other_sizes_are_reported(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[3].count = 5;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "rank 3 has count 5, rank 0 has count 4");
}

static void two_processes_of_one_rank_are_reported(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[3].rank = 1;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_INVALID, "two processes say that they are rank 1");
}

static void a_second_rank_0_finds_its_port_in_use(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    int listener;
    fig_crew_init(crew, COUNT);
    const fig_wire_place taken = {.address = "127.0.0.1", .port = crew[0].port, .one_host = 1};
    assert_int_equal(fig_wire_listen(&listener, &taken), FIG_OK);
    assert_int_equal(meet(&crew[0]), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "is in use"));
    fig_wire_close(&listener);
}

/* Rank 0 is another program that listens at the port. To everyone who connects, it sends garbage or
 * nothing. */
static fig_status play_a_server(fig_crew_member *m) {
    const fig_wire_place place = {.address = "127.0.0.1", .port = m->port, .one_host = 1};
    const int64_t deadline = fig_clock_ns() + FIG_HANG_NS;
    char words[GREETING_BYTES] = "HTTP/1.1 400 Bad Request";
    int listener, guest = -1;
    if (m->rank != 0) return meet(m);
    const fig_status status = fig_wire_listen(&listener, &place);
    while (status == FIG_OK && guest < 0 && fig_clock_ns() < deadline) {
        guest = fig_wire_accept(listener);
        fig_crew_pause_us(1000);
    }
    if (m->user != NULL) (void)fig_wire_send(guest, words, sizeof words, deadline);
    while (guest >= 0 && !fig_wire_is_closed(guest) && fig_clock_ns() < deadline)
        fig_crew_pause_us(1000);
    fig_wire_close(&guest);
    fig_wire_close(&listener);
    return status;
}

static void a_listener_that_is_not_rank_0_is_reported(void **state) {
    (void)state;
    fig_crew_member crew[2];
    for (int speaks = 0; speaks < 2; speaks++) {
        fig_crew_init(crew, 2);
        crew[0].user = speaks ? crew : NULL;
        crew[1].timeout_us = FIG_CREW_ABSENT_US;
        fig_crew_run(crew, 2, play_a_server);
        assert_int_equal(crew[0].status, FIG_OK);
        assert_int_equal(crew[1].status, speaks ? FIG_INVALID : FIG_TIMEOUT);
        assert_non_null(
            strstr(crew[1].message, speaks ? "is not rank 0" : "says nothing within 1.5 s"));
    }
}

/* ---- Strangers ------------------------------------------------------------------------------ */

static int connect_to(int32_t port) {
    const fig_wire_place place = {.address = "127.0.0.1", .port = port, .one_host = 1};
    const int64_t deadline = fig_clock_ns() + FIG_HANG_NS;
    int out = -1;
    while (fig_wire_connect(&out, &place, deadline) != FIG_OK && fig_clock_ns() < deadline)
        fig_crew_pause_us(5000);
    assert_true(out >= 0);
    return out;
}

/* A claim, field by field, as a rank would send it. */
typedef struct hand_claim {
    char magic[8];
    int32_t version, count, rank, wait_ms;
    uint8_t number[FIG_SECRET_BYTES], proof[FIG_SECRET_BYTES];
} hand_claim;

static hand_claim claim_by_hand(int socket, const hand_claim *like, const char *secret) {
    uint8_t greeting[GREETING_BYTES];
    hand_claim out = *like;
    const int64_t deadline = fig_clock_ns() + FIG_HANG_NS;
    assert_int_equal(sizeof out, CLAIM_BYTES);
    assert_int_equal(fig_wire_receive(socket, greeting, sizeof greeting, deadline), FIG_OK);
    memcpy(out.magic, greeting, sizeof out.magic);
    const fig_secret_claim proof = {secret,          "figraph ranks: claim of a rank",
                                    greeting,        &out,
                                    sizeof greeting, CLAIM_BYTES - FIG_SECRET_BYTES};
    fig_secret_prove(&proof, out.proof);
    return out;
}

typedef struct visit {
    const char *secret;
    hand_claim like;
    int sockets[STRANGERS];
    int32_t count, is_garbage;
    int32_t is_over; /* atomic */
} visit;

/* Connects before any rank does, and stays silent. */
static fig_status stay_silent(fig_crew_member *m) {
    visit *of = m->user;
    if (m->rank > 0) fig_crew_pause_us(100000);
    if (m->rank != 3) return meet(m);
    for (int32_t i = 0; i < of->count; i++)
        of->sockets[i] = connect_to(m->port);
    return meet(m);
}

static void strangers_that_say_nothing_hold_nobody_up(void **state) {
    (void)state;
    static visit strangers;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    strangers.count = STRANGERS; /* more than rank 0 serves at once */
    for (int32_t i = 0; i < COUNT; i++)
        crew[i].user = &strangers;
    fig_crew_run(crew, COUNT, stay_silent);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
    for (int32_t i = 0; i < STRANGERS; i++)
        fig_wire_close(&strangers.sockets[i]);
}

/* Returns 1 if a verdict carries a proof. A verdict for a stranger must carry none: the proof would
 * cover bytes that the stranger chose, and a word list could then reveal the secret. */
static int is_proved(const uint8_t verdict[VERDICT_BYTES]) {
    int found = 0;
    for (int i = VERDICT_BYTES - FIG_SECRET_BYTES; i < VERDICT_BYTES; i++)
        found |= verdict[i] != 0;
    return found;
}

/* Rank 3's thread plays a stranger before it joins. */
static fig_status visit_first(fig_crew_member *m) {
    visit *of = m->user;
    if (m->rank != 3) return meet(m);
    uint8_t verdict[VERDICT_BYTES];
    int socket = connect_to(m->port);
    hand_claim claim = claim_by_hand(socket, &of->like, of->secret);
    if (of->is_garbage) memset(&claim, 'x', sizeof claim);
    const int64_t deadline = fig_clock_ns() + FIG_HANG_NS;
    fig_status status = fig_wire_send(socket, &claim, sizeof claim, deadline);
    if (status == FIG_OK) status = fig_wire_receive(socket, verdict, sizeof verdict, deadline);
    if (status == FIG_OK && *(fig_status *)(void *)verdict == FIG_OK) status = FIG_CALLBACK;
    if (status == FIG_OK && is_proved(verdict) != (strcmp(of->secret, m->secret) == 0))
        status = FIG_CALLBACK;
    fig_wire_close(&socket);
    return status == FIG_OK ? meet(m) : status;
}

static void strangers_without_the_secret_are_turned_away_with_nothing_to_guess_by(void **state) {
    (void)state;
    visit stranger = {.secret = "guess",
                      .like = {.version = FIG_VERSION, .count = COUNT, .rank = 2}};
    fig_crew_member crew[COUNT];
    for (int32_t is_garbage = 0; is_garbage < 2; is_garbage++) {
        stranger.is_garbage = is_garbage;
        fig_crew_init(crew, COUNT);
        crew[3].user = &stranger;
        fig_crew_run(crew, COUNT, visit_first);
        fig_crew_expect(crew, COUNT, FIG_OK, "");
    }
    /* A rank that gives a wrong count ends the rendezvous, but a stranger must not be able to. */
    stranger = (visit){.secret = "guess", .like = {.version = FIG_VERSION, .count = 9, .rank = 1}};
    fig_crew_init(crew, COUNT);
    crew[3].user = &stranger;
    fig_crew_run(crew, COUNT, visit_first);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

static void a_rank_with_another_secret_is_reported(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    crew[1].secret = "another";
    fig_crew_run(crew, COUNT, meet);
    assert_int_equal(crew[1].status, FIG_INVALID);
    assert_non_null(strstr(crew[1].message, "knows another secret than rank 1"));
    crew[1].is_away = 1;
    fig_crew_expect(crew, COUNT, FIG_TIMEOUT,
                    "rank 1 did not come within 1.5 s; 1 that did not know the secret came");
}

/* ---- One user ------------------------------------------------------------------------------- */

/* The difference between the user id that the library sees and the real one, which the system
 * reports. */
static uint32_t other_user;
uid_t geteuid(void) {
    return (uid_t)syscall(SYS_geteuid) + other_user;
}

static void ranks_of_one_user_meet_without_a_port(void **state) {
    (void)state;
    fig_crew_member crew[COUNT];
    int listener;
    fig_crew_init(crew, COUNT);
    const fig_wire_place taken = {.address = "127.0.0.1", .port = crew[0].port, .one_host = 1};
    /* It listens on TCP, so ranks of one user, which need no port, still meet. */
    assert_int_equal(fig_wire_listen(&listener, &taken), FIG_OK);
    for (int32_t i = 0; i < COUNT; i++)
        crew[i].user = own;
    fig_crew_run(crew, COUNT, meet);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
    fig_crew_run(crew, COUNT, meet); /* again, without a pause */
    fig_crew_expect(crew, COUNT, FIG_OK, "");
    fig_wire_close(&listener);
}

static void another_job_of_the_user_is_reported(void **state) {
    (void)state;
    fig_crew_member crew[2];
    fig_crew_init(crew, 2);
    crew[0].user = crew[1].user = own;
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    crew[1].secret = "another job";
    fig_crew_run(crew, 2, meet);
    assert_int_equal(crew[1].status, FIG_INVALID);
    assert_non_null(strstr(crew[1].message, "knows another job than rank 1"));
    assert_int_equal(crew[0].status, FIG_TIMEOUT);
}

/* The system reports the real user, so each rank takes the others for another user's processes. */
static void processes_of_another_user_are_never_let_in(void **state) {
    (void)state;
    fig_crew_member crew[2];
    fig_crew_init(crew, 2);
    crew[0].user = crew[1].user = own;
    crew[0].timeout_us = FIG_CREW_ABSENT_US;
    other_user = 1;
    fig_crew_run(crew, 2, meet);
    other_user = 0;
    assert_int_equal(crew[0].status, FIG_TIMEOUT);
    assert_non_null(strstr(crew[0].message, "; 1 that did not know the secret came"));
    assert_int_equal(crew[1].status, FIG_INVALID);
    assert_non_null(strstr(crew[1].message, " listens at port "));
    assert_non_null(strstr(crew[1].message, "FIG_SECRET lets ranks of several users meet"));
}

/* ---- By hand --------------------------------------------------------------------------------- */

static void another_version_of_the_library_is_reported(void **state) {
    (void)state;
    visit newer = {.secret = "crew",
                   .like = {.version = FIG_VERSION + 1, .count = COUNT, .rank = 3}};
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[3].user = &newer;
    crew[3].timeout_us = 200000; /* rank 0 has left when rank 3 comes */
    fig_crew_run(crew, COUNT, visit_first);
    crew[3].is_away = 1;
    fig_crew_expect(crew, COUNT, FIG_INVALID,
                    "rank 3 has version 201 of the library, rank 0 has 200");
}

/* Rank 3 joins, dies before the others come, and is started again. */
static fig_status come_twice(fig_crew_member *m) {
    visit *of = m->user;
    while (m->rank == 1 && !__atomic_load_n(&of->is_over, __ATOMIC_ACQUIRE))
        fig_crew_pause_us(1000);
    if (m->rank != 3) return meet(m);
    int socket = connect_to(m->port);
    const hand_claim claim = claim_by_hand(socket, &of->like, of->secret);
    fig_status status = fig_wire_send(socket, &claim, sizeof claim, fig_clock_ns() + FIG_HANG_NS);
    fig_crew_pause_us(50000);
    fig_wire_close(&socket);
    __atomic_store_n(&of->is_over, 1, __ATOMIC_RELEASE);
    return status == FIG_OK ? meet(m) : status;
}

static void a_rank_that_dies_meanwhile_may_come_again(void **state) {
    (void)state;
    visit first = {.secret = "crew",
                   .like = {.version = FIG_VERSION, .count = COUNT, .rank = 3, .wait_ms = 20000}};
    fig_crew_member crew[COUNT];
    fig_crew_init(crew, COUNT);
    crew[1].user = crew[3].user = &first;
    fig_crew_run(crew, COUNT, come_twice);
    fig_crew_expect(crew, COUNT, FIG_OK, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_is_connected_to_rank_0),
        cmocka_unit_test(a_host_may_be_given_by_its_name),
        cmocka_unit_test(a_rank_that_never_arrives_is_named_to_all),
        cmocka_unit_test(a_rank_that_can_wait_no_longer_still_hears_who_is_missing),
        cmocka_unit_test(rank_0_that_never_arrives_is_named),
        cmocka_unit_test(ranks_of_groups_of_other_sizes_are_reported),
        cmocka_unit_test(two_processes_of_one_rank_are_reported),
        cmocka_unit_test(a_second_rank_0_finds_its_port_in_use),
        cmocka_unit_test(a_listener_that_is_not_rank_0_is_reported),
        cmocka_unit_test(strangers_that_say_nothing_hold_nobody_up),
        cmocka_unit_test(strangers_without_the_secret_are_turned_away_with_nothing_to_guess_by),
        cmocka_unit_test(a_rank_with_another_secret_is_reported),
        cmocka_unit_test(ranks_of_one_user_meet_without_a_port),
        cmocka_unit_test(another_job_of_the_user_is_reported),
        cmocka_unit_test(processes_of_another_user_are_never_let_in),
        cmocka_unit_test(another_version_of_the_library_is_reported),
        cmocka_unit_test(a_rank_that_dies_meanwhile_may_come_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
