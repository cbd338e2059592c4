/* test_shared_rows.c: tests what a report tells about rows that begin with the same pages, and the
 * reasons why rows share none.
 *
 * tests/engine/plans/test_shared_plans.c compares reports with engines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/plan_report.h"
#include "tests/support/files/sample.h"

enum { ROWS = 64, KV = 16384, WORKERS = 132, PAGE = 16 };

/* A step of equal rows, all of which begin with the same tokens. */
typedef struct likes {
    int32_t rows, length, shared, queries;
} likes;

static int32_t lengths[ROWS], queries[ROWS], sources[ROWS], shared[ROWS];
static fig_step step;

static fig_plan_report fill(const likes *of) {
    for (int32_t row = 0; row < of->rows; row++) {
        lengths[row] = of->length;
        queries[row] = of->queries;
        sources[row] = 0;
        shared[row] = of->shared;
    }
    step = (fig_step){
        .size = sizeof step, .rows = of->rows, .kv_lengths = lengths, .query_counts = queries};
    return (fig_plan_report){
        .size = sizeof(fig_plan_report), .fork_sources = sources, .fork_lengths = shared};
}

static fig_spec spec_of(void) {
    return (fig_spec){.size = sizeof(fig_spec),
                      .dtype = FIG_BF16,
                      .q_heads = 32,
                      .kv_heads = 8,
                      .head_dim = 128,
                      .page_size = PAGE,
                      .batch_limit = ROWS,
                      .kv_limit = KV,
                      .row_tokens = 40,
                      .query_limit = 512};
}

static fig_graphs *lower(const fig_spec *spec, const char *machine, int32_t deterministic) {
    static const fig_bucket buckets[] = {{ROWS, KV}};
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_traits_named(&traits, machine), FIG_OK);
    return fig_sample_lower(spec,
                            FIG_OPTIONS(fig_lower_options, .traits = &traits, .buckets = buckets,
                                        .bucket_count = 1, .deterministic = deterministic));
}

static void plan(const fig_graphs *graphs, fig_plan_report *report) {
    if (fig_graphs_plan(graphs, &step, report) != FIG_OK) fail_msg("%s", fig_message());
}

/* ---- Groups ---------------------------------------------------------------------------------- */

/* 64 query tokens of 4 q heads each fill two strips for each KV head. */
static void a_report_tells_what_is_read_once_and_what_is_saved(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "h200", 0);
    fig_plan_report report = fill(&(likes){ROWS, 8192 + 256, 8192 + 15, 1});
    int32_t rows[2] = {0}, firsts[2] = {-1, -1}, ends[2] = {0}, own[ROWS];
    int32_t tiles[WORKERS], prefix_tiles[WORKERS];
    int64_t all = 0, of_prefixes = 0;
    report.group_rows = rows;
    report.group_firsts = firsts;
    report.group_ends = ends;
    report.group_capacity = 2;
    report.row_firsts = own;
    report.row_capacity = ROWS;
    report.strip_worker_tiles = tiles;
    report.strip_worker_prefix_tiles = prefix_tiles;
    report.strip_worker_capacity = WORKERS;
    plan(graphs, &report);
    assert_null(report.unshared);
    assert_int_equal(report.shared_groups, 1);
    assert_int_equal(report.shared_rows, ROWS);
    assert_int_equal(report.shared_read, 2 * 8192);
    assert_int_equal(report.shared_saved, 62 * 8192);
    assert_int_equal(rows[0], ROWS);
    assert_int_equal(firsts[0], 0);
    assert_int_equal(ends[0], 8192);
    assert_int_equal(rows[1], 0); /* behind the last group */
    for (int32_t row = 0; row < ROWS; row++)
        assert_int_equal(own[row], 8192);
    assert_int_equal(report.chunks + report.tails + report.tiles, 0);
    assert_int_equal(report.prefix_strips, 2 * 8);
    assert_int_equal(report.prefix_tiles, 2 * 8 * 8192 / report.strip_tile_tokens);
    assert_int_equal(report.strips, 2 * 8 + ROWS * 8);
    assert_int_equal(report.strip_tiles,
                     report.prefix_tiles + ROWS * 8 * 256 / report.strip_tile_tokens);
    assert_true(report.strip_partials > 0);
    assert_true(report.strip_partials <= report.strip_partial_limit);
    for (int32_t worker = 0; worker < report.strip_workers; worker++) {
        assert_true(prefix_tiles[worker] <= tiles[worker]);
        all += tiles[worker];
        of_prefixes += prefix_tiles[worker];
    }
    assert_int_equal(all, report.strip_tiles);
    assert_int_equal(of_prefixes, report.prefix_tiles);
    fig_graphs_destroy(graphs);
}

/* 64 tails of 1024 tokens have 256 MB of K and V. */
static void long_tails_are_read_by_some_workers_of_the_split(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "h200", 0);
    fig_plan_report report = fill(&(likes){ROWS, 8192 + 1024, 8192, 1});
    int32_t tiles[ROWS];
    report.row_tiles = tiles;
    report.row_capacity = ROWS;
    plan(graphs, &report);
    assert_int_equal(report.shared_rows, ROWS);
    assert_int_equal(report.tails, ROWS);
    assert_in_range(report.readers, 1, report.workers - 1);
    assert_int_equal(report.tiles, ROWS * 1024 / report.tile_tokens * report.groups);
    for (int32_t row = 0; row < ROWS; row++)
        assert_int_equal(tiles[row], 1024 / report.tile_tokens);
    assert_int_equal(report.strips, report.prefix_strips);
    assert_int_equal(report.strip_tiles, report.prefix_tiles);
    queries[0] = 2; /* a row of several query tokens has no tail */
    plan(graphs, &report);
    assert_true(report.tails == 0 || report.tails == ROWS - 1);
    fig_graphs_destroy(graphs);
}

/* Rows 0 to 5 begin with 640 tokens, rows 1 to 4 of them with 1280, and row 6 with none. */
static void forks_of_forks_make_groups_inside_groups(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "host", 0);
    fig_plan_report report = fill(&(likes){7, 1400, 640, 1});
    int32_t rows[2], firsts[2], ends[2], own[7];
    sources[2] = 1;
    sources[3] = sources[4] = 2;
    shared[2] = shared[3] = shared[4] = 1280;
    shared[6] = 0;
    sources[6] = -9; /* not read */
    report.group_rows = rows;
    report.group_firsts = firsts;
    report.group_ends = ends;
    report.group_capacity = 2;
    report.row_firsts = own;
    report.row_capacity = 7;
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 2);
    assert_int_equal(rows[0], 6);
    assert_int_equal(firsts[0], 0);
    assert_int_equal(ends[0], 640);
    assert_int_equal(rows[1], 4);
    assert_int_equal(firsts[1], 640);
    assert_int_equal(ends[1], 1280);
    static const int32_t expected[] = {640, 1280, 1280, 1280, 1280, 640, 0};
    assert_memory_equal(own, expected, sizeof own);
    assert_int_equal(report.shared_rows, 6);
    assert_int_equal(report.shared_saved, 5 * 640 + 3 * 640);
    assert_true(report.tiles > 0); /* those of row 6 */
    fig_graphs_destroy(graphs);
}

static void two_prefixes_are_two_groups(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "host", 0);
    fig_plan_report report = fill(&(likes){8, 1000, 800, 1});
    for (int32_t row = 0; row < 8; row++)
        sources[row] = row % 2; /* row 1 has its own pages */
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 2);
    assert_int_equal(report.shared_rows, 8);
    sources[1] = 0;
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 1);
    fig_graphs_destroy(graphs);
}

static void a_report_writes_no_more_groups_than_asked(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "host", 0);
    fig_plan_report report = fill(&(likes){4, 1000, 800, 1});
    int32_t written[1] = {-1};
    report.group_rows = report.group_firsts = report.group_ends = written;
    report.row_firsts = written;
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 1);
    assert_int_equal(written[0], -1);
    report.group_rows = report.group_firsts = report.group_ends = report.row_firsts = NULL;
    report.group_capacity = report.row_capacity = 9;
    plan(graphs, &report);
    fig_graphs_destroy(graphs);
}

/* ---- Reasons --------------------------------------------------------------------------------- */

static void graphs_tell_why_no_rows_can_share_pages(void **state) {
    (void)state;
    static const struct {
        const char *machine, *reason;
        int32_t row_tokens, deterministic, window;
        fig_dtype dtype;
    } cases[] = {{"h200", NULL, 9, 0, 0, FIG_F16},
                 {"host", NULL, 40, 0, 0, FIG_BF16},
                 {"h200", "no row may be a chunk", 8, 0, 0, FIG_BF16},
                 {"h200", "the graphs are deterministic", 9, 1, 0, FIG_BF16},
                 {"a100", "the GPU has no kernel", 9, 0, 0, FIG_BF16},
                 {"h200", "each has a window", 9, 0, 100, FIG_BF16},
                 {"h200", "a dtype or head_dim", 9, 0, 0, FIG_F32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = spec_of();
        spec.row_tokens = cases[i].row_tokens;
        spec.window = cases[i].window;
        spec.dtype = cases[i].dtype;
        fig_graphs *graphs = lower(&spec, cases[i].machine, cases[i].deterministic);
        fig_plan_report report = fill(&(likes){ROWS, 8448, 8192, 1});
        const char *reason = fig_graphs_sharing(graphs);
        plan(graphs, &report);
        if (cases[i].reason == NULL) assert_null(reason);
        if (cases[i].reason != NULL) {
            assert_non_null(strstr(reason, cases[i].reason));
            assert_ptr_equal(report.unshared, reason);
        }
        assert_int_equal(report.shared_groups, cases[i].reason == NULL);
        fig_graphs_destroy(graphs);
    }
}

static void expect_none(const fig_graphs *graphs, fig_plan_report *report, const char *reason) {
    plan(graphs, report);
    assert_non_null(report->unshared);
    if (strstr(report->unshared, reason) == NULL) fail_msg("%s", report->unshared);
    assert_int_equal(report->shared_groups, 0);
    assert_int_equal(report->shared_rows + report->shared_read + report->shared_saved, 0);
    assert_int_equal(report->prefix_strips + report->prefix_tiles, 0);
}

static void a_report_tells_why_these_rows_share_no_pages(void **state) {
    (void)state;
    static const struct {
        likes of;
        const char *reason;
    } cases[] = {{{4, 1280, 1024, 1}, "more time than it saves"},
                 {{ROWS, 8448, PAGE - 1, 1}, "no two rows have a whole page"},
                 {{4, 8448, 8192, 17}, "so many query tokens"},
                 {{40, 8448, 8192, 8}, "more query tokens than all groups"},
                 {{1, 8448, 8192, 1}, "no two rows have a whole page"},
                 {{8, 32, 32, 30}, "so many query tokens"}};
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "h200", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_plan_report report = fill(&cases[i].of);
        expect_none(graphs, &report, cases[i].reason);
    }
    fig_plan_report report = fill(&(likes){ROWS, 8448, 8192, 1});
    report.share = -1;
    expect_none(graphs, &report, "the option share");
    report = fill(&(likes){ROWS, 8448, 8192, 1});
    report.fork_sources = report.fork_lengths = NULL;
    expect_none(graphs, &report, "no rows begin with the same pages");
    fig_graphs_destroy(graphs);
}

/* The option makes a step share where an H200 would not gain from it. */
static void the_option_share_leaves_costs_of_launches_out(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "h200", 0);
    fig_plan_report report = fill(&(likes){4, 2048 + 256, 2048, 1});
    expect_none(graphs, &report, "more time than it saves");
    report = fill(&(likes){4, 2048 + 256, 2048, 1});
    report.share = 1;
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 1);
    fig_graphs_destroy(graphs);
}

/* The plan of a bucket of ones has no place for groups. One of strips takes such a step only if all
 * rows share pages. */
static void a_named_bucket_decides_whether_rows_share(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "h200", 0);
    int32_t ones = 0, strips = 0;
    for (int32_t i = 1; i <= (int32_t)graphs->bucket_count; i++) {
        if (graphs->buckets[i - 1].form == FIG_FORM_ONES) ones = i;
        if (graphs->buckets[i - 1].form == FIG_FORM_STRIPS) strips = i;
    }
    assert_true(ones > 0 && strips > 0);
    fig_plan_report report = fill(&(likes){ROWS, 8448, 8192, 1});
    step.bucket = ones;
    expect_none(graphs, &report, "no place for groups");
    assert_int_equal(report.cheapest, strips);
    step.bucket = strips;
    plan(graphs, &report);
    assert_int_equal(report.shared_groups, 1);
    assert_int_equal(report.cheapest, strips);
    report.fork_sources = report.fork_lengths = NULL;
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_TOO_LARGE, "shares no pages");
    fig_graphs_destroy(graphs);
}

/* Both classes of a step are planned in the bucket that its groups decide. */
static void only_one_class_shares_pages(void **state) {
    (void)state;
    fig_spec spec = spec_of();
    spec.layers = 2;
    spec.window = 1024;
    spec.window_layers[0] = 1;
    fig_graphs *graphs = lower(&spec, "h200", 0);
    assert_int_equal(graphs->common.classes.count, 2);
    const int32_t sharer = fig_graphs_sharer(graphs);
    fig_plan_report report = fill(&(likes){ROWS, 8448, 8192, 1}), other = report;
    assert_int_equal(fig_plan_report_class(graphs, &step, sharer, &report), FIG_OK);
    assert_int_equal(fig_plan_report_class(graphs, &step, 1 - sharer, &other), FIG_OK);
    assert_int_equal(report.shared_groups, 1);
    assert_int_equal(other.shared_groups, 0);
    assert_non_null(strstr(other.unshared, "only another class"));
    assert_int_equal(other.bucket, report.bucket);
    assert_int_equal(report.tiles, report.tails * 256 / report.tile_tokens * report.groups);
    assert_true(other.tiles > 0);
    assert_int_equal(other.tails, 0);
    fig_graphs_destroy(graphs);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void a_fork_out_of_range_is_refused(void **state) {
    (void)state;
    const fig_spec spec = spec_of();
    fig_graphs *graphs = lower(&spec, "host", 0);
    static const struct {
        int32_t source, length;
        const char *sentence;
    } cases[] = {
        {0, -1, "plan: fork_lengths[2] is -1, limits 0 to kv_lengths[2], 500"},
        {0, 501, "plan: fork_lengths[2] is 501, limits 0 to kv_lengths[2], 500"},
        {-1, 9, "plan: fork_sources[2] is -1, limits 0 to 2"},
        {3, 9, "plan: fork_sources[2] is 3, limits 0 to 2"},
        {1, 301, "plan: fork_lengths[2] is 301, limit kv_lengths[1], 300"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_plan_report report = fill(&(likes){4, 500, 300, 1});
        lengths[1] = 300;
        sources[2] = cases[i].source;
        shared[2] = cases[i].length;
        FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_INVALID, cases[i].sentence);
    }
    fig_plan_report report = fill(&(likes){4, 500, 300, 1});
    report.fork_sources = NULL;
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_INVALID,
                       "plan: fork_sources is NULL, and fork_lengths is not");
    report = fill(&(likes){4, 500, 300, 1});
    report.fork_lengths = NULL;
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_INVALID,
                       "plan: fork_lengths is NULL, and fork_sources is not");
    report = fill(&(likes){4, 500, 300, 1});
    report.share = 2;
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_INVALID,
                       "plan: share is 2, it is 0, 1 or -1");
    fig_graphs_destroy(graphs);
}

static void rows_whose_lengths_the_device_reads_have_no_forks(void **state) {
    (void)state;
    static const fig_bucket buckets[] = {{6, 200}};
    fig_program *program = fig_sample_breadth();
    fig_graphs *graphs;
    assert_int_equal(
        fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = buckets, .bucket_count = 1)),
        FIG_OK);
    fig_program_destroy(program);
    fig_plan_report report = fill(&(likes){2, 100, 50, 1});
    step.kv_lengths = step.query_counts = NULL;
    FIG_SAMPLE_REFUSES(fig_graphs_plan(graphs, &step, &report), FIG_INVALID,
                       "plan: fork_lengths must be NULL");
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_tells_what_is_read_once_and_what_is_saved),
        cmocka_unit_test(long_tails_are_read_by_some_workers_of_the_split),
        cmocka_unit_test(forks_of_forks_make_groups_inside_groups),
        cmocka_unit_test(two_prefixes_are_two_groups),
        cmocka_unit_test(a_report_writes_no_more_groups_than_asked),
        cmocka_unit_test(graphs_tell_why_no_rows_can_share_pages),
        cmocka_unit_test(a_report_tells_why_these_rows_share_no_pages),
        cmocka_unit_test(the_option_share_leaves_costs_of_launches_out),
        cmocka_unit_test(a_named_bucket_decides_whether_rows_share),
        cmocka_unit_test(only_one_class_shares_pages),
        cmocka_unit_test(a_fork_out_of_range_is_refused),
        cmocka_unit_test(rows_whose_lengths_the_device_reads_have_no_forks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
