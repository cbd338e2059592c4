/* test_engine_threads.c: engines on threads of their own. */
#include "engine/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/support/gate.h"

typedef struct runner {
    const fig_graphs *graphs;
    fig_engine_options options;
    unsigned wrong; /* statuses, joined */
    fig_gate_act act;
    _Alignas(16) fig_gate_x x;
} runner;

/* Asserts nothing: CMocka's assertions belong to the thread that runs the test. */
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
            r->wrong |= fig_engine_wait(engine, FIG_GATE_BOUND_US);
            status = fig_engine_step(engine, &step);
        }
        r->wrong |= status;
    }
    const fig_step last = fig_gate_step(4);
    r->wrong |= fig_engine_wait(engine, FIG_GATE_BOUND_US);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_on_several_threads_share_one_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
