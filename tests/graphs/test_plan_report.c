/* test_plan_report.c: tests that a report states what a step would do, and chooses the bucket that
 * would run it.
 *
 * The expected numbers come from counting tiles one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "tests/support/random.h"
#include "tests/support/files/sample.h"

/* Walks the line tile by tile, and counts the tiles of each worker and the partials. starts: NULL
 * if the cuts are by tiles. */
static void recount(const fig_split_shape *split, const int32_t *lengths, int32_t rows,
                    const fig_split_start *starts, int32_t *worker_tiles, int32_t *partials) {
    int32_t tiles = 0, x = 0, owner = -1, end = 0; /* end: the first tile after the owner's */
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
                while (end <= x) {
                    owner++;
                    end = starts != NULL ? end + starts[owner].count
                                         : (int32_t)((int64_t)tiles * (owner + 1) / active);
                }
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
    int32_t by_units = 0;
    static fig_split_start starts[FIG_WORKER_LIMIT];
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
        const fig_split_shape *split = &shape->plan.splits[0];
        const fig_split_rows step_rows = {lengths, rows, 0, NULL, NULL};
        int32_t prefix[7] = {0};
        fig_split_prefix(split, &step_rows, prefix);
        const int cut = fig_split_starts(split, shape->plan.once[0], prefix, rows, starts);
        recount(split, lengths, rows, cut ? starts : NULL, own, &partials);
        int32_t most = 0, least = INT32_MAX, tiles = 0;
        by_units += report.by_units;
        assert_int_equal(report.by_units, cut);
        assert_int_equal(report.once, shape->plan.once[0]);
        assert_true(report.units_most >= 16 * report.tiles_most);
        assert_true(report.once > 0);
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
    assert_in_range(by_units, 20, 1980);
    fig_graphs_destroy(graphs);
}

/* The bucket follows from the number of rows and the number of tokens that the caller promises. */
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
        /* The plan has the head and a sequence for each row. */
        assert_true(report.workers > 0);
        assert_int_equal(report.plan_bytes, 64 + (cases[i].rows * 4 + 15) / 16 * 16);
    }
    fig_graphs_destroy(graphs);
}

static fig_graphs *lower_for_h200(void) {
    static const fig_bucket sizes[] = {{8, 512}, {32, 2048}, {64, 8192}};
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 32,
                           .kv_heads = 8,
                           .head_dim = 128,
                           .page_size = 16,
                           .batch_limit = 64,
                           .kv_limit = 8192};
    fig_traits traits = {.size = sizeof traits};
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    return fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &traits,
                                               .buckets = sizes, .bucket_count = 3));
}

/* A requested size becomes several buckets with consecutive numbers, one for each variant. */
static void a_bucket_tells_which_others_are_of_its_size(void **state) {
    (void)state;
    fig_graphs *graphs = lower_for_h200();
    fig_bucket_info info = {.size = sizeof info};
    int32_t sizes = 0, most = 0, n = 1;
    for (; n <= (int32_t)graphs->bucket_count; n += info.size_count, sizes++) {
        assert_int_equal(fig_graphs_bucket(graphs, n, &info), FIG_OK);
        assert_int_equal(info.size_first, n);
        if (info.size_count > most) most = info.size_count;
        for (int32_t i = n; i < n + info.size_count; i++) {
            fig_bucket_info other = {.size = sizeof other};
            assert_int_equal(fig_graphs_bucket(graphs, i, &other), FIG_OK);
            assert_int_equal(other.size_first, n);
            assert_int_equal(other.size_count, info.size_count);
            assert_int_equal(other.bucket.batch, info.bucket.batch);
            assert_int_equal(other.bucket.kv, info.bucket.kv);
        }
    }
    assert_int_equal(sizes, 3);
    assert_int_equal(n, graphs->bucket_count + 1);
    assert_true(most > 1);
    fig_graphs_destroy(graphs);
}

/* A caller that names a bucket thereby learns whether another variant would be cheaper. */
static void a_report_tells_the_cheapest_bucket_beside_the_one_that_was_named(void **state) {
    (void)state;
    static const int32_t even[] = {2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000,
                                   2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000};
    fig_graphs *graphs = lower_for_h200();
    fig_plan_report report = {.size = sizeof report};
    fig_step step = {.size = sizeof step, .rows = 16, .kv_lengths = even};
    int32_t dearer = 0;
    assert_int_equal(fig_graphs_plan(graphs, &step, &report), FIG_OK);
    const int32_t cheapest = report.bucket;
    assert_int_equal(report.cheapest, cheapest);
    for (step.bucket = 1; step.bucket <= (int32_t)graphs->bucket_count; step.bucket++) {
        /* this bucket is too small */
        if (fig_graphs_plan(graphs, &step, &report) != FIG_OK) continue;
        assert_int_equal(report.bucket, step.bucket);
        assert_int_equal(report.cheapest, cheapest);
        dearer += report.bucket != cheapest;
    }
    assert_true(dearer > 1);
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
        cmocka_unit_test(a_bucket_tells_which_others_are_of_its_size),
        cmocka_unit_test(a_report_tells_the_cheapest_bucket_beside_the_one_that_was_named),
        cmocka_unit_test(a_report_writes_no_more_workers_than_asked),
        cmocka_unit_test(a_step_that_no_bucket_holds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
