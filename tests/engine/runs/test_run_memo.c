/* test_run_memo.c: tests which runs are found in a runner's memo. */
#include "engine/runs/run_memo.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The launches of two nodes after the fetch, as lowering makes them. */
static const fig_launch launches[] = {
    {.op = FIG_OP_FETCH}, {.op = FIG_OP_GATED}, {.op = FIG_OP_ATTENTION}};
static const fig_lower_common common = {.launches = (fig_launch *)(uintptr_t)launches,
                                        .launch_count = 3};

static alignas(64) uint8_t gated[FIG_PARAMS_LIMIT], attention[FIG_PARAMS_LIMIT];
static fig_binding bindings[2] = {{.size = sizeof(fig_binding), .address = gated, .bytes = 8},
                                  {.size = sizeof(fig_binding), .address = attention}};

static fig_run run_of(int32_t rows) {
    return (fig_run){
        .size = sizeof(fig_run), .rows = rows, .bindings = bindings, .binding_count = 2};
}

static fig_run_memo *make(void) {
    fig_run_memo *memo;
    assert_int_equal(fig_run_memo_create(&memo, &common, 2), FIG_OK);
    assert_non_null(memo);
    return memo;
}

/* Returns 1 if the memo had the run. Otherwise adds the run, with two launches. */
static int meet(fig_run_memo *memo, fig_run_kind kind, const fig_run *run) {
    const fig_run_entry *entry = fig_run_memo_take(memo, kind, run);
    assert_non_null(entry);
    const int known = entry->is_known;
    if (!known) {
        assert_int_equal(entry->launch_count, 0);
        gated[0] = attention[0] = (uint8_t)run->rows;
        fig_run_memo_add(memo, &(fig_run_launch){.op = FIG_OP_GATED, .params = gated});
        fig_run_memo_add(memo, &(fig_run_launch){.op = FIG_OP_ATTENTION, .params = attention});
    }
    assert_int_equal(entry->launch_count, 2);
    assert_int_equal(entry->launches[0].op, FIG_OP_GATED);
    assert_int_equal(entry->launches[1].op, FIG_OP_ATTENTION);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(entry->launches[i].params[0], (uint8_t)run->rows);
        assert_int_equal((uintptr_t)entry->launches[i].params % 64, 0);
        assert_true(entry->launches[i].params != gated && entry->launches[i].params != attention);
    }
    fig_run_memo_give(memo, kind, 1);
    return known;
}

static void a_run_is_recognised_by_all_its_values(void **state) {
    (void)state;
    fig_run_memo *memo = make();
    fig_run run = run_of(1);
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    assert_true(meet(memo, FIG_RUN_NODES, &run));
    assert_false(meet(memo, FIG_RUN_PLAN, &run));
    run.stream = &run; /* the stream is not part of a run's identity */
    assert_true(meet(memo, FIG_RUN_NODES, &run));
    run.kv_length = 7;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    run.scratch_bytes = 16;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    run.scratch = gated;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    run.plan = gated;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    bindings[1].strides[2] = 5;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    bindings[1].strides[2] = 0;
    assert_true(meet(memo, FIG_RUN_NODES, &run));
    run.plan_bytes = 1;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    run.query_tokens = 9;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    /* The memo takes no such run. The run itself refuses it if it needs the other binding. */
    run.binding_count = 1;
    assert_null(fig_run_memo_take(memo, FIG_RUN_NODES, &run));
    fig_run_memo_destroy(memo);
}

static void the_oldest_of_64_runs_makes_room(void **state) {
    (void)state;
    fig_run_memo *memo = make();
    for (int32_t rows = 1; rows <= 65; rows++) {
        const fig_run run = run_of(rows);
        assert_false(meet(memo, FIG_RUN_NODES, &run));
    }
    for (int32_t rows = 65; rows >= 1; rows--) {
        const fig_run run = run_of(rows);
        assert_int_equal(meet(memo, FIG_RUN_NODES, &run), rows > 1);
    }
    fig_run_memo_destroy(memo);
}

static void a_run_that_failed_midway_is_forgotten(void **state) {
    (void)state;
    fig_run_memo *memo = make();
    const fig_run run = run_of(1);
    for (int i = 0; i < 70; i++) {
        const fig_run_entry *entry = fig_run_memo_take(memo, FIG_RUN_NODES, &run);
        assert_non_null(entry);
        assert_false(entry->is_known);
        assert_int_equal(entry->launch_count, 0);
        fig_run_memo_add(memo, &(fig_run_launch){.op = FIG_OP_ATTENTION, .params = attention});
        fig_run_memo_give(memo, FIG_RUN_NODES, 0);
    }
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    fig_run_memo_destroy(memo);
}

/* A name's text or a segment's nodes may change while the address stays the same. */
static void runs_with_names_are_not_kept(void **state) {
    (void)state;
    fig_run_memo *memo = make();
    fig_run run = run_of(1);
    run.segment = "attn.0";
    assert_null(fig_run_memo_take(memo, FIG_RUN_NODES, &run));
    run = run_of(1);
    bindings[1].name = "out";
    assert_null(fig_run_memo_take(memo, FIG_RUN_NODES, &run));
    bindings[1].name = NULL;
    bindings[0].size = 16;
    assert_null(fig_run_memo_take(memo, FIG_RUN_NODES, &run));
    bindings[0].size = sizeof *bindings;
    assert_false(meet(memo, FIG_RUN_NODES, &run));
    fig_run_memo_destroy(memo);
}

static void *take_elsewhere(void *memo) {
    const fig_run run = run_of(2);
    return (void *)(uintptr_t)fig_run_memo_take(memo, FIG_RUN_NODES, &run);
}

static void nobody_waits_for_the_lock(void **state) {
    (void)state;
    fig_run_memo *memo = make();
    const fig_run run = run_of(1);
    pthread_t thread;
    void *taken = memo;
    assert_non_null(fig_run_memo_take(memo, FIG_RUN_NODES, &run));
    assert_int_equal(pthread_create(&thread, NULL, take_elsewhere, memo), 0);
    assert_int_equal(pthread_join(thread, &taken), 0);
    assert_null(taken);
    fig_run_memo_give(memo, FIG_RUN_NODES, 0);
    fig_run_memo_destroy(memo);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_recognised_by_all_its_values),
        cmocka_unit_test(the_oldest_of_64_runs_makes_room),
        cmocka_unit_test(a_run_that_failed_midway_is_forgotten),
        cmocka_unit_test(runs_with_names_are_not_kept),
        cmocka_unit_test(nobody_waits_for_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
