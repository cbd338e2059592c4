/* test_sharing_forms.c: tests which buckets a step takes whose rows could share pages.
 *
 * All sequences begin with the pages of sequence 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/replay.h"
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

/* Opens an engine, and makes a step of one query token in each row. */
static fig_chunk_step open_case(const fig_chunk_form *form) {
    const int32_t contents[ROWS] = {0, 1, 2, 3, 4, 5};
    fig_chunk_step step = {.rows = ROWS};
    fig_chunk_case_open(&c, form, 3);
    for (int32_t row = 0; row < ROWS; row++) {
        int32_t *entries = c.table + (int64_t)row * c.columns;
        memcpy(entries, c.table, SHARED * sizeof *c.table);
        expect(fig_engine_set_pages(
            c.engine, FIG_OPTIONS(fig_pages, .sequence = row, .count = SHARED, .pages = entries)));
        step.sequences[row] = row;
        step.counts[row] = 1;
        step.lengths[row] = (SHARED + OWN) * PAGE - row;
    }
    fig_chunk_case_fill(&c, &step, contents, 1);
    return step;
}

/* Returns the step as the planner takes it, in a bucket that it chooses. */
static fig_plan_step plan_of(const fig_chunk_step *step) {
    return (fig_plan_step){.rows = step->rows,
                           .lengths = step->lengths,
                           .sequences = step->sequences,
                           .queries = step->counts,
                           .horizon = 1};
}

/* The plan of a bucket of ones has no place for groups. */
static void a_step_that_names_a_bucket_of_ones_shares_nothing(void **state) {
    (void)state;
    const fig_chunk_step step = open_case(&plain);
    fig_bucket_info bucket = {.size = sizeof bucket};
    int32_t number = 0;
    while (bucket.form != FIG_FORM_ONES || bucket.bucket.batch < ROWS || bucket.bucket.kv < 700)
        expect(fig_graphs_bucket(c.graphs, ++number, &bucket));
    expect(fig_engine_stage(c.engine,
                            FIG_OPTIONS(fig_step, .rows = step.rows, .kv_lengths = step.lengths,
                                        .query_counts = step.counts, .bucket = number)));
    expect(fig_engine_launch(c.engine));
    expect(fig_engine_wait(c.engine, WAIT_US));
    fig_chunk_case_check(&c, &step, VECTORS);
    fig_engine_stats stats = {.size = sizeof stats};
    expect(fig_engine_read_stats(c.engine, &stats));
    assert_int_equal(stats.shared_steps, 0);
    fig_chunk_case_close(&c);
}

/* A row that leaves the group has work on the line, in the very next step. */
static void a_row_that_leaves_its_group_is_read(void **state) {
    (void)state;
    static const fig_bucket_form forms[] = {FIG_FORM_STRIPS, FIG_FORM_SINGLES, FIG_FORM_STRIPS};
    const fig_chunk_step step = open_case(&plain);
    int32_t own[SHARED];
    for (int32_t i = 0; i < SHARED; i++) /* other pages, which no sequence of the step has */
        own[i] = c.table[(int64_t)(ROWS - 1) * c.columns + SHARED + OWN +
                         i % (c.columns - SHARED - OWN)];
    for (int32_t i = 0; i < 3; i++) {
        int32_t *entries = c.table + (int64_t)(ROWS - 2) * c.columns;
        memcpy(entries, i == 1 ? own : c.table, SHARED * sizeof *entries);
        expect(fig_engine_set_pages(c.engine, FIG_OPTIONS(fig_pages, .sequence = ROWS - 2,
                                                          .count = SHARED, .pages = entries)));
        fig_chunk_case_run(&c, &step);
        fig_chunk_case_check(&c, &step, VECTORS);
        const fig_bucket_form taken = fig_chunk_case_bucket(&c).form;
        assert_int_equal(taken == FIG_FORM_ANY ? FIG_FORM_SINGLES : taken, forms[i]);
    }
    fig_chunk_case_close(&c);
}

/* The engine does not know a table whose address it gave out, nor the groups that it had. */
static void groups_are_forgotten_with_their_table(void **state) {
    (void)state;
    void *address;
    const fig_chunk_step step = open_case(&plain);
    fig_chunk_case_run(&c, &step);
    assert_int_equal(fig_sharing_had_groups(&c.engine->sharing), 1);
    expect(fig_engine_address(c.engine, "page_table", &address));
    fig_chunk_case_run(&c, &step);
    fig_chunk_case_check(&c, &step, VECTORS);
    assert_int_equal(fig_sharing_had_groups(&c.engine->sharing), 0);
    assert_int_equal(fig_chunk_case_bucket(&c).form, FIG_FORM_ONES);
    fig_chunk_case_close(&c);
}

/* Whether rows share pages may differ from rank to rank, and all must take the same bucket. */
static void ranks_choose_buckets_whether_rows_share_or_not(void **state) {
    (void)state;
    static const fig_bucket_form forms[] = {FIG_FORM_SINGLES, FIG_FORM_ONES, FIG_FORM_STRIPS};
    for (int32_t i = 0; i < 3; i++) { /* ranks that may share; that may not; one rank */
        fig_chunk_form form = plain;
        int32_t index;
        form.share = i == 1 ? -1 : 0;
        const fig_chunk_step step = open_case(&form);
        fig_plan_step plan = plan_of(&step);
        if (i < 2) c.engine->execs.places.met.ranks = 2;
        for (int32_t n = 0; n < 2; n++) {
            expect(fig_replay_choose(c.engine, &plan, &index));
            const fig_bucket_form taken = c.graphs->buckets[index].form;
            assert_int_equal(taken == FIG_FORM_ANY ? FIG_FORM_SINGLES : taken, forms[i]);
            assert_int_equal(plan.groups != NULL, i != 1);
        }
        c.engine->execs.places.met.ranks = 1;
        fig_chunk_case_close(&c);
    }
}

/* Returns a form of which the largest buckets read tails. */
static fig_chunk_form form_with_tails(fig_traits *machine) {
    fig_chunk_form form = plain;
    expect(fig_traits_named(machine, "h200"));
    form.traits = machine;
    form.share = 1;
    form.kv_heads = 8;
    form.q_heads = 128;
    form.head_dim = 128;
    form.kv = 5500;
    return form;
}

/* The first guess at the groups of a step are those of the step before, of which one row is gone
 * now. A sanitizer sees reads behind the arrays. The size of the bucket is one with tails, so the
 * choice looks at the rows of groups. */
static void a_choice_reads_only_rows_of_its_step(void **state) {
    (void)state;
    enum { FEWER = ROWS - 1 };
    fig_traits machine = {.size = sizeof machine};
    const fig_chunk_form form = form_with_tails(&machine);
    int32_t index, *lengths = malloc(FEWER * sizeof *lengths);
    int32_t *queries = malloc(FEWER * sizeof *queries);
    assert_true(lengths != NULL && queries != NULL);
    const fig_chunk_step step = open_case(&form);
    fig_plan_step plan = plan_of(&step);
    expect(fig_replay_choose(c.engine, &plan, &index));
    assert_non_null(plan.groups);
    for (int32_t row = 0; row < FEWER; row++) {
        lengths[row] = 5000;
        queries[row] = row == 0 ? 9 : 1;
    }
    plan = plan_of(&step);
    plan.rows = FEWER;
    plan.lengths = lengths;
    plan.queries = queries;
    expect(fig_replay_choose(c.engine, &plan, &index));
    assert_int_equal(c.graphs->buckets[index].caps.kv, form.kv);
    free(lengths);
    free(queries);
    fig_chunk_case_close(&c);
}

/* What a plan depends on is the same whether a step is staged or measured. The plan of a bucket of
 * ones has no place for groups, and drops them. */
static void a_step_is_completed_by_its_bucket(void **state) {
    (void)state;
    fig_traits machine = {.size = sizeof machine};
    const fig_chunk_form form = form_with_tails(&machine);
    const fig_chunk_step step = open_case(&form);
    int32_t readers = 0, ones = 0, index;
    for (int32_t number = 1; number <= (int32_t)c.graphs->bucket_count; number++) {
        const fig_bucket_shape *bucket = &c.graphs->buckets[number - 1];
        const int is_read = bucket->paces[0].serves_tails, is_ones = bucket->form == FIG_FORM_ONES;
        fig_plan_step plan = plan_of(&step);
        plan.bucket = number;
        if (bucket->caps.batch < ROWS || bucket->caps.kv < 1024 || !(is_read || is_ones)) continue;
        expect(fig_engine_prepare(c.engine, number));
        expect(fig_replay_choose(c.engine, &plan, &index));
        assert_int_equal(index, number - 1);
        fig_replay_complete(c.engine, index, &plan);
        assert_int_equal(plan.groups == NULL, is_ones);
        assert_ptr_equal(plan.paces, bucket->paces);
        assert_int_equal(plan.serves_tails, c.engine->execs.of[bucket->plan.exec].serves_tails);
        readers += is_read && plan.serves_tails;
        ones += is_ones;
    }
    assert_true(ones > 0);
    if (strcmp(fig_place_name(), "host") == 0) assert_true(readers > 0);
    fig_chunk_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_that_names_a_bucket_of_ones_shares_nothing),
        cmocka_unit_test(a_row_that_leaves_its_group_is_read),
        cmocka_unit_test(groups_are_forgotten_with_their_table),
        cmocka_unit_test(ranks_choose_buckets_whether_rows_share_or_not),
        cmocka_unit_test(a_choice_reads_only_rows_of_its_step),
        cmocka_unit_test(a_step_is_completed_by_its_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
