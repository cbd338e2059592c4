/* test_shared_faults.c: lets the n-th device call, or the n-th allocation, fail in an engine whose
 * rows share pages, for n = 1, 2, ... until no call is left to fail. Whatever failed, a call that
 * is repeated succeeds, and a step has the results that float64 gives.
 *
 * Invariant: the engine under test has the arrays and the graphs of a chunk case, whose own engine
 * stays idle. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/fault.h"
#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum {
    ROWS = 4,
    PAGE = 16,
    SHARED = 30,
    OWN = 2,
    TRIES = 1000,
    CALLS_LEAST = 20,
    WAIT_US = 120000000
};

static fig_chunk_case c; /* too large for the stack */

static const fig_chunk_form form = {.dtype = FIG_BF16,
                                    .kv_dtype = FIG_BF16,
                                    .q_heads = 4,
                                    .kv_heads = 1,
                                    .head_dim = 64,
                                    .page_size = PAGE,
                                    .rows = ROWS,
                                    .kv = (SHARED + OWN) * PAGE,
                                    .row_tokens = 20,
                                    .query_limit = 60};

/* One pass over everything that an engine does with shared pages, in which a single call fails. */
typedef struct pass {
    int64_t n;
    int failures;
} pass;

/* Returns 1 if the call must be repeated. The fault comes only once. */
static int failed(pass *p, fig_status status) {
    if (status == FIG_OK) return 0;
    if ((status != FIG_DRIVER && status != FIG_NOMEM) || p->failures++ > 0)
        fail_msg("fault %" PRId64 ": %s: %s", p->n, fig_status_name(status), fig_message());
    return 1;
}

#define TWICE(p, call)                                                                             \
    do {                                                                                           \
        if (failed((p), (call))) assert_int_equal((call), FIG_OK);                                 \
    } while (0)

static int32_t *entries_of(int32_t sequence) {
    return c.table + (int64_t)sequence * c.columns;
}

static fig_chunk_step open_case(void) {
    const int32_t contents[ROWS] = {0, 1, 2, 3};
    fig_chunk_step step = {.rows = ROWS};
    fig_place_hold_host();
    fig_chunk_case_open(&c, &form, 3);
    for (int32_t row = 0; row < ROWS; row++) {
        memcpy(entries_of(row), c.table, SHARED * sizeof *c.table);
        step.sequences[row] = row;
        step.counts[row] = 1 + row;
        step.lengths[row] = (SHARED + OWN) * PAGE - row;
    }
    fig_chunk_case_fill(&c, &step, contents, 1);
    return step;
}

static void close_case(void) {
    fig_chunk_case_close(&c);
    fig_place_release_host();
}

static fig_engine *open_engine(pass *p, int64_t fail_at_call) {
    fig_engine *engine;
    const fig_engine_options sound = fig_place_host_only("the calls that fail are the host's");
    fig_engine_options options = sound;
    options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call);
    if (!failed(p, fig_engine_open(&engine, c.graphs, &options))) return engine;
    assert_null(engine);
    assert_int_equal(fig_engine_open(&engine, c.graphs, &sound), FIG_OK);
    return engine;
}

static void bind(pass *p, fig_engine *engine, const char *name, const fig_reference_array *array) {
    const int64_t wide = array->dtype == FIG_F32 ? 4 : 2;
    TWICE(p, fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = name, .address = array->data,
                                                 .bytes = (uint64_t)(array->count * wide))));
}

static void bind_all(pass *p, fig_engine *engine) {
    bind(p, engine, "q", &c.q);
    bind(p, engine, "k", &c.k);
    bind(p, engine, "v", &c.v);
    bind(p, engine, "out", &c.out);
    bind(p, engine, "lse", &c.lse);
    bind(p, engine, "k_cache", &c.k_cache);
    bind(p, engine, "v_cache", &c.v_cache);
}

static fig_status set(fig_engine *engine, int32_t sequence, int32_t first, int32_t count) {
    return fig_engine_set_pages(engine,
                                FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                            .count = count, .pages = entries_of(sequence) + first));
}

static void run(pass *p, fig_engine *engine, const fig_chunk_step *step) {
    const fig_step planned = {.size = sizeof planned,
                              .rows = step->rows,
                              .kv_lengths = step->lengths,
                              .sequences = step->sequences,
                              .query_counts = step->counts};
    memset(c.out.data, 0xff, (size_t)c.out.count * 2);
    TWICE(p, fig_engine_stage(engine, &planned));
    TWICE(p, fig_engine_take_back(engine));
    TWICE(p, fig_engine_stage(engine, &planned));
    TWICE(p, fig_engine_launch(engine));
    TWICE(p, fig_engine_wait(engine, WAIT_US));
    fig_chunk_case_check(&c, step, 8);
}

/* Changes a shared page of one row, so that it leaves the group, and gives the page back. */
static void leave_and_return(pass *p, fig_engine *engine, const fig_chunk_step *step) {
    int32_t *entry = entries_of(1) + 3, page = entry[0];
    const fig_span place = {.size = sizeof place,
                            .name = "page_table",
                            .offset = (uint64_t)(entry - c.table) * sizeof *entry,
                            .bytes = sizeof *entry};
    entry[0] = entries_of(1)[c.columns - 1];
    TWICE(p, fig_engine_write(engine, &place, entry));
    entry[0] = page;
    TWICE(p, set(engine, 1, 3, 1));
    run(p, engine, step);
}

/* Binds the table anew. Half of the sequences are forks of sequence 0. */
static void start_anew(pass *p, fig_engine *engine) {
    TWICE(p, fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = "page_table")));
    TWICE(p, set(engine, 0, 0, c.columns));
    for (int32_t s = 1; s < ROWS; s++) {
        if (s % 2 != 0)
            TWICE(p, fig_engine_fork(engine,
                                     FIG_OPTIONS(fig_fork, .target = s, .length = SHARED * PAGE)));
        TWICE(p, set(engine, s, s % 2 != 0 ? SHARED : 0, s % 2 != 0 ? OWN : c.columns));
    }
}

static void do_pass(pass *p, const fig_chunk_step *step, int64_t fail_at_call) {
    fig_engine_stats stats = {.size = sizeof stats};
    fig_engine *engine = open_engine(p, fail_at_call);
    bind_all(p, engine);
    for (int32_t s = 0; s < ROWS; s++)
        TWICE(p, set(engine, s, 0, c.columns));
    run(p, engine, step);
    leave_and_return(p, engine, step);
    start_anew(p, engine);
    run(p, engine, step);
    assert_int_equal(fig_engine_read_stats(engine, &stats), FIG_OK);
    assert_int_equal(stats.shared_steps, 3);
    fig_engine_close(engine);
}

static void every_device_call_of_steps_that_share_may_fail(void **state) {
    (void)state;
    const fig_chunk_step step = open_case();
    int64_t n = 1;
    pass p = {.failures = 1};
    for (; p.failures > 0; n += FIG_FAULT_STRIDE) {
        p = (pass){.n = n};
        assert_true(n < TRIES);
        do_pass(&p, &step, n);
    }
    assert_true(n > CALLS_LEAST);
    close_case();
}

static void every_allocation_of_steps_that_share_may_fail(void **state) {
    (void)state;
    const fig_chunk_step step = open_case();
    int64_t n = 1;
    pass p = {.failures = 1};
    for (; p.failures > 0; n += FIG_FAULT_STRIDE) {
        p = (pass){.n = n};
        fig_fault_arm(n);
        do_pass(&p, &step, 0);
        const int64_t seen = fig_fault_disarm();
        assert_int_equal(p.failures, seen >= n);
    }
    assert_true(n > CALLS_LEAST);
    close_case();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_device_call_of_steps_that_share_may_fail),
        cmocka_unit_test(every_allocation_of_steps_that_share_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
