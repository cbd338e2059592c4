/* test_shared_plans.c: compares reports of steps whose rows are forks of each other with the plans
 * that engines make for such steps.
 *
 * Nothing is computed: a step is staged and taken back. Each plan is whole, as a report's is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/kernels/chunk_case.h"
#include "tests/support/place.h"

enum { WAIT_US = 120000000, TAIL_STEPS = 60 };

static fig_chunk_case c; /* too large for the stack */
static fig_random numbers;

static struct forked {
    int32_t rows;
    int32_t lengths[FIG_CHUNK_ROW_LIMIT], counts[FIG_CHUNK_ROW_LIMIT];
    int32_t sources[FIG_CHUNK_ROW_LIMIT], shared[FIG_CHUNK_ROW_LIMIT];
} f;

/* How many steps had groups, several groups, tails, and reasons to have no groups. */
static struct seen { int32_t grouped, several, tails, none; } seen;

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&numbers, low, high);
}

/* Draws a step. Most rows are single query tokens behind a long common beginning. */
static void draw_step(void) {
    const fig_chunk_form *form = &c.form;
    const int32_t kind = draw(0, 3); /* 0: any query tokens */
    int32_t left = form->query_limit;
    f.rows = draw(1, form->rows);
    for (int32_t row = 0; row < f.rows; row++) {
        const int32_t most = fig_size_min(left, form->row_tokens);
        f.counts[row] = fig_size_min(most, kind > 0 ? 1 : draw(0, 12));
        f.lengths[row] = draw(0, 9) == 0 ? 0 : draw(form->kv / 2, form->kv);
        f.sources[row] = draw(0, row);
        const int32_t limit = fig_size_min(f.lengths[row], f.lengths[f.sources[row]]);
        f.shared[row] = draw(0, 5) == 0 ? 0 : draw(limit / 2, limit);
        left -= f.counts[row];
    }
}

/* Gives each row pages of its own, in the order of the rows, and then those of its source. */
static void fork_rows(void) {
    for (int32_t row = 0; row < f.rows; row++) {
        int32_t *entries = c.table + (int64_t)row * c.columns;
        for (int32_t i = 0; i < c.columns; i++)
            entries[i] = row * c.columns + i;
        expect(fig_engine_set_pages(c.engine, FIG_OPTIONS(fig_pages, .sequence = row,
                                                          .count = c.columns, .pages = entries)));
        if (f.shared[row] == 0 || f.sources[row] == row) continue;
        expect(fig_engine_fork(c.engine, FIG_OPTIONS(fig_fork, .source = f.sources[row],
                                                     .target = row, .length = f.shared[row])));
    }
}

/* Stages the step in an engine that holds nothing, and compares what it planned. */
static void compare(const fig_step *step, const fig_plan_report *report) {
    fig_engine_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    const fig_plan_held *held = &c.engine->held;
    int32_t tails = 0, grouped = 0;
    expect(fig_engine_read_stats(c.engine, &before));
    expect(fig_engine_stage(c.engine, step));
    expect(fig_engine_read_stats(c.engine, &after));
    assert_int_equal(after.last_bucket, report->bucket);
    assert_int_equal(after.shared_groups - before.shared_groups, report->shared_groups);
    assert_int_equal(after.shared_read - before.shared_read, report->shared_read);
    assert_int_equal(after.shared_saved - before.shared_saved, report->shared_saved);
    assert_int_equal(c.engine->plan_bytes, report->plan_bytes);
    assert_int_equal(held->readers[0], report->readers);
    for (int32_t row = 0; row < f.rows && held->group_count > 0; row++) {
        grouped += held->work.rows[row].slots > 0;
        tails += held->has_tails && held->before[row] > 0;
    }
    assert_int_equal(report->shared_rows, grouped);
    assert_int_equal(report->tails, tails);
    assert_true((report->unshared == NULL) == (report->shared_groups > 0));
    seen.grouped += report->shared_groups > 0;
    seen.several += report->shared_groups > 1;
    seen.tails += tails > 0;
    seen.none += report->shared_groups == 0;
    expect(fig_engine_take_back(c.engine));
}

static void try_step(void) {
    draw_step();
    fork_rows();
    /* A step without rows carries the entries of the table. */
    expect(fig_engine_step(c.engine, FIG_OPTIONS(fig_step, .rows = 0)));
    expect(fig_engine_wait(c.engine, WAIT_US));
    const fig_step step = {
        .size = sizeof step, .rows = f.rows, .kv_lengths = f.lengths, .query_counts = f.counts};
    fig_plan_report report = {.size = sizeof report,
                              .fork_sources = f.sources,
                              .fork_lengths = f.shared,
                              .share = c.form.share};
    expect(fig_graphs_plan(c.graphs, &step, &report));
    compare(&step, &report);
}

static void try_form(const fig_chunk_form *form, uint64_t seed, int32_t steps) {
    numbers = fig_random_seed(seed);
    memset(&seen, 0, sizeof seen);
    fig_chunk_case_open(&c, form, seed);
    for (int32_t i = 0; i < steps; i++) {
        c.engine->held.exec = -1;
        try_step();
    }
    fig_chunk_case_close(&c);
}

static fig_chunk_form form_of(int32_t rows, int32_t kv) {
    return (fig_chunk_form){.dtype = FIG_BF16,
                            .kv_dtype = FIG_BF16,
                            .q_heads = 4,
                            .kv_heads = 1,
                            .head_dim = 64,
                            .page_size = 16,
                            .rows = rows,
                            .kv = kv,
                            .row_tokens = 20,
                            .query_limit = 60};
}

static void a_report_says_what_an_engine_shares(void **state) {
    (void)state;
    const fig_chunk_form form = form_of(12, 2000);
    try_form(&form, 5, fig_place_cases(200));
    assert_true(seen.grouped > fig_place_cases(200) / 4);
    assert_true(seen.several > 0 && seen.none > 0);
}

/* Graphs for an H200 may leave tails to the launch of the split, on whatever device they run. */
static void a_report_says_which_tails_an_engine_has(void **state) {
    (void)state;
    fig_traits h200 = {.size = sizeof h200};
    expect(fig_traits_named(&h200, "h200"));
    for (int32_t share = 0; share < 2; share++) {
        fig_chunk_form form = form_of(21, 212000 / 64);
        form.q_heads = 32;
        form.kv_heads = 8;
        form.traits = &h200;
        form.share = share;
        try_form(&form, 7 + (uint64_t)share, TAIL_STEPS);
        assert_true(seen.none > 0 || share == 1);
        assert_true((seen.grouped > 0 && seen.tails > 0) || share == 0);
    }
}

static void a_report_of_an_engine_that_never_shares_has_no_groups(void **state) {
    (void)state;
    fig_chunk_form form = form_of(12, 2000);
    form.share = -1;
    try_form(&form, 9, fig_place_cases(30));
    assert_int_equal(seen.grouped, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_says_what_an_engine_shares),
        cmocka_unit_test(a_report_says_which_tails_an_engine_has),
        cmocka_unit_test(a_report_of_an_engine_that_never_shares_has_no_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
