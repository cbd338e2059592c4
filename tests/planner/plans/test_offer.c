/* test_offer.c: tests that a bucket offers the smallest set of variants that serves its steps
 * well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/graphs.h"
#include "planner/plans/offer.h"
#include "planner/spec/spec.h"
#include "tests/support/files/sample.h"
#include "tests/support/random.h"

enum { KV_LIMIT = 32768, COUNT = 3 };

/* Returns a bucket with 8 kv heads of 128 in bf16, `heads` of them at a time. A start, a piece and
 * a segment cost these ns. */
static fig_bucket_shape shape_of(fig_bucket caps, int32_t heads, int32_t start_ns, int32_t piece_ns,
                                 int32_t segment_ns) {
    fig_bucket_shape shape = {.caps = caps,
                              .variants = {{.name = "x",
                                            .heads = heads,
                                            .start_ns = start_ns,
                                            .bytes_per_us = 33000,
                                            .piece_ns = piece_ns,
                                            .segment_ns = segment_ns}},
                              .token_bytes = {2 * heads * 128 * 2}};
    shape.plan.row_limit = caps.batch;
    shape.plan.row_tokens = 1;
    shape.plan.class_count = 1;
    shape.plan.splits[0] = (fig_split_shape){.row_limit = caps.batch,
                                             .groups = 8 / heads,
                                             .tile_tokens = 64,
                                             .workers = 132,
                                             .row_tokens = 1};
    fig_plan_lay_out(&shape.plan);
    return shape;
}

static void a_buckets_range_has_the_steps_that_no_earlier_bucket_holds(void **state) {
    (void)state;
    static const fig_bucket ladder[] = {{1, 128}, {1, 256}, {2, 128}, {2, 256}, {4, 128}, {4, 256}};
    static const struct {
        int32_t index, kv_limit, rows_before;
        int64_t tokens_before;
    } cases[] = {
        {0, 256, 0, 0}, {1, 256, 0, 128}, {2, 256, 1, 0},   {3, 256, 1, 256},
        {4, 256, 2, 0}, {5, 256, 2, 512}, {3, 512, 0, 256}, /* a row of 300 tokens needs this one */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_offer_range range = fig_offer_range_of(ladder, cases[i].index, cases[i].kv_limit);
        if (range.rows_before != cases[i].rows_before ||
            range.tokens_before != cases[i].tokens_before || range.kv_limit != cases[i].kv_limit)
            fail_msg("case %zu: %d rows and %d tokens before", i, (int)range.rows_before,
                     (int)range.tokens_before);
    }
}

static void a_variant_that_is_the_cheapest_everywhere_is_offered_alone(void **state) {
    (void)state;
    const fig_bucket caps = {8, 1024};
    const fig_offer_range range = {.kv_limit = KV_LIMIT};
    for (uint32_t best = 0; best < COUNT; best++) {
        fig_bucket_shape candidates[COUNT];
        for (uint32_t i = 0; i < COUNT; i++)
            candidates[i] = shape_of(caps, 2, i == best ? 1000 : 9000, 100, 100);
        assert_int_equal(fig_offer_choose(candidates, COUNT, &range), 1u << best);
        assert_int_equal(fig_offer_choose(&candidates[best], 1, &range), 1);
    }
}

/* One variant suits few rows, one suits many, and one is never much better than both. */
static void two_variants_are_offered_if_neither_serves_all_steps(void **state) {
    (void)state;
    const fig_bucket caps = {256, 1024};
    const fig_bucket_shape candidates[COUNT] = {shape_of(caps, 1, 2000, 50, 3000),
                                                shape_of(caps, 4, 20000, 200, 100),
                                                shape_of(caps, 2, 20000, 200, 1000)};
    const fig_offer_range all = {.kv_limit = KV_LIMIT};
    const fig_offer_range many = {
        .kv_limit = KV_LIMIT, .rows_before = 128, .tokens_before = 131072};
    assert_int_equal(fig_offer_choose(candidates, COUNT, &all), 3);
    assert_int_equal(fig_offer_choose(candidates, COUNT, &many), 2);
}

/* The reference tries all variants, over random costs and buckets. */
static void no_step_of_even_rows_costs_much_more_than_the_best(void **state) {
    (void)state;
    fig_random random = fig_random_seed(5);
    int32_t lengths[256];
    int fewer = 0;
    for (int draw = 0; draw < 300; draw++) {
        const fig_bucket caps = {1 << fig_random_range(&random, 0, 8),
                                 128 << fig_random_range(&random, 0, 6)};
        const fig_offer_range range = {.kv_limit = KV_LIMIT};
        fig_bucket_shape candidates[COUNT];
        for (int i = 0; i < COUNT; i++)
            candidates[i] =
                shape_of(caps, 1 << i, fig_random_range(&random, 1, 9) * 1000,
                         fig_random_range(&random, 0, 500), fig_random_range(&random, 0, 2000));
        const uint32_t offered = fig_offer_choose(candidates, COUNT, &range);
        assert_in_range(offered, 1, (1 << COUNT) - 1);
        fewer += offered != (1 << COUNT) - 1;
        for (int32_t rows = 1; rows <= caps.batch; rows *= 2) {
            int64_t best = INT64_MAX, least = INT64_MAX;
            for (int32_t row = 0; row < rows; row++)
                lengths[row] = caps.kv;
            const fig_plan_step step = {.rows = rows, .lengths = lengths, .horizon = 1};
            for (int i = 0; i < COUNT; i++) {
                const int64_t cost = fig_bucket_cost(&candidates[i], &step);
                if (cost < best) best = cost;
                if (offered >> i & 1 && cost < least) least = cost;
            }
            if (least * 1000 > best * 1014)
                fail_msg("draw %d, %d rows: %d ns, best %d", draw, rows, (int)least, (int)best);
        }
    }
    assert_true(fewer > 200);
}

/* For 4 rows of 256 tokens, each with workers of its own, one head at a time is as fast as any
 * variant, unless one row has nearly all tokens of the step. */
static void short_rows_have_a_second_variant_for_steps_with_one_long_row(void **state) {
    (void)state;
    const fig_lower_target h200 = fig_sample_target("h200");
    fig_spec spec = {.size = sizeof spec};
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b-layer"), FIG_OK);
    fig_graphs *graphs =
        fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &h200.traits));
    static const struct {
        int32_t lengths[4], heads;
    } cases[] = {{{256, 256, 256, 256}, 1}, {{512, 170, 170, 170}, 1}, {{900, 40, 40, 40}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_plan_step step = {.rows = 4, .lengths = cases[i].lengths, .horizon = 1};
        int32_t index;
        assert_int_equal(
            fig_bucket_choose(graphs->buckets, (int32_t)graphs->bucket_count, &step, &index),
            FIG_OK);
        assert_int_equal(graphs->buckets[index].variants[0].heads, cases[i].heads);
    }
    fig_graphs_destroy(graphs);
}

/* Clusters that read 16-bit rows one head at a time must also read 8-bit rows. */
static void short_rows_of_codes_are_read_by_clusters(void **state) {
    (void)state;
    const fig_lower_target h200 = fig_sample_target("h200");
    fig_spec spec = {.size = sizeof spec};
    assert_int_equal(fig_spec_preset(&spec, "llama-3.1-8b-layer"), FIG_OK);
    spec.kv_dtype = FIG_E4M3;
    fig_graphs *graphs =
        fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &h200.traits));
    static const struct {
        int32_t rows, length;
    } cases[] = {{1, 128}, {1, 1024}, {4, 128}, {4, 512}, {8, 256}, {8, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t lengths[8], index;
        for (int32_t row = 0; row < cases[i].rows; row++)
            lengths[row] = cases[i].length;
        const fig_plan_step step = {.rows = cases[i].rows, .lengths = lengths, .horizon = 1};
        assert_int_equal(
            fig_bucket_choose(graphs->buckets, (int32_t)graphs->bucket_count, &step, &index),
            FIG_OK);
        assert_int_equal(graphs->buckets[index].variants[0].heads, 1);
        assert_int_equal(graphs->buckets[index].is_short[0], 1);
    }
    fig_graphs_destroy(graphs);
}

/* The number of execs decides how much device memory a model's buckets take, and how long it takes
 * to prepare them. The figures of tests/gpu/prepare_bench.csv are for llama-3.1-70b with caches of
 * its own type. Other models may have a few more execs, since new measurements of costs move the
 * borders between variants. With 8-bit caches there are more such borders: for short rows, one head
 * at a time and two at a time alternate several times. So there are over latent caches, where
 * groups of several sizes alternate, in lines and in clusters. */
static void no_preset_needs_many_execs(void **state) {
    (void)state;
    static const fig_dtype caches[] = {0, FIG_E4M3, FIG_E5M2};
    const fig_lower_target h200 = fig_sample_target("h200");
    const char *preset;
    for (int32_t p = 0; (preset = fig_spec_preset_name(p)) != NULL; p++) {
        for (int i = 0; i < 3; i++) {
            fig_spec spec = {.size = sizeof spec};
            assert_int_equal(fig_spec_preset(&spec, preset), FIG_OK);
            spec.layers = 1;
            spec.dense_layers = spec.dense_width = 0;
            memset(spec.window_layers, 0, sizeof spec.window_layers);
            memset(spec.plain_layers, 0, sizeof spec.plain_layers);
            spec.kv_dtype = caches[i];
            if (spec.latent_dim != 0 && spec.kv_dtype == FIG_E5M2) continue; /* there are none */
            fig_graphs *graphs =
                fig_sample_lower(&spec, FIG_OPTIONS(fig_lower_options, .traits = &h200.traits));
            const int is_measured = strcmp(preset, "llama-3.1-70b") == 0;
            const int has_borders = caches[i] != 0 || spec.latent_dim != 0;
            const uint32_t limit = has_borders ? 56 : is_measured ? 40 : 46;
            if (graphs->exec_count > limit)
                fail_msg("%s: %u execs of %u buckets, limit %u", preset, graphs->exec_count,
                         graphs->bucket_count, limit);
            fig_graphs_destroy(graphs);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buckets_range_has_the_steps_that_no_earlier_bucket_holds),
        cmocka_unit_test(a_variant_that_is_the_cheapest_everywhere_is_offered_alone),
        cmocka_unit_test(two_variants_are_offered_if_neither_serves_all_steps),
        cmocka_unit_test(no_step_of_even_rows_costs_much_more_than_the_best),
        cmocka_unit_test(short_rows_have_a_second_variant_for_steps_with_one_long_row),
        cmocka_unit_test(short_rows_of_codes_are_read_by_clusters),
        cmocka_unit_test(no_preset_needs_many_execs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
