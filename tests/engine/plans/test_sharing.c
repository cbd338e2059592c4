/* test_sharing.c: tests that an engine reports whether its steps can share pages, counts these
 * pages, and refuses changes to table entries by which rows of a staged step share them.
 *
 * All sequences begin with the pages of sequence 0. Invariant: whether its rows share pages or not,
 * a step has the results that float64 gives. */
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

enum { ROWS = 6, SHARED = 40, OWN = 2, PAGE = 16, VECTORS = 8, WAIT_US = 120000000 };

static fig_chunk_case c; /* too large for the stack */

static const fig_chunk_form plain = {.dtype = FIG_BF16,
                                     .kv_dtype = FIG_BF16,
                                     .q_heads = 4,
                                     .kv_heads = 1,
                                     .head_dim = 64,
                                     .page_size = PAGE,
                                     .rows = ROWS,
                                     .kv = 1000,
                                     .row_tokens = 20,
                                     .query_limit = 60};

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static int32_t *entries_of(int32_t sequence) {
    return c.table + (int64_t)sequence * c.columns;
}

static fig_status set(int32_t sequence, int32_t first, int32_t count) {
    return fig_engine_set_pages(c.engine,
                                FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                            .count = count, .pages = entries_of(sequence) + first));
}

static fig_chunk_step open_case(const fig_chunk_form *form) {
    const int32_t contents[ROWS] = {0, 1, 2, 3, 4, 5};
    fig_chunk_step step = {.rows = ROWS};
    fig_chunk_case_open(&c, form, 3);
    for (int32_t row = 0; row < ROWS; row++) {
        if (form->page_size > 0) {
            memcpy(entries_of(row), c.table, SHARED * sizeof *c.table);
            expect(set(row, 0, SHARED));
        }
        step.sequences[row] = row;
        step.counts[row] = 1;
        step.lengths[row] = (SHARED + OWN) * PAGE - row;
    }
    fig_chunk_case_fill(&c, &step, contents, 1);
    return step;
}

static fig_status stage(const fig_chunk_step *step) {
    return fig_engine_stage(
        c.engine, FIG_OPTIONS(fig_step, .rows = step->rows, .kv_lengths = step->lengths,
                              .sequences = step->sequences, .query_counts = step->counts));
}

static void finish(const fig_chunk_step *step) {
    expect(fig_engine_launch(c.engine));
    expect(fig_engine_wait(c.engine, WAIT_US));
    fig_chunk_case_check(&c, step, VECTORS);
}

static fig_engine_stats stats(void) {
    fig_engine_stats stats = {.size = sizeof stats};
    expect(fig_engine_read_stats(c.engine, &stats));
    return stats;
}

/* ---- Counters -------------------------------------------------------------------------------- */

static void shared_pages_count_unless_the_step_is_taken_back(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    assert_null(fig_engine_sharing(c.engine));
    expect(stage(&step));
    fig_engine_stats seen = stats();
    assert_int_equal(seen.shared_steps, 1);
    assert_int_equal(seen.shared_groups, 1);
    assert_int_equal(seen.shared_read, SHARED * PAGE);
    assert_int_equal(seen.shared_saved, (ROWS - 1) * SHARED * PAGE);
    expect(fig_engine_take_back(c.engine));
    seen = stats();
    assert_int_equal(seen.shared_steps + seen.shared_groups, 0);
    assert_int_equal(seen.shared_read + seen.shared_saved, 0);
    expect(stage(&step));
    finish(&step);
    assert_int_equal(stats().shared_steps, 1);
    fig_chunk_case_close(&c);
}

/* ---- Engines that cannot share --------------------------------------------------------------- */

/* Checks that the engine gives a reason and that its steps have no groups. */
static void expect_none(const fig_chunk_step *step) {
    assert_non_null(fig_engine_sharing(c.engine));
    expect(stage(step));
    assert_int_equal(stats().shared_steps, 0);
    finish(step);
}

static void an_engine_that_cannot_share_says_so(void **state) {
    (void)state;
    const char *texts[8];
    for (int32_t i = 0; i < 8; i++) {
        fig_chunk_form form = plain;
        form.share = i == 0 ? -1 : 0;
        form.deterministic = i == 1;
        form.row_tokens = i == 2 ? 8 : form.row_tokens;
        form.window = i == 3 ? 50 : 0;
        form.alibi = i == 4;
        form.scales = i == 5;
        if (i == 5) form.kv_dtype = FIG_E4M3;
        form.head_dim = i == 6 ? 80 : 64;
        form.page_size = i == 7 ? 0 : PAGE;
        const fig_chunk_step step = open_case(&form);
        texts[i] = fig_engine_sharing(c.engine);
        expect_none(&step);
        fig_chunk_case_close(&c);
    }
    for (int32_t i = 0; i < 3; i++)
        for (int32_t j = i + 1; j < 8; j++)
            assert_string_not_equal(texts[i], texts[j]);
}

static void an_option_beyond_its_limits_is_refused(void **state) {
    (void)state;
    static const int32_t values[] = {2, -2, INT32_MAX};
    fig_engine_options options = fig_place_options();
    fig_engine *engine;
    open_case(&plain);
    for (size_t i = 0; i < 3; i++) {
        options.share = values[i];
        assert_int_equal(fig_engine_open(&engine, c.graphs, &options), FIG_INVALID);
        assert_non_null(strstr(fig_message(), "share"));
    }
    fig_chunk_case_close(&c);
}

static void the_engine_knows_no_entries_of_a_callers_table(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    const size_t bytes = (size_t)c.pages * sizeof *c.table;
    int32_t *own = fig_place_allocate(bytes);
    assert_non_null(own);
    memcpy(own, c.table, bytes);
    expect(fig_engine_bind(
        c.engine, FIG_OPTIONS(fig_binding, .name = "page_table", .address = own, .bytes = bytes)));
    expect_none(&step);
    fig_chunk_case_close(&c);
    fig_place_free(own);
}

static void the_engine_knows_no_entries_of_a_table_whose_address_it_gave_out(void **state) {
    (void)state;
    void *address;
    const fig_chunk_step step = open_case(&plain);
    expect(fig_engine_address(c.engine, "page_table", &address));
    expect_none(&step);
    fig_chunk_case_close(&c);
}

/* Declares rows of query tokens, or a cache. */
static fig_tensor declare(fig_program *program, const char *name, int64_t first) {
    const int is_cache = first == FIG_DIM_PAGES;
    fig_tensor_info info = {.size = sizeof info,
                            .name = name,
                            .role = FIG_ROLE_BOUND,
                            .dtype = FIG_BF16,
                            .rank = is_cache ? 4 : 3,
                            .dims = {first, is_cache ? PAGE : 1, is_cache ? 1 : 64}};
    if (is_cache) info.dims[3] = 64;
    return fig_program_tensor(program, &info);
}

/* Opens an engine whose page table has more rows than any step can name. */
static void open_with_rows(int64_t rows) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 1,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .page_size = PAGE,
                           .batch_limit = ROWS,
                           .kv_limit = 1000,
                           .row_tokens = 20,
                           .query_limit = 60};
    fig_program *program;
    memset(&c, 0, sizeof c);
    expect(fig_program_create(&program, &spec));
    const fig_tensor q = declare(program, "q", FIG_DIM_QUERIES);
    const fig_tensor out = declare(program, "out", FIG_DIM_QUERIES);
    const fig_cache cache = {
        .k = declare(program, "k_cache", FIG_DIM_PAGES),
        .v = declare(program, "v_cache", FIG_DIM_PAGES),
        .page_table = fig_program_tensor(
            program, FIG_OPTIONS(fig_tensor_info, .name = "page_table", .role = FIG_ROLE_STATE,
                                 .dtype = FIG_I32, .rank = 2, .dims = {rows, 63}))};
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&c.graphs, program,
                            FIG_OPTIONS(fig_lower_options, .traits = fig_place_traits())));
    fig_program_destroy(program);
    const fig_engine_options options = fig_place_options();
    expect(fig_engine_open(&c.engine, c.graphs, &options));
}

/* No memory of an open engine grows with the rows of a table that is not bound. */
static void a_table_may_have_any_number_of_rows(void **state) {
    (void)state;
    static const int64_t rows[] = {ROWS, INT32_MAX, (int64_t)INT32_MAX + 1, (1LL << 32) + ROWS / 2};
    for (int32_t i = 0; i < 4; i++) {
        open_with_rows(rows[i]);
        assert_int_equal(fig_engine_sharing(c.engine) == NULL, rows[i] <= INT32_MAX);
        fig_engine_close(c.engine);
        fig_graphs_destroy(c.graphs);
    }
}

/* After the table is bound to new memory, all its entries are 0, and none counts as set. */
static void a_table_bound_anew_has_no_groups_of_the_old_one(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    expect(stage(&step));
    finish(&step);
    const int64_t before = stats().shared_groups;
    assert_true(before > 0);
    expect(fig_engine_bind(c.engine, FIG_OPTIONS(fig_binding, .name = "page_table")));
    expect(set(0, 0, 0)); /* the engine has a copy of the table from now on */
    expect(stage(&step));
    assert_int_equal(stats().shared_groups, before);
    expect(fig_engine_launch(c.engine));
    expect(fig_engine_wait(c.engine, WAIT_US));
    fig_chunk_case_close(&c);
}

/* ---- Entries that other rows read ------------------------------------------------------------ */

/* Sets entries of a sequence to pages that it does not have. */
static fig_status set_others(int32_t sequence, int32_t first, int32_t count) {
    int32_t others[SHARED], *entries = entries_of((sequence + 1) % ROWS) + SHARED;
    for (int32_t i = 0; i < count; i++)
        others[i] = entries[i % OWN];
    return fig_engine_set_pages(c.engine,
                                FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                            .count = count, .pages = others));
}

static void entries_that_a_staged_step_reads_for_others_stay(void **state) {
    (void)state;
    static const int32_t counts[] = {1, SHARED}; /* with the next plan; ahead of it */
    for (int32_t i = 0; i < 2; i++) {
        const int32_t first = SHARED - counts[i];
        fig_chunk_step step = open_case(&plain);
        step.rows = ROWS - 1;
        expect(set_others(0, first, counts[i])); /* nothing is staged */
        expect(set(0, 0, SHARED));
        expect(stage(&step));
        for (int32_t row = 0; row < step.rows; row++) {
            assert_int_equal(set_others(row, first, counts[i]), FIG_ORDER);
            assert_non_null(strstr(fig_message(), "pages"));
            expect(set(row, 0, SHARED));              /* the pages that the entries hold already */
            expect(set(row, SHARED, OWN));            /* after the shared entries */
            expect(set_others(row, SHARED + OWN, 1)); /* after all entries of the row */
        }
        expect(set_others(ROWS - 1, first, counts[i])); /* not in the step */
        finish(&step);
        expect(set_others(0, first, counts[i])); /* no step waits */
        fig_chunk_case_close(&c);
    }
}

/* The caller may write to a table whose address it has, so the engine does not know the entries
 * that a staged step shares. Those that it does not share may change. */
static void entries_that_nobody_knows_stay_too(void **state) {
    (void)state;
    void *address;
    const fig_chunk_step step = open_case(&plain);
    expect(stage(&step));
    expect(fig_engine_address(c.engine, "page_table", &address));
    assert_int_equal(set(0, SHARED - 1, 1), FIG_ORDER);
    expect(set(0, SHARED, OWN));
    expect(set(0, 0, 0));
    finish(&step);
    expect(set(0, SHARED - 1, 1));
    fig_chunk_case_close(&c);
}

/* A staged step reads the table that was bound when it was staged. */
static void entries_of_a_table_bound_anew_may_change(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    const fig_span all = {
        .size = sizeof all, .name = "page_table", .bytes = (uint64_t)c.pages * sizeof *c.table};
    expect(stage(&step));
    expect(fig_engine_bind(c.engine, FIG_OPTIONS(fig_binding, .name = "page_table")));
    expect(set_others(0, SHARED - 1, 1));
    expect(set_others(1, 0, SHARED));
    expect(fig_engine_write(c.engine, &all, c.table));
    finish(&step);
    expect(stage(&step));
    finish(&step);
    assert_int_equal(stats().shared_steps, 2);
    fig_chunk_case_close(&c);
}

/* While another step waits, entries that a sequence lent to a launched step may change. */
static void a_step_that_was_launched_holds_no_entries(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    fig_chunk_step others = {.rows = ROWS - 1};
    for (int32_t row = 0; row < others.rows; row++) {
        others.sequences[row] = row + 1;
        others.counts[row] = 1;
        others.lengths[row] = step.lengths[row + 1];
    }
    expect(stage(&step));
    expect(fig_engine_launch(c.engine));
    expect(stage(&others));
    assert_int_equal(stats().shared_steps, 2);
    expect(set_others(0, 0, 1));
    assert_int_equal(set_others(1, 0, 1), FIG_ORDER);
    expect(fig_engine_launch(c.engine));
    expect(fig_engine_wait(c.engine, WAIT_US));
    fig_chunk_case_close(&c);
}

static void an_older_step_that_waits_keeps_its_entries(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    fig_chunk_step fewer = step;
    for (int32_t row = 0; row < ROWS; row++)
        fewer.lengths[row] = (SHARED - 5) * PAGE + 1 + row;
    expect(stage(&step));
    expect(stage(&fewer));
    assert_int_equal(stats().shared_steps, 2);
    assert_int_equal(set_others(0, SHARED - 1, 1), FIG_ORDER);
    expect(fig_engine_launch(c.engine));
    expect(fig_engine_take_back(c.engine));
    expect(set_others(0, SHARED - 1, 1)); /* nothing waits */
    expect(set(0, SHARED - 1, 1));
    expect(stage(&fewer)); /* shares fewer pages than the step before it */
    expect(set_others(0, SHARED - 1, 1));
    assert_int_equal(set_others(0, SHARED - 6, 1), FIG_ORDER);
    finish(&fewer);
    fig_chunk_case_close(&c);
}

/* The step that takes the place of one that was taken back shares nothing, or has other rows. */
static void a_step_that_was_taken_back_holds_no_entries(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    fig_chunk_step lone = {.rows = 1, .sequences = {ROWS - 1}, .counts = {1}};
    const fig_span all = {
        .size = sizeof all, .name = "page_table", .bytes = (uint64_t)c.pages * sizeof *c.table};
    lone.lengths[0] = step.lengths[ROWS - 1];
    expect(stage(&step));
    expect(fig_engine_take_back(c.engine));
    expect(stage(&lone));
    assert_int_equal(stats().shared_steps, 0);
    expect(set_others(0, SHARED - 1, 1));
    expect(set_others(1, 0, SHARED));
    expect(set(0, 0, SHARED));
    expect(set(1, 0, SHARED));
    expect(fig_engine_write(c.engine, &all, c.table));
    expect(stage(&step)); /* behind the one that waits and shares nothing */
    expect(fig_engine_take_back(c.engine));
    expect(set_others(0, SHARED - 1, 1));
    expect(set(0, 0, SHARED));
    expect(fig_engine_write(c.engine, &all, c.table));
    expect(fig_engine_launch(c.engine));
    expect(stage(&step)); /* an older step that waits keeps what it lends */
    expect(stage(&step));
    expect(fig_engine_take_back(c.engine));
    assert_int_equal(set_others(0, SHARED - 1, 1), FIG_ORDER);
    assert_int_equal(fig_engine_write(c.engine, &all, c.table), FIG_ORDER);
    finish(&step);
    fig_chunk_case_close(&c);
}

static void a_table_that_a_staged_step_shares_is_not_written(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    const fig_span all = {
        .size = sizeof all, .name = "page_table", .bytes = (uint64_t)c.pages * sizeof *c.table};
    expect(stage(&step));
    assert_int_equal(fig_engine_write(c.engine, &all, c.table), FIG_ORDER);
    expect(fig_engine_take_back(c.engine));
    expect(fig_engine_write(c.engine, &all, c.table));
    expect(stage(&step));
    finish(&step);
    assert_int_equal(stats().shared_steps, 1);
    expect(fig_engine_write(c.engine, &all, c.table));
    fig_chunk_case_close(&c);
}

/* What each plan lends, recorded one by one. */
enum { PLANS = 1200 };
static struct record {
    uint8_t lends[ROWS][PLANS]; /* [sequence][plan] */
    int32_t counts[ROWS];       /* entries that each sequence lends */
    int32_t entries;            /* of the step that is staged */
} record;

static int lends_since(int32_t sequence, uint64_t first) {
    int lends = 0;
    for (uint64_t n = first; n < PLANS; n++)
        lends |= record.lends[sequence][n];
    return lends;
}

static void record_plan(const fig_chunk_step *step) {
    const uint64_t number = c.engine->ring.next - 1, first = c.engine->running;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t s = step->sequences[row];
        if (!lends_since(s, first) || record.counts[s] < record.entries)
            record.counts[s] = record.entries;
        record.lends[s][number] = 1;
    }
}

static void expect_lent(void) {
    const uint64_t first = c.engine->running;
    for (int32_t s = 0; s < ROWS; s++) {
        for (int32_t entry = SHARED - 7; entry <= SHARED; entry++) {
            const int32_t other = entries_of((s + 1) % ROWS)[SHARED];
            const fig_pages pages = {.sequence = s, .first = entry, .count = 1, .pages = &other};
            assert_int_equal(fig_sharing_is_changed(&c.engine->sharing, &pages, first),
                             lends_since(s, first) && entry < record.counts[s]);
        }
    }
}

/* Draws how many rows share how many pages; mostly as many as in the step before. */
static fig_chunk_step draw_step(fig_random *random, const fig_chunk_step *all) {
    static const int32_t fewer[] = {0, 0, 5, 6};
    static int32_t less, first, rows;
    fig_chunk_step step = {.rows = 0};
    if (rows == 0 || fig_random_range(random, 0, 4) == 0) {
        less = fewer[fig_random_range(random, 0, 3)];
        first = fig_random_range(random, 0, 2);
        rows = fig_random_range(random, 2, ROWS - first);
    }
    for (; step.rows < rows; step.rows++) {
        step.sequences[step.rows] = first + step.rows;
        step.counts[step.rows] = 1;
        step.lengths[step.rows] = all->lengths[step.rows] - less * PAGE - OWN * PAGE + PAGE;
    }
    record.entries = SHARED - less;
    return step;
}

/* Steps that lend the same entries again and again are not noted one by one. */
static void a_run_of_steps_holds_what_its_steps_hold(void **state) {
    (void)state;
    const fig_chunk_step all = open_case(&plain);
    fig_random random = fig_random_seed(9);
    int32_t waiting = 0, longest = 0;
    memset(&record, 0, sizeof record);
    while (c.engine->ring.next + 1 < PLANS) {
        const int32_t kind = fig_random_range(&random, 0, 9);
        const fig_sharing_run *run = &c.engine->sharing.run;
        if (kind < 5 && waiting < 3) {
            const fig_chunk_step step = draw_step(&random, &all);
            const int64_t before = stats().shared_groups;
            expect(stage(&step));
            if (stats().shared_groups > before) record_plan(&step);
            waiting++;
        } else if (kind == 9 && waiting > 0) {
            expect(fig_engine_take_back(c.engine));
            for (int32_t s = 0; s < ROWS; s++)
                record.lends[s][c.engine->ring.next] = 0;
            waiting--;
        } else if (waiting > 0) {
            expect(fig_engine_launch(c.engine));
            expect(fig_engine_wait(c.engine, WAIT_US));
            waiting--;
        }
        expect_lent();
        if (run->first > 0 && run->last - run->first > (uint64_t)longest)
            longest = (int32_t)(run->last - run->first);
    }
    assert_true(longest > 5);
    fig_chunk_case_close(&c);
}

static fig_plan_step planned(const fig_chunk_step *step) {
    return (fig_plan_step){.rows = step->rows,
                           .lengths = step->lengths,
                           .sequences = step->sequences,
                           .queries = step->counts,
                           .horizon = 1};
}

static void groups_that_are_kept_follow_the_limit_of_the_bucket(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    const fig_plan_step plan = planned(&step);
    fig_plan_shape shape = c.graphs->buckets[0].plan;
    for (int32_t i = 0; i < 4; i++) {
        shape.query_limit = i % 2 == 0 ? ROWS : ROWS - 1;
        assert_int_equal(fig_sharing_find(&c.engine->sharing, &shape, &plan) != NULL, i % 2 == 0);
    }
    fig_chunk_case_close(&c);
}

/* Plan 2 lends nothing, and plan 3 is taken back. */
static void a_plan_that_lends_nothing_ends_a_run(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    const int32_t other = entries_of(1)[SHARED];
    const fig_pages pages = {.count = 1, .pages = &other};
    fig_plan_step plan = planned(&step);
    fig_sharing *sharing = &c.engine->sharing;
    for (uint64_t number = 1; number <= 3; number += 2) {
        plan.groups = fig_sharing_find(sharing, &c.graphs->buckets[0].plan, &plan);
        fig_sharing_note(sharing, &plan, &(fig_sharing_plans){number, 1});
    }
    assert_true(fig_sharing_is_changed(sharing, &pages, 3));
    fig_sharing_forget_plan(sharing, 3);
    assert_true(fig_sharing_is_changed(sharing, &pages, 1));
    assert_false(fig_sharing_is_changed(sharing, &pages, 2));
    fig_chunk_case_close(&c);
}

/* A step for which the ring had no slot is looked at again, though no plan lends its entries. */
static void groups_that_were_found_for_no_plan_begin_a_run(void **state) {
    (void)state;
    fig_chunk_step step = open_case(&plain);
    const int32_t other = entries_of(1)[SHARED];
    const fig_pages pages = {.sequence = ROWS - 1, .count = 1, .pages = &other};
    const fig_plan_shape *shape = &c.graphs->buckets[0].plan;
    fig_sharing *sharing = &c.engine->sharing;
    step.rows = ROWS - 2;
    fig_plan_step plan = planned(&step);
    plan.groups = fig_sharing_find(sharing, shape, &plan);
    fig_sharing_note(sharing, &plan, &(fig_sharing_plans){1, 1});
    assert_false(fig_sharing_is_changed(sharing, &pages, 1));
    step.rows = ROWS;
    plan = planned(&step);
    for (int32_t i = 0; i < 2; i++)
        plan.groups = fig_sharing_find(sharing, shape, &plan);
    fig_sharing_note(sharing, &plan, &(fig_sharing_plans){2, 1});
    assert_true(fig_sharing_is_changed(sharing, &pages, 2));
    fig_chunk_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_pages_count_unless_the_step_is_taken_back),
        cmocka_unit_test(an_engine_that_cannot_share_says_so),
        cmocka_unit_test(an_option_beyond_its_limits_is_refused),
        cmocka_unit_test(the_engine_knows_no_entries_of_a_callers_table),
        cmocka_unit_test(the_engine_knows_no_entries_of_a_table_whose_address_it_gave_out),
        cmocka_unit_test(a_table_may_have_any_number_of_rows),
        cmocka_unit_test(a_table_bound_anew_has_no_groups_of_the_old_one),
        cmocka_unit_test(entries_that_a_staged_step_reads_for_others_stay),
        cmocka_unit_test(entries_that_nobody_knows_stay_too),
        cmocka_unit_test(entries_of_a_table_bound_anew_may_change),
        cmocka_unit_test(a_step_that_was_launched_holds_no_entries),
        cmocka_unit_test(an_older_step_that_waits_keeps_its_entries),
        cmocka_unit_test(a_step_that_was_taken_back_holds_no_entries),
        cmocka_unit_test(a_table_that_a_staged_step_shares_is_not_written),
        cmocka_unit_test(a_run_of_steps_holds_what_its_steps_hold),
        cmocka_unit_test(groups_that_are_kept_follow_the_limit_of_the_bucket),
        cmocka_unit_test(a_plan_that_lends_nothing_ends_a_run),
        cmocka_unit_test(groups_that_were_found_for_no_plan_begin_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
