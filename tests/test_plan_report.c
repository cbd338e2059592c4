/* test_plan_report.c: a report says what a step would do, and chooses the bucket that serves it.
 *
 * The dumber truth about a plan counts tiles one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tests/support/random.h"
#include "tests/support/sample.h"

/* Walks the line tile by tile, and counts who has what of each segment. */
static void recount(const fig_split_shape *split, const int32_t *lengths, int32_t rows,
                    int32_t *worker_tiles, int32_t *partials) {
    int32_t tiles = 0, x = 0;
    memset(worker_tiles, 0, (size_t)split->workers * sizeof *worker_tiles);
    for (int32_t row = 0; row < rows; row++)
        tiles += fig_split_tiles(split, lengths[row]) * split->groups;
    const int32_t longest = tiles > 0 ? (tiles - 1) / split->workers + 1 : 1;
    const int32_t active = tiles > 0 ? (tiles - 1) / longest + 1 : 0;
    *partials = 0;
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t group = 0; group < split->groups; group++) {
            int32_t pieces = 0, last = -1;
            for (int32_t tile = 0; tile < fig_split_tiles(split, lengths[row]); tile++, x++) {
                int32_t owner = 0;
                while ((int64_t)tiles * (owner + 1) / active <= x)
                    owner++;
                worker_tiles[owner]++;
                pieces += owner != last;
                last = owner;
            }
            if (pieces > 1) *partials += pieces;
        }
    }
}

static void a_report_counts_what_a_step_would_do(void **state) {
    (void)state;
    fig_graphs *graphs = fig_sample_graphs();
    fig_random random = fig_random_seed(41);
    for (int round = 0; round < 2000; round++) {
        int32_t lengths[6], own[FIG_WORKER_LIMIT], seen[FIG_WORKER_LIMIT], partials;
        const int32_t rows = fig_random_range(&random, 0, 6);
        for (int32_t row = 0; row < rows; row++)
            lengths[row] =
                fig_random_range(&random, 0, 3) == 0 ? 0 : fig_random_range(&random, 1, 200);
        fig_plan_report report = {
            .size = sizeof report, .worker_tiles = seen, .worker_capacity = FIG_WORKER_LIMIT};
        if (fig_graphs_plan(graphs, FIG_OPTIONS(fig_step, .rows = rows, .kv_lengths = lengths),
                            &report) != FIG_OK)
            fail_msg("%s", fig_message());
        const fig_bucket_shape *shape = &graphs->buckets[report.bucket - 1];
        recount(&shape->plan.splits[0], lengths, rows, own, &partials);
        int32_t most = 0, least = INT32_MAX, tiles = 0;
        for (int32_t worker = 0; worker < report.workers; worker++) {
            assert_int_equal(seen[worker], own[worker]);
            most = own[worker] > most ? own[worker] : most;
            least = own[worker] < least ? own[worker] : least;
            tiles += own[worker];
        }
        assert_int_equal(report.tiles_most, most);
        assert_int_equal(report.tiles_least, least);
        assert_int_equal(report.tiles, tiles);
        assert_int_equal(report.partials, partials);
        assert_true(report.partials <= report.partial_limit);
        assert_int_equal(report.workers, shape->plan.splits[0].workers);
        assert_int_equal(report.plan_bytes_limit, shape->plan.layout.bytes);
        assert_true(report.plan_bytes <= report.plan_bytes_limit && report.plan_bytes >= 64);
        assert_ptr_equal(report.worker_tiles, seen);
    }
    fig_graphs_destroy(graphs);
}

/* By rows, and by the tokens that the caller vouches for. */
static void lengths_on_the_device_choose_a_bucket_by_their_limit(void **state) {
    (void)state;
    fig_graphs *graphs;
    fig_program *program = fig_sample_breadth();
    static const fig_bucket buckets[] = {{2, 50}, {2, 200}, {6, 200}};
    assert_int_equal(fig_graphs_lower(&graphs, program,
                                      FIG_OPTIONS(fig_lower_options, .buckets = buckets,
                                                  .bucket_count = 3, .deterministic = 1)),
                     FIG_OK);
    fig_program_destroy(program);
    fig_plan_report report = {.size = sizeof report};
    static const struct {
        int32_t rows;
        int64_t token_limit;
        int32_t bucket;
    } cases[] = {{2, 0, 2}, {2, 100, 1}, {2, 101, 2}, {1, 100, 1}, {1, 0, 2}, {3, 1, 3}, {0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_step step = {
            .size = sizeof step, .rows = cases[i].rows, .token_limit = cases[i].token_limit};
        if (fig_graphs_plan(graphs, &step, &report) != FIG_OK) fail_msg("%s", fig_message());
        if (report.bucket != cases[i].bucket) fail_msg("case %zu: bucket %d", i, report.bucket);
        assert_int_equal(report.tiles + report.partials, 0);
        /* The head, and a sequence for each row. */
        assert_true(report.workers > 0);
        assert_int_equal(report.plan_bytes, 64 + (cases[i].rows * 4 + 15) / 16 * 16);
    }
    fig_graphs_destroy(graphs);
}

static void a_report_writes_no_more_workers_than_asked(void **state) {
    (void)state;
    static const int32_t lengths[] = {200, 200, 200, 200, 200, 200};
    fig_graphs *graphs = fig_sample_graphs();
    int32_t tiles[4] = {-1, -1, -1, -1};
    fig_plan_report report = {.size = sizeof report, .worker_tiles = tiles, .worker_capacity = 3};
    const fig_step step = {.size = sizeof step, .rows = 6, .kv_lengths = lengths};
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    assert_true(report.workers > 3);
    assert_true(tiles[2] > 0);
    assert_int_equal(tiles[3], -1);
    report.worker_tiles = NULL;
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    fig_graphs_destroy(graphs);
}

static void a_step_that_no_bucket_holds_is_refused(void **state) {
    (void)state;
    static const fig_bucket small[] = {{2, 100}};
    static const int32_t lengths[] = {150, 51, 1}, negative[] = {-1};
    const fig_spec spec = fig_sample_spec();
    fig_graphs *graphs = fig_sample_lower(
        &spec, FIG_OPTIONS(fig_lower_options, .buckets = small, .bucket_count = 1));
    fig_plan_report report = {.size = sizeof report, .tiles = 9};
    FIG_SAMPLE_REFUSES(
        fig_graphs_plan(graphs, FIG_OPTIONS(fig_step, .rows = 2, .kv_lengths = lengths), &report),
        FIG_TOO_LARGE, "201 tokens");
    assert_int_equal(report.tiles, 0);
    FIG_SAMPLE_REFUSES(
        fig_graphs_plan(graphs, FIG_OPTIONS(fig_step, .rows = 3, .kv_lengths = lengths), &report),
        FIG_TOO_LARGE, "rows is 3, the largest bucket takes 2");
    FIG_SAMPLE_REFUSES(
        fig_graphs_plan(graphs, FIG_OPTIONS(fig_step, .rows = 1, .kv_lengths = negative), &report),
        FIG_INVALID, "kv_lengths[0] is -1");
    fig_graphs_destroy(graphs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_counts_what_a_step_would_do),
        cmocka_unit_test(lengths_on_the_device_choose_a_bucket_by_their_limit),
        cmocka_unit_test(a_report_writes_no_more_workers_than_asked),
        cmocka_unit_test(a_step_that_no_bucket_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
