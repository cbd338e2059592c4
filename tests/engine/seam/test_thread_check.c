/* test_thread_check.c: tests that one thread at a time may use an engine: a build with the check
 * refuses a second one, and a build without it pays nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/gate.h"

#ifdef FIG_CHECK_THREADS

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        assert_int_equal((call), FIG_ORDER);                                                       \
        assert_string_equal(fig_message(), "engine: two threads use it at once, only one may");    \
    } while (0)

typedef struct waiter {
    fig_gate *gate;
    fig_status status;
} waiter;

static void *wait_for_the_gate(void *user) {
    waiter *w = user;
    w->status = fig_engine_wait(w->gate->engine, FIG_HANG_US);
    return NULL;
}

/* Waits until the other thread is inside a call. Reads the engine's internals, since no public call
 * reports this. */
static void wait_until_inside(const fig_engine *engine) {
    while (__atomic_load_n(&engine->owner.inside, __ATOMIC_ACQUIRE) == 0)
        fig_hang_pause(100);
}

static void refuse_every_call(fig_engine *engine) {
    float word = 0;
    fig_progress progress = {.size = sizeof progress};
    const fig_step step = fig_gate_step(2);
    const fig_span span = {.size = sizeof span, .name = "spare", .bytes = sizeof word};
    const int32_t page = 0;
    const fig_pages pages = {.size = sizeof pages, .count = 1, .pages = &page};
    const fig_append all = {.size = sizeof all, .bucket = 1};
    REFUSED(fig_engine_stage(engine, &step));
    REFUSED(fig_engine_launch(engine));
    REFUSED(fig_engine_step(engine, &step));
    REFUSED(fig_engine_take_back(engine));
    REFUSED(fig_engine_wait(engine, 0));
    REFUSED(fig_engine_poll(engine, &progress));
    /* prepare is the only call that a second thread may make meanwhile. */
    assert_int_equal(fig_engine_prepare(engine, 0), FIG_OK);
    REFUSED(fig_gate_bind(engine, "spare", NULL, 0));
    REFUSED(fig_engine_register(engine, "gemm", fig_gate_callback, NULL));
    REFUSED(fig_engine_write(engine, &span, &word));
    REFUSED(fig_engine_read(engine, &span, &word));
    REFUSED(fig_engine_set_pages(engine, &pages));
    REFUSED(fig_engine_append(engine, &all));
}

/* One thread waits inside a call for a step whose callback is held up. */
static void a_second_thread_is_refused_and_the_first_goes_on(void **state) {
    (void)state;
    fig_gate g;
    pthread_t thread;
    fig_gate_open(&g, NULL);
    g.held = 1;
    fig_gate_run(&g, 4);
    sem_wait(&g.entered);
    waiter w = {&g, FIG_LOST};
    assert_int_equal(pthread_create(&thread, NULL, wait_for_the_gate, &w), 0);
    wait_until_inside(g.engine);
    refuse_every_call(g.engine);
    const fig_engine_stats stats = fig_gate_stats(g.engine); /* any thread may read the counters */
    assert_int_equal(stats.staged, 1);
    assert_int_equal(stats.launched, 1);
    sem_post(&g.leave);
    pthread_join(thread, NULL);
    g.held = 0;
    assert_int_equal(w.status, FIG_OK);
    fig_gate_check(g.x, g.act, 4);
    assert_int_equal(g.engine->owner.inside, 0);
    fig_gate_run(&g, 2);
    fig_gate_wait(&g);
    assert_int_equal(g.calls, 2);
    fig_gate_close(&g);
}

/* Different threads may call one after another; a lock of the caller suffices. */
static void *step_once(void *user) {
    fig_gate *g = user;
    const fig_step step = fig_gate_step(3);
    fig_engine_step(g->engine, &step);
    return NULL;
}

static void threads_that_take_turns_are_let_in(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, step_once, &g), 0);
        pthread_join(thread, NULL);
        fig_gate_wait(&g);
        assert_int_equal(g.calls, i + 1);
    }
    fig_gate_close(&g);
}

/* A call that fails ends the thread's claim on the engine as well. */
static void a_failed_call_ends_the_claim_of_its_thread(void **state) {
    (void)state;
    fig_gate g;
    fig_gate_open(&g, NULL);
    assert_int_equal(fig_engine_launch(g.engine), FIG_ORDER);
    assert_string_equal(fig_message(), "launch: nothing is staged");
    assert_int_equal(fig_engine_take_back(g.engine), FIG_ORDER);
    assert_int_equal(fig_gate_bind(g.engine, "nobody", NULL, 0), FIG_INVALID);
    assert_int_equal(g.engine->owner.inside, 0);
    fig_gate_close(&g);
}

#else

/* One thread enters twice. A release build neither refuses this nor counts it. */
static void a_release_build_counts_nobody(void **state) {
    (void)state;
    fig_thread_check owner = {0};
    assert_int_equal(fig_thread_check_enter(&owner), FIG_OK);
    assert_int_equal(fig_thread_check_enter(&owner), FIG_OK);
    assert_int_equal(owner.inside, 0);
    assert_int_equal(fig_thread_check_leave(&owner, FIG_BUSY), FIG_BUSY);
    assert_int_equal(owner.inside, 0);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
#ifdef FIG_CHECK_THREADS
        cmocka_unit_test(a_second_thread_is_refused_and_the_first_goes_on),
        cmocka_unit_test(threads_that_take_turns_are_let_in),
        cmocka_unit_test(a_failed_call_ends_the_claim_of_its_thread),
#else
        cmocka_unit_test(a_release_build_counts_nobody),
#endif
    };
    return cmocka_run_group_tests(tests, fig_hang_watch, fig_hang_unwatch);
}
