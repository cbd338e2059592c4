/* test_packed_graphs.c: tests graphs of packed programs: the sizes for which they are lowered, and
 * that files, ranks and plans keep these sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "include/figraph_parallel.h"

enum { BATCH = 8, TOKENS = 4, LIMIT = 20, KV = 256 };

static void expect(fig_status status) {
    if (status != FIG_OK) fail_msg("%s: %s", fig_status_name(status), fig_message());
}

static fig_program *record(int64_t query_limit) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .ffn_width = 64,
                           .page_size = 16,
                           .batch_limit = BATCH,
                           .kv_limit = KV,
                           .row_tokens = TOKENS,
                           .query_limit = query_limit};
    fig_program *program;
    expect(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    expect(fig_program_finish(program));
    return program;
}

static const fig_bucket sizes[] = {{2, 128}, {8, 256}};

/* Lowers for 3, 8 and 12 query tokens, and for the most that the rows of each size may have: 8 and
 * 20. */
static fig_graphs *lower(void) {
    static const int32_t limits[] = {12, 3, 8, 3};
    fig_program *program = record(LIMIT);
    fig_graphs *graphs;
    expect(fig_graphs_lower(&graphs, program,
                            FIG_OPTIONS(fig_lower_options, .buckets = sizes, .bucket_count = 2,
                                        .query_limits = limits, .query_limit_count = 4)));
    fig_program_destroy(program);
    return graphs;
}

static fig_bucket_info info_of(const fig_graphs *graphs, int32_t bucket) {
    fig_bucket_info info = {.size = sizeof info};
    expect(fig_graphs_bucket(graphs, bucket, &info));
    return info;
}

/* The sizes come in this order, each in at least one variant. */
static void expect_sizes(const fig_graphs *graphs) {
    static const int32_t due[][2] = {{2, 3}, {2, 8}, {8, 3}, {8, 8}, {8, 12}, {8, 20}};
    fig_graphs_info info = {.size = sizeof info};
    size_t next = 0;
    fig_graphs_read_info(graphs, &info);
    for (int32_t n = 1; n <= info.bucket_count;) {
        const fig_bucket_info size = info_of(graphs, n);
        assert_true(next < sizeof due / sizeof due[0]);
        assert_int_equal(size.bucket.batch, due[next][0]);
        assert_int_equal(size.query_limit, due[next++][1]);
        assert_int_equal(size.size_first, n);
        n += size.size_count;
    }
    assert_int_equal(next, sizeof due / sizeof due[0]);
}

static void each_size_is_lowered_for_each_number_of_query_tokens(void **state) {
    (void)state;
    fig_graphs *graphs = lower();
    expect_sizes(graphs);
    fig_graphs_destroy(graphs);
}

static void a_file_keeps_the_limits_of_query_tokens(void **state) {
    (void)state;
    fig_graphs *graphs = lower(), *loaded, *again;
    fig_graphs_info made = {.size = sizeof made}, read = {.size = sizeof read};
    uint8_t *bytes, *other;
    size_t count, other_count;
    expect(fig_graphs_write(graphs, &bytes, &count));
    expect(fig_graphs_parse(&loaded, bytes, count));
    expect_sizes(loaded);
    fig_graphs_read_info(graphs, &made);
    fig_graphs_read_info(loaded, &read);
    assert_int_equal(read.relowered_count, 0);
    assert_string_equal(read.content_id, made.content_id);
    expect(fig_graphs_write(loaded, &other, &other_count));
    assert_int_equal(other_count, count);
    assert_memory_equal(other, bytes, count);
    expect(fig_graphs_rank(&again, loaded, 2));
    expect_sizes(again);
    fig_graphs_destroy(again);
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(graphs);
    free(bytes);
    free(other);
}

static int32_t bucket_of(const fig_graphs *graphs, const int32_t *counts, int32_t bucket,
                         fig_status due) {
    static const int32_t lengths[BATCH] = {20, 20, 20, 20, 20, 20, 20, 20};
    fig_plan_report report = {.size = sizeof report};
    assert_int_equal(fig_graphs_plan(graphs,
                                     FIG_OPTIONS(fig_step, .rows = BATCH, .kv_lengths = lengths,
                                                 .query_counts = counts, .bucket = bucket),
                                     &report),
                     due);
    return due == FIG_OK ? info_of(graphs, report.bucket).query_limit : 0;
}

static void a_step_takes_the_fewest_query_tokens_that_hold_it(void **state) {
    (void)state;
    fig_graphs *graphs = lower();
    int32_t counts[BATCH] = {3};
    assert_int_equal(bucket_of(graphs, counts, 0, FIG_OK), 3);
    counts[7] = 1;
    assert_int_equal(bucket_of(graphs, counts, 0, FIG_OK), 8);
    counts[6] = counts[5] = 4;
    assert_int_equal(bucket_of(graphs, counts, 0, FIG_OK), 12);
    counts[4] = 1;
    assert_int_equal(bucket_of(graphs, counts, 0, FIG_OK), 20);
    for (int32_t n = 1; info_of(graphs, n).bucket.batch < BATCH; n++) /* sizes with too few rows */
        bucket_of(graphs, counts, n, FIG_TOO_LARGE);
    const int32_t few = info_of(graphs, 1).size_count + info_of(graphs, 1).size_first;
    bucket_of(graphs, counts, few + info_of(graphs, few).size_count, FIG_TOO_LARGE);
    for (int32_t row = 0; row < BATCH; row++)
        counts[row] = TOKENS;
    bucket_of(graphs, counts, 0, FIG_TOO_LARGE); /* 32 query tokens; the limit is 20 */
    bucket_of(graphs, NULL, 0, FIG_TOO_LARGE);
    fig_graphs_destroy(graphs);
}

static void wrong_numbers_are_refused(void **state) {
    (void)state;
    static const int32_t none = 0, some = 3;
    fig_program *packed = record(LIMIT), *plain = record(0);
    fig_graphs *graphs;
    const struct {
        const fig_program *program;
        const int32_t *limits;
        int32_t count;
    } wrong[] = {{packed, &none, 1},
                 {packed, NULL, 1},
                 {packed, &some, -1},
                 {packed, &some, 0},
                 {plain, &some, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(
            fig_graphs_lower(&graphs, wrong[i].program,
                             FIG_OPTIONS(fig_lower_options, .query_limits = wrong[i].limits,
                                         .query_limit_count = wrong[i].count)),
            FIG_INVALID);
    fig_program_destroy(packed);
    fig_program_destroy(plain);
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

enum { CHUNK_LIMIT = 600 };

static fig_graphs *lower_chunks(void) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .page_size = 16,
                           .batch_limit = BATCH,
                           .kv_limit = 2000,
                           .row_tokens = 500,
                           .query_limit = CHUNK_LIMIT};
    fig_program *program;
    fig_graphs *graphs;
    expect(fig_program_create(&program, &spec));
    fig_program_decode_step(program);
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = NULL)));
    fig_program_destroy(program);
    return graphs;
}

/* If the caller gives no sizes, each size is lowered for 64 and 512 query tokens, provided that its
 * rows may have more. A file keeps all of these buckets. */
static void the_ladder_of_chunks_has_steps_of_query_tokens(void **state) {
    (void)state;
    fig_graphs *graphs = lower_chunks(), *loaded;
    fig_graphs_info info = {.size = sizeof info};
    uint8_t *bytes;
    size_t count;
    expect(fig_graphs_write(graphs, &bytes, &count));
    expect(fig_graphs_parse(&loaded, bytes, count));
    fig_graphs_read_info(loaded, &info);
    assert_int_equal(info.relowered_count, 0);
    for (int32_t n = 1; n <= info.bucket_count; n++) {
        const fig_bucket_info size = info_of(loaded, n), made = info_of(graphs, n);
        const int32_t most = size.bucket.batch > 1 ? CHUNK_LIMIT : 500;
        assert_int_equal(size.query_limit, made.query_limit);
        assert_int_equal(size.plan_bytes, made.plan_bytes);
        if (size.form == FIG_FORM_ONES) assert_int_equal(size.query_limit, size.bucket.batch);
        if (size.form == FIG_FORM_DRAFTS)
            assert_int_equal(size.query_limit, fig_size_min(most, 8 * size.bucket.batch));
        if (size.form == FIG_FORM_ONES || size.form == FIG_FORM_DRAFTS) continue;
        assert_true(size.query_limit == 64 || size.query_limit == most ||
                    (size.query_limit == 512 && most > 512));
    }
    fig_graphs_destroy(loaded);
    fig_graphs_destroy(graphs);
    free(bytes);
}

/* A model with twice as many layers could still be lowered. */
static void presets_with_chunks_lower(void **state) {
    (void)state;
    const char *preset;
    fig_traits h200 = {.size = sizeof h200};
    expect(fig_traits_named(&h200, "h200"));
    for (int32_t p = 0; (preset = fig_spec_preset_name(p)) != NULL; p++) {
        fig_spec spec = {.size = sizeof spec};
        fig_graphs_info info = {.size = sizeof info};
        fig_program *program;
        fig_graphs *graphs;
        expect(fig_spec_preset(&spec, preset));
        if (spec.latent_dim > 0) continue;
        spec.row_tokens = spec.kv_limit < 4096 ? spec.kv_limit : 4096;
        spec.query_limit = spec.batch_limit + spec.row_tokens;
        expect(fig_program_create(&program, &spec));
        fig_program_decode_step(program);
        expect(fig_program_finish(program));
        expect(fig_graphs_lower(&graphs, program, FIG_OPTIONS(fig_lower_options, .traits = &h200)));
        fig_graphs_read_info(graphs, &info);
        assert_in_range(info.bucket_count * info_of(graphs, 1).launch_count, 1,
                        FIG_LAUNCH_LIMIT / 2);
        fig_graphs_destroy(graphs);
        fig_program_destroy(program);
    }
}

static void a_report_tells_chunks_apart(void **state) {
    (void)state;
    fig_graphs *graphs = lower_chunks();
    const int32_t lengths[] = {1000, 500, 900, 40}, counts[] = {1, 200, 8, 0};
    const fig_step step = {
        .size = sizeof step, .rows = 4, .kv_lengths = lengths, .query_counts = counts};
    fig_plan_report report = {.size = sizeof report};
    int32_t tiles[256], pieces[256], sum = 0, parts = 0;
    expect(fig_graphs_plan(graphs, &step, &report));
    assert_true(report.strip_workers > 0 && report.strip_workers <= 256);
    report.strip_worker_tiles = tiles;
    report.strip_worker_pieces = pieces;
    report.strip_worker_capacity = report.strip_workers;
    expect(fig_graphs_plan(graphs, &step, &report));
    /* 200 query tokens of 4 vectors each in strips of 128 vectors, for 2 kv heads; strip j ends at
     * token 300 + 32 * j + 31 and has tiles of 128 tokens. */
    assert_int_equal(report.chunks, 1);
    assert_int_equal(report.strips, 2 * 7);
    assert_int_equal(report.strip_tile_tokens, 128);
    assert_int_equal(report.strip_tiles, 2 * (3 + 3 + 4 + 4 + 4 + 4 + 4));
    for (int32_t worker = 0; worker < report.strip_workers; worker++) {
        sum += tiles[worker];
        parts += pieces[worker];
        assert_true(tiles[worker] <= report.strip_tiles_most);
        assert_true(tiles[worker] >= report.strip_tiles_least);
    }
    assert_int_equal(sum, report.strip_tiles);
    assert_int_equal(parts, report.strip_pieces);
    assert_true(report.strip_partials <= report.strip_partial_limit);
    /* Rows 0 and 2 alone are on the line: each of their tiles for each head group. */
    const int32_t tile = report.tile_tokens, groups = 2 / report.heads;
    assert_int_equal(report.tiles, groups * ((1000 + tile - 1) / tile + (900 + tile - 1) / tile));
    fig_graphs_destroy(graphs);
}

/* Returns the smallest limit on query tokens of a ladder of buckets. reads: 1: the device reads the
 * lengths. */
static int32_t least_limit(int32_t reads) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 2,
                           .head_dim = 64,
                           .page_size = 16,
                           .batch_limit = BATCH,
                           .kv_limit = KV,
                           .row_tokens = 200,
                           .query_limit = 800};
    fig_graphs_info info = {.size = sizeof info};
    int32_t least = INT32_MAX;
    fig_program *program;
    fig_graphs *graphs;
    expect(fig_program_create(&program, &spec));
    const fig_tensor lengths = fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = "lengths", .role = FIG_ROLE_BOUND,
                             .dtype = FIG_I32, .rank = 1, .dims = {FIG_DIM_BATCH}));
    if (reads) fig_program_read_lengths(program, lengths, (fig_tensor){0});
    fig_program_decode_step(program);
    expect(fig_program_finish(program));
    expect(fig_graphs_lower(&graphs, program, NULL));
    fig_graphs_read_info(graphs, &info);
    for (int32_t n = 1; n <= info.bucket_count; n++) {
        const fig_bucket_info bucket = info_of(graphs, n);
        if (bucket.form == FIG_FORM_ANY && bucket.query_limit < least) least = bucket.query_limit;
    }
    fig_graphs_destroy(graphs);
    fig_program_destroy(program);
    return least;
}

/* A step whose query tokens only the device knows could not choose a bucket for few of them. The
 * smallest bucket takes one row. */
static void a_device_that_reads_lengths_gets_no_limits_of_query_tokens(void **state) {
    (void)state;
    assert_int_equal(least_limit(0), 64);
    assert_int_equal(least_limit(1), 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_size_is_lowered_for_each_number_of_query_tokens),
        cmocka_unit_test(a_file_keeps_the_limits_of_query_tokens),
        cmocka_unit_test(a_step_takes_the_fewest_query_tokens_that_hold_it),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(the_ladder_of_chunks_has_steps_of_query_tokens),
        cmocka_unit_test(presets_with_chunks_lower),
        cmocka_unit_test(a_report_tells_chunks_apart),
        cmocka_unit_test(a_device_that_reads_lengths_gets_no_limits_of_query_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
