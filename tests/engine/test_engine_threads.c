/* test_engine_threads.c: runs engines on several threads. They share one fig_graphs, and another
 * thread reads all of their counters. */
#include "engine/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/gate.h"
#include "tests/support/place.h"
#include "tests/support/steps/race.h"

typedef struct runner {
    const fig_graphs *graphs;
    fig_engine_options options;
    unsigned wrong; /* all statuses, combined by bitwise or */
    fig_gate_act act;
    _Alignas(16) fig_gate_x x;
} runner;

/* Does not assert, since CMocka's assertions work only in the thread that runs the test. */
static void *run_engine(void *user) {
    runner *r = user;
    fig_gate gate;
    fig_engine *engine;
    const fig_span span = {.size = sizeof span, .name = "act", .bytes = sizeof r->act};
    fig_gate_init(&gate);
    r->wrong = fig_engine_open(&engine, r->graphs, &r->options);
    r->wrong |= fig_gate_bind(engine, "x", r->x, sizeof r->x);
    r->wrong |= fig_gate_bind(engine, "act", NULL, 0);
    r->wrong |= fig_engine_register(engine, "gemm", fig_gate_callback, &gate);
    for (int i = 0; i < 200; i++) {
        const fig_step step = fig_gate_step(i % 5);
        fig_status status = fig_engine_step(engine, &step);
        while (status == FIG_BUSY) {
            r->wrong |= fig_engine_wait(engine, FIG_HANG_US);
            status = fig_engine_step(engine, &step);
        }
        r->wrong |= status;
    }
    const fig_step last = fig_gate_step(4);
    r->wrong |= fig_engine_wait(engine, FIG_HANG_US);
    r->wrong |= fig_engine_step(engine, &last);
    r->wrong |= fig_engine_read(engine, &span, r->act);
    r->wrong |= gate.calls != 201;
    fig_engine_close(engine);
    return NULL;
}

static void engines_on_several_threads_share_one_graphs(void **state) {
    (void)state;
    enum { THREADS = 3 };
    static runner runners[THREADS];
    pthread_t threads[THREADS];
    fig_graphs *graphs = fig_gate_graphs();
    for (int i = 0; i < THREADS; i++) {
        runners[i].graphs = graphs;
        runners[i].options = fig_gate_options();
        fig_gate_fill(runners[i].x, (float)(i + 1));
        assert_int_equal(pthread_create(&threads[i], NULL, run_engine, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(runners[i].wrong, FIG_OK);
        fig_gate_check(runners[i].x, runners[i].act, 4);
    }
    fig_graphs_destroy(graphs);
}

/* ---- Racing engines ------------------------------------------------------------------------ */

enum { RACERS = 4, STEPS = 300, STRETCH = 32 };

typedef struct looker {
    fig_race *races; /* [RACERS] */
    int done;        /* 1: all racers have ended; atomic */
    int64_t looks, wrong;
} looker;

/* Counters only grow, except `staged`, which falls when plans are taken back. */
static int is_in_order(const fig_engine_stats *before, const fig_engine_stats *after) {
    return after->launched >= before->launched && after->taken_back >= before->taken_back &&
           after->busy >= before->busy && after->missed >= before->missed &&
           after->host.count >= before->host.count && after->host.sum >= before->host.sum &&
           after->period.count >= before->period.count &&
           after->pinned_bytes == before->pinned_bytes && after->last_bucket >= 0;
}

static void *look(void *user) {
    looker *l = user;
    fig_engine_stats last[RACERS] = {{0}};
    for (int i = 0; i < RACERS; i++) {
        last[i].size = sizeof last[i];
        fig_engine_read_stats(l->races[i].engine, &last[i]);
    }
    while (!__atomic_load_n(&l->done, __ATOMIC_ACQUIRE)) {
        for (int i = 0; i < RACERS; i++) {
            fig_engine_stats stats = {.size = sizeof stats};
            fig_engine_read_stats(l->races[i].engine, &stats);
            l->wrong += !is_in_order(&last[i], &stats);
            last[i] = stats;
        }
        l->looks++;
    }
    return NULL;
}

static void *run_race(void *user) {
    fig_race_run(user, STEPS, STRETCH);
    return NULL;
}

/* Opens races with different seeds. */
static fig_race *open_races(const fig_graphs *graphs) {
    fig_race *races = calloc(RACERS, sizeof *races);
    fig_engine_options options = fig_place_options();
    assert_non_null(races);
    options.slots = 2;
    options.check_plans = 1;
    for (uint64_t i = 0; i < RACERS; i++)
        if (!fig_race_open(&races[i], graphs, &options, i)) fail_msg("%s", races[i].sentence);
    return races;
}

static void close_races(fig_race *races) {
    for (int i = 0; i < RACERS; i++)
        fig_race_close(&races[i]);
    free(races);
}

static void engines_side_by_side_do_what_each_does_alone(void **state) {
    (void)state;
    pthread_t threads[RACERS], looking;
    fig_graphs *graphs = fig_race_graphs();
    fig_race *beside = open_races(graphs), *alone = open_races(graphs);
    looker l = {.races = beside};
    assert_int_equal(pthread_create(&looking, NULL, look, &l), 0);
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_race, &beside[i]), 0);
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    __atomic_store_n(&l.done, 1, __ATOMIC_RELEASE);
    pthread_join(looking, NULL);
    for (int i = 0; i < RACERS; i++) {
        run_race(&alone[i]);
        assert_string_equal(beside[i].sentence, "");
        assert_string_equal(alone[i].sentence, "");
        assert_int_equal(beside[i].launches, alone[i].launches);
        assert_int_equal(beside[i].taken_back, alone[i].taken_back);
        assert_memory_equal(beside[i].cache, alone[i].cache, sizeof alone[i].cache);
        assert_true(i == 0 ||
                    memcmp(beside[i].cache, beside[0].cache, sizeof beside[0].cache) != 0);
    }
    print_message("%d looks at the counters\n", (int)l.looks);
    assert_int_equal(l.wrong, 0);
    assert_true(l.looks > 0);
    close_races(beside);
    close_races(alone);
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_on_several_threads_share_one_graphs),
        cmocka_unit_test(engines_side_by_side_do_what_each_does_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
