/* test_engine_faults.c: lets the n-th device call, or the n-th allocation, fail, for n = 1, 2, ...
 * until no call is left to fail. Each failure must be a status with a message, and the failed call
 * must succeed when it is repeated. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/fault.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

/* One pass over everything that an engine does, in which a single call fails. */
typedef struct pass {
    int64_t n;
    int failures; /* statuses other than FIG_OK so far */
    char sentence[256];
} pass;

/* Returns 1 if the call must be repeated. The fault comes only once, so the second try must
 * succeed. */
static int failed(pass *p, fig_status status) {
    if (status == FIG_OK) return 0;
    if (status != FIG_DRIVER && status != FIG_NOMEM)
        fail_msg("fault %" PRId64 ": %s: %s", p->n, fig_status_name(status), fig_message());
    assert_true(fig_message()[0] != '\0');
    if (p->failures++ > 0)
        fail_msg("fault %" PRId64 " came again: %s, after %s", p->n, fig_message(), p->sentence);
    snprintf(p->sentence, sizeof p->sentence, "%s", fig_message());
    return 1;
}

#define TWICE(p, call)                                                                             \
    do {                                                                                           \
        if (failed((p), (call))) assert_int_equal((call), FIG_OK);                                 \
    } while (0)

static fig_status poll(fig_engine *engine) {
    fig_progress progress = {.size = sizeof progress};
    return fig_engine_poll(engine, &progress);
}

static fig_engine_options host_options(void) {
    return fig_place_host_only("the calls that fail are counted among the host's");
}

static fig_engine *open_engine(pass *p, const fig_graphs *graphs, int64_t fail_at_call) {
    fig_engine *engine;
    const fig_engine_options sound = host_options();
    fig_engine_options options = sound;
    options.slots = 2;
    options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call);
    if (!failed(p, fig_engine_open(&engine, graphs, &options))) return engine;
    assert_null(engine);
    assert_int_equal(fig_engine_open(&engine, graphs, &sound), FIG_OK);
    return engine;
}

/* Covers calls, temporary tensors, memory of the engine and of the caller, patched and rebuilt
 * execs, and a full ring. */
static void run_gate(pass *p, const fig_graphs *graphs, int64_t fail_at_call) {
    static _Alignas(16) fig_gate_x x;
    static fig_gate_act act, zeros;
    fig_gate gate;
    const fig_step step = fig_gate_step(4);
    fig_gate_init(&gate);
    fig_gate_fill(x, 1.0f);
    fig_engine *engine = open_engine(p, graphs, fail_at_call);
    const fig_span from = {.size = sizeof from, .name = "x", .bytes = sizeof x};
    const fig_span to = {.size = sizeof to, .name = "act", .bytes = sizeof act};
    TWICE(p, fig_gate_bind(engine, "x", NULL, 0));
    TWICE(p, fig_gate_bind(engine, "act", NULL, 0));
    TWICE(p, fig_engine_register(engine, "gemm", fig_gate_callback, &gate));
    TWICE(p, fig_engine_write(engine, &from, x));
    TWICE(p, fig_engine_stage(engine, &step));
    TWICE(p, fig_engine_stage(engine, &step));
    TWICE(p, fig_engine_launch(engine));
    TWICE(p, fig_engine_launch(engine));
    TWICE(p, poll(engine));
    TWICE(p, fig_engine_wait(engine, FIG_HANG_US));
    TWICE(p, fig_engine_read(engine, &to, act));
    fig_gate_check(x, act, 4);

    TWICE(p, fig_gate_bind(engine, "act", NULL, 0)); /* patches a launch and frees memory */
    TWICE(p, fig_engine_stage(engine, &step));
    TWICE(p, fig_engine_launch(engine));
    /* the call that uses x must be captured again */
    TWICE(p, fig_gate_bind(engine, "x", x, sizeof x));
    TWICE(p, fig_engine_prepare(engine, 0));
    TWICE(p, fig_engine_stage(engine, &step));
    TWICE(p, fig_engine_launch(engine));
    TWICE(p, fig_engine_wait(engine, FIG_HANG_US));
    memcpy(act, zeros, sizeof act);
    TWICE(p, fig_engine_read(engine, &to, act));
    fig_gate_check(x, act, 4);
    assert_int_equal(gate.calls, 4);
    fig_engine_close(engine);
}

static const fig_bucket decode_buckets[] = {{2, 128}, {4, 64}};
static const fig_decode_options decode_options = {.dtype = FIG_F16,
                                                  .layers = 1,
                                                  .page_size = 16,
                                                  .batch_limit = 4,
                                                  .kv_limit = 128,
                                                  .buckets = decode_buckets,
                                                  .bucket_count = 2};

/* Covers the standard step, its page table and all of its kernels. */
static void run_decode(pass *p, fig_decode *decode, int64_t fail_at_call) {
    static const int32_t lengths[] = {1, 1, 0};
    const fig_step step = {.size = sizeof step, .rows = 3, .kv_lengths = lengths};
    const fig_pages pages = {
        .size = sizeof pages, .sequence = 1, .count = 8, .pages = decode->page_table + 8};
    fig_random random = fig_random_seed(3);
    fig_engine *engine = open_engine(p, decode->graphs, fail_at_call);
    for (int kind = 0; kind < FIG_DECODE_K_SCALE; kind++) {
        const fig_binding binding = fig_decode_binding(decode, 0, (fig_decode_kind)kind);
        TWICE(p, fig_engine_bind(engine, &binding));
    }
    TWICE(p, fig_engine_set_pages(engine, &pages));
    const fig_span first_row = {.size = sizeof first_row, .name = "page_table", .bytes = 32};
    TWICE(p, fig_engine_write(engine, &first_row, decode->page_table));
    const fig_fork fork = {.size = sizeof fork, .source = 1, .target = 2, .length = 128};
    TWICE(p, fig_engine_fork(engine, &fork));
    fig_decode_fill(decode, &random);
    TWICE(p, fig_engine_prepare(engine, 0));
    TWICE(p, fig_engine_stage(engine, &step));
    TWICE(p, fig_engine_launch(engine));
    TWICE(p, fig_engine_wait(engine, FIG_HANG_US));
    fig_decode_check(decode, &step);
    fig_engine_close(engine);
}

/* Gives the step its page table. */
static void open_decode(fig_decode *decode) {
    fig_engine *engine;
    fig_decode_open(decode, &decode_options);
    const fig_engine_options options = host_options();
    assert_int_equal(fig_engine_open(&engine, decode->graphs, &options), FIG_OK);
    fig_decode_bind(decode, engine);
    fig_engine_close(engine);
}

enum { CALLS_LEAST = 30, TRIES = 1000 };

static void every_device_call_of_a_program_with_calls_may_fail(void **state) {
    (void)state;
    fig_graphs *graphs = fig_gate_graphs();
    int64_t n = 0;
    pass p = {.failures = 1};
    while (p.failures > 0) {
        p = (pass){.n = ++n};
        assert_true(n < TRIES);
        run_gate(&p, graphs, n);
        if (p.failures > 0) assert_non_null(strstr(p.sentence, "failed as asked"));
    }
    print_message("%" PRId64 " device calls failed\n", n - 1);
    assert_true(n > CALLS_LEAST);
    fig_graphs_destroy(graphs);
}

static void every_device_call_of_a_decode_may_fail(void **state) {
    (void)state;
    static fig_decode decode;
    int64_t n = 0;
    pass p = {.failures = 1};
    open_decode(&decode);
    while (p.failures > 0) {
        p = (pass){.n = ++n};
        assert_true(n < TRIES);
        run_decode(&p, &decode, n);
        if (p.failures > 0) assert_non_null(strstr(p.sentence, "failed as asked"));
    }
    print_message("%" PRId64 " device calls failed\n", n - 1);
    assert_true(n > CALLS_LEAST);
    fig_decode_close(&decode);
}

static void every_allocation_of_a_program_with_calls_may_fail(void **state) {
    (void)state;
    fig_graphs *graphs = fig_gate_graphs();
    int64_t n = 0, seen = 1;
    while (seen >= n) {
        pass p = {.n = ++n};
        fig_fault_arm(n);
        run_gate(&p, graphs, 0);
        seen = fig_fault_disarm();
        assert_int_equal(p.failures, seen >= n);
    }
    print_message("%" PRId64 " allocations failed\n", n - 1);
    assert_true(n > CALLS_LEAST);
    fig_graphs_destroy(graphs);
}

static void every_allocation_of_a_decode_may_fail(void **state) {
    (void)state;
    static fig_decode decode;
    int64_t n = 0, seen = 1;
    open_decode(&decode);
    while (seen >= n) {
        pass p = {.n = ++n};
        fig_fault_arm(n);
        run_decode(&p, &decode, 0);
        seen = fig_fault_disarm();
        assert_int_equal(p.failures, seen >= n);
    }
    print_message("%" PRId64 " allocations failed\n", n - 1);
    assert_true(n > CALLS_LEAST);
    fig_decode_close(&decode);
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* Fails one device call. A step that fails is tried once more, with a different number of rows. */
static int fail_steps(int64_t fail_at_call) {
    fig_gate g;
    int failures = 0;
    fig_gate_open(&g,
                  FIG_OPTIONS(fig_engine_options,
                              .test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call)));
    for (int32_t i = 0; i < 6; i++) {
        const fig_step step = fig_gate_step(1 + i % 4), next = fig_gate_step(1 + (i + 1) % 4);
        const fig_engine_stats before = fig_gate_stats(g.engine);
        int32_t rows = step.rows;
        if (fig_engine_step(g.engine, &step) != FIG_OK) {
            const fig_engine_stats after = fig_gate_stats(g.engine);
            failures++;
            assert_int_equal(g.engine->staged, g.engine->launched);
            assert_int_equal(after.uploaded_bytes, before.uploaded_bytes);
            assert_int_equal(after.last_bucket, before.last_bucket);
            assert_int_equal(after.launched, before.launched);
            assert_int_equal(fig_engine_step(g.engine, &next), FIG_OK);
            rows = next.rows;
        }
        if (fig_engine_wait(g.engine, FIG_HANG_US) != FIG_OK) fig_gate_wait(&g);
        assert_int_equal(g.last.rows, rows); /* a plan of the failed step would have other rows */
        assert_int_equal(g.calls, i + 1);
    }
    fig_gate_close(&g);
    return failures;
}

static void a_step_that_fails_stages_nothing(void **state) {
    (void)state;
    int failures = 0;
    for (int64_t n = 1; n < 60; n++) {
        fig_engine *engine;
        fig_graphs *graphs = fig_gate_graphs();
        fig_engine_options options = host_options();
        options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = n);
        fig_status status = fig_engine_open(&engine, graphs, &options);
        fig_engine_close(engine);
        fig_graphs_destroy(graphs);
        if (status == FIG_OK) failures += fail_steps(n);
    }
    print_message("%d steps failed\n", failures);
    /* failures of six launches and of the first step's preparation */
    assert_true(failures >= 6 + 8);
}

/* If take_back reported the device's failure, the caller would take back a second plan, or stage
 * this one again. */
static void steps_are_taken_back_even_if_the_device_refuses(void **state) {
    (void)state;
    const fig_step step = fig_gate_step(1);
    fig_graphs *graphs = fig_gate_graphs();
    int refused = 0;
    for (int64_t n = 1; !refused; n++) {
        static _Alignas(16) fig_gate_x x;
        static fig_gate_act act;
        fig_gate gate;
        pass p = {.n = n};
        fig_gate_init(&gate);
        fig_engine *engine = open_engine(&p, graphs, n);
        TWICE(&p, fig_gate_bind(engine, "x", x, sizeof x));
        TWICE(&p, fig_gate_bind(engine, "act", act, sizeof act));
        TWICE(&p, fig_engine_register(engine, "gemm", fig_gate_callback, &gate));
        TWICE(&p, fig_engine_stage(engine, &step));
        const int before = p.failures;
        assert_int_equal(fig_engine_take_back(engine), FIG_OK);
        refused = before == 0 && engine->drop_due != 0;
        assert_int_equal(fig_engine_take_back(engine), FIG_ORDER);
        TWICE(&p, fig_engine_step(engine, &step));
        assert_int_equal(fig_engine_wait(engine, -1), FIG_OK);
        assert_int_equal(engine->drop_due, 0);
        fig_engine_close(engine);
    }
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_call_of_a_program_with_calls_may_fail),
        cmocka_unit_test(every_device_call_of_a_decode_may_fail),
        cmocka_unit_test(every_allocation_of_a_program_with_calls_may_fail),
        cmocka_unit_test(every_allocation_of_a_decode_may_fail),
        cmocka_unit_test(a_step_that_fails_stages_nothing),
        cmocka_unit_test(steps_are_taken_back_even_if_the_device_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
