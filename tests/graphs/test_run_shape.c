/* test_run_shape.c: tests that the layout of a run's scratch follows from the size of scratch
 * alone, has no overlaps, and never exceeds that size; that less scratch only means fewer
 * workers; and which runs read each row by a cluster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/run_shape.h"
#include "kernels/table/families.h"
#include "planner/split/bounds.h"
#include "tests/support/random.h"

enum { BATCH = 64, LIMIT = 4096, PAGE = 16, CASES = 300 };

/* Makes graphs of two layers, one without and one with a window. */
static fig_graphs *make_graphs(int32_t deterministic) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .layers = 2,
                           .q_heads = 32,
                           .kv_heads = 8,
                           .head_dim = 128,
                           .page_size = PAGE,
                           .batch_limit = BATCH,
                           .kv_limit = LIMIT,
                           .window = 500,
                           .window_layers = {2}};
    static const fig_bucket any = {1, 1};
    fig_program *program;
    fig_graphs *graphs;
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_program_decode_step(program);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &any, .bucket_count = 1,
                                     .deterministic = deterministic)),
        FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

/* Checks that the parts are in order, do not overlap, and are as large as their bounds demand. */
static void expect_apart(const fig_graphs *graphs, const fig_run_shape *shape) {
    const fig_split_classes *classes = &graphs->common.classes;
    uint64_t end = shape->plan_bytes;
    assert_true(shape->plan_bytes == shape->bucket.plan.layout.bytes);
    assert_true(shape->zeros >= end && shape->zeros % 16 == 0);
    end = shape->zeros;
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_shape *split = &shape->bucket.plan.splits[i];
        const fig_bounds_class own = fig_bounds_class_of(
            split, classes->of[i].q_heads / split->groups, classes->of[i].head_dim);
        assert_true(shape->workspace.counters[i] >= end);
        end = shape->workspace.counters[i] + own.counters_bytes;
    }
    for (int32_t i = 0; i < classes->count; i++) {
        const fig_split_shape *split = &shape->bucket.plan.splits[i];
        const fig_bounds_class own = fig_bounds_class_of(
            split, classes->of[i].q_heads / split->groups, classes->of[i].head_dim);
        assert_true(shape->workspace.partials[i] >= end);
        end = shape->workspace.partials[i] + own.partials_bytes;
        assert_true(shape->workspace.sums[i] >= end);
        end = shape->workspace.sums[i] + own.sums_bytes;
    }
    assert_true(shape->temps >= end && shape->bytes >= shape->temps);
}

static void any_scratch_from_the_least_on_is_enough(void **state) {
    (void)state;
    fig_graphs *graphs = make_graphs(0);
    fig_traits traits = {.size = sizeof traits};
    for (uint64_t n = 0; n < CASES; n++) {
        fig_random random = fig_random_seed(n);
        fig_scratch needed = {.size = sizeof needed};
        fig_run_shape shape, again, best;
        const int32_t names = 4;
        assert_int_equal(fig_traits_named(&traits, fig_traits_name((int32_t)n % names)), FIG_OK);
        fig_run_size size = {fig_random_range(&random, 1, BATCH),
                             fig_random_range(&random, 1, LIMIT), FIG_RUN_SHAPE_BEST, 0};
        assert_int_equal(fig_graphs_scratch(graphs, &traits, size.rows, size.kv_limit, &needed),
                         FIG_OK);
        assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &best), FIG_OK);
        assert_true(best.bytes == needed.best_bytes && best.plan_bytes == needed.plan_bytes);
        expect_apart(graphs, &best);
        const uint64_t between = needed.best_bytes - needed.least_bytes;
        size.scratch_bytes = needed.least_bytes + fig_random_bits(&random) % (between + 1);
        assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &shape), FIG_OK);
        assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &again), FIG_OK);
        assert_memory_equal(&shape, &again, sizeof shape);
        assert_true(shape.bytes <= size.scratch_bytes);
        expect_apart(graphs, &shape);
        for (int32_t i = 0; i < 2; i++) {
            const fig_split_shape *cut = &shape.bucket.plan.splits[i];
            const fig_split_shape *whole = &best.bucket.plan.splits[i];
            assert_true(cut->workers >= 1 && cut->workers <= whole->workers);
            assert_int_equal(cut->groups, whole->groups);
            assert_int_equal(cut->tile_tokens, whole->tile_tokens);
        }
        size.scratch_bytes = needed.least_bytes - 1;
        assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &shape), FIG_INVALID);
    }
    fig_graphs_destroy(graphs);
}

/* A byte less than the best size leaves no room for the last worker. */
static void as_many_workers_as_fit_are_kept(void **state) {
    (void)state;
    fig_graphs *graphs = make_graphs(0);
    const fig_traits *traits = &graphs->target.traits;
    fig_run_size size = {8, 1000, FIG_RUN_SHAPE_BEST, 0};
    fig_run_shape best, less;
    assert_int_equal(fig_run_shape_make(graphs, traits, &size, &best), FIG_OK);
    size.scratch_bytes = best.bytes - 1;
    assert_int_equal(fig_run_shape_make(graphs, traits, &size, &less), FIG_OK);
    const int32_t most = best.bucket.plan.splits[0].workers;
    assert_int_equal(less.bucket.plan.splits[0].workers, most - 1);
    fig_graphs_destroy(graphs);
}

static void a_fixed_split_keeps_its_partials(void **state) {
    (void)state;
    fig_graphs *graphs = make_graphs(1);
    fig_run_size size = {4, LIMIT, FIG_RUN_SHAPE_BEST, 0};
    fig_run_shape best;
    assert_int_equal(fig_run_shape_make(graphs, &graphs->target.traits, &size, &best), FIG_OK);
    size.scratch_bytes = best.bytes / 2;
    assert_int_equal(fig_run_shape_make(graphs, &graphs->target.traits, &size, &best), FIG_INVALID);
    fig_graphs_destroy(graphs);
}

/* ---- Rows of which only the device knows the lengths */

/* Makes graphs of one attention with heads of 128. If it reads lengths, only the device knows
 * them. */
static fig_graphs *make_attention(int32_t kv_heads, fig_dtype kv_dtype, int32_t reads,
                                  int32_t deterministic) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .kv_dtype = kv_dtype,
                           .q_heads = 4 * kv_heads,
                           .kv_heads = kv_heads,
                           .head_dim = 128,
                           .page_size = PAGE,
                           .batch_limit = BATCH,
                           .kv_limit = 4 * LIMIT};
    static const fig_bucket any = {1, 1};
    const int64_t pool[4] = {FIG_DIM_PAGES, PAGE, kv_heads, 128};
    fig_program *program;
    fig_graphs *graphs;
    fig_attention_op op = {.size = sizeof op};
    assert_int_equal(fig_program_create(&program, &spec), FIG_OK);
    fig_tensor_info info = {.size = sizeof info, .role = FIG_ROLE_BOUND, .dtype = FIG_BF16};
    info.name = "q";
    info.rank = 3;
    memcpy(info.dims, (int64_t[4]){FIG_DIM_BATCH, spec.q_heads, 128}, sizeof info.dims);
    op.q = fig_program_tensor(program, &info);
    info.name = "out";
    op.out = fig_program_tensor(program, &info);
    info.name = "k";
    info.rank = 4;
    info.dtype = kv_dtype;
    memcpy(info.dims, pool, sizeof pool);
    op.cache.k = fig_program_tensor(program, &info);
    info.name = "v";
    op.cache.v = fig_program_tensor(program, &info);
    info = (fig_tensor_info){.size = sizeof info,
                             .role = FIG_ROLE_BOUND,
                             .name = "table",
                             .dtype = FIG_I32,
                             .rank = 2,
                             .dims = {BATCH, 4 * LIMIT / PAGE}};
    op.cache.page_table = fig_program_tensor(program, &info);
    info = (fig_tensor_info){.size = sizeof info,
                             .role = FIG_ROLE_BOUND,
                             .name = "lengths",
                             .dtype = FIG_I32,
                             .rank = 1,
                             .dims = {FIG_DIM_BATCH}};
    if (reads)
        fig_program_read_lengths(program, fig_program_tensor(program, &info), (fig_tensor){0});
    fig_attention(program, &op);
    assert_int_equal(fig_program_finish(program), FIG_OK);
    assert_int_equal(
        fig_graphs_lower(&graphs, program,
                         FIG_OPTIONS(fig_lower_options, .buckets = &any, .bucket_count = 1,
                                     .deterministic = deterministic)),
        FIG_OK);
    fig_program_destroy(program);
    return graphs;
}

/* Returns the workers of a run on an H200, or 0 if its rows are not short. */
static int32_t short_workers(const fig_graphs *graphs, int32_t rows, int32_t capacity) {
    const fig_run_size size = {rows, capacity, FIG_RUN_SHAPE_BEST, 0};
    fig_traits traits = {.size = sizeof traits};
    fig_scratch needed = {.size = sizeof needed};
    fig_run_shape shape;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &shape), FIG_OK);
    assert_int_equal(fig_graphs_scratch(graphs, &traits, rows, capacity, &needed), FIG_OK);
    assert_true(needed.best_bytes == shape.bytes);
    return shape.bucket.is_short[0] ? shape.bucket.plan.splits[0].workers : 0;
}

static void a_row_may_fill_its_capacity_in_two_rounds_of_a_cluster(void **state) {
    (void)state;
    static const fig_dtype dtypes[] = {FIG_BF16, FIG_E4M3};
    for (int i = 0; i < 2; i++) {
        fig_graphs *graphs = make_attention(8, dtypes[i], 1, 0);
        assert_int_equal(short_workers(graphs, 1, 2048), 64);
        assert_int_equal(short_workers(graphs, 1, 4096), 64);
        assert_int_equal(short_workers(graphs, 1, 4097), 0);
        assert_int_equal(short_workers(graphs, 2, 4096), 0);
        fig_graphs_destroy(graphs);
        graphs = make_attention(4, dtypes[i], 1, 0);
        assert_int_equal(short_workers(graphs, 2, 4096), 64);
        assert_int_equal(short_workers(graphs, 1, 8192), 64); /* one cluster of 16 blocks each */
        assert_int_equal(short_workers(graphs, 1, 8193), 0);
        fig_graphs_destroy(graphs);
    }
}

static void rows_of_known_or_fixed_splits_take_one_round(void **state) {
    (void)state;
    fig_graphs *graphs = make_attention(8, FIG_BF16, 0, 0);
    assert_int_equal(short_workers(graphs, 1, 2048), 64);
    assert_int_equal(short_workers(graphs, 1, 2049), 0);
    fig_graphs_destroy(graphs);
    graphs = make_attention(8, FIG_BF16, 1, 1);
    assert_int_equal(short_workers(graphs, 1, 4096), 0);
    fig_graphs_destroy(graphs);
}

/* In vLLM, the pages hold K and V of a head side by side, and q, k and v are parts of one tensor.
 * There is no RoPE, so the node keeps q and k. */
static void vllms_step_of_one_row_is_one_launch_of_clusters(void **state) {
    (void)state;
    fig_graphs *graphs = make_attention(8, FIG_BF16, 1, 0);
    const fig_run_size size = {1, 4096, FIG_RUN_SHAPE_BEST, 0};
    const int64_t row = (32 + 2 * 8) * 128, head = 2 * 128;
    const fig_cache_strides cache = {.page = 8 * PAGE * head, .token = head, .head = PAGE * head};
    fig_traits traits = {.size = sizeof traits};
    fig_run_shape shape;
    fig_family_choice choice;
    assert_int_equal(fig_traits_named(&traits, "h200"), FIG_OK);
    assert_int_equal(fig_run_shape_make(graphs, &traits, &size, &shape), FIG_OK);
    const fig_attention_params params = {
        .q = (const void *)4096,
        .k_cache = (const void *)65536,
        .v_cache = (const void *)(65536 + 256),
        .q_strides = {row, 128},
        .k_cache_strides = cache,
        .v_cache_strides = cache,
        .split = shape.bucket.plan.splits[0],
        .q_heads = 32,
        .kv_heads = 8,
        .head_dim = 128,
        .heads_per_worker = shape.bucket.variants[0].heads,
        .page_size = PAGE,
        .dtype = FIG_BF16,
        .kv_dtype = FIG_BF16,
        .turn = {.k = (const void *)12288,
                 .v = (const void *)14336,
                 .k_strides = {row, 128},
                 .v_strides = {row, 128},
                 .rope = {.rotary_dim = 128}}};
    fig_families_choose(FIG_OP_ATTENTION, &params, &traits, &choice);
    assert_int_equal(choice.family, FIG_FAMILY_ATTENTION_SHORT_TURN);
    assert_string_equal(choice.entry, "fig_kernel_attention_short_turn_bf16_128_8_8");
    assert_int_equal(choice.shape.grid[0], 64);
    fig_graphs_destroy(graphs);
}

/* ---- Temps */

/* Each temporary tensor ([rows][3] of f16, 5 words of f32, ...) begins after the end of all earlier
 * ones, for any number of rows. */
static void temps_lie_apart_for_any_rows(void **state) {
    (void)state;
    const fig_tensor_record records[] = {
        {.role = FIG_ROLE_TEMP,
         .dtype = FIG_F16,
         .rank = 2,
         .symbol = FIG_SYMBOL_BATCH,
         .dims = {1, 3, 1, 1}},
        {.role = FIG_ROLE_BOUND, .dtype = FIG_F32, .rank = 1, .dims = {1000, 1, 1, 1}},
        {.role = FIG_ROLE_TEMP, .dtype = FIG_F32, .rank = 1, .dims = {5, 1, 1, 1}},
        {.role = FIG_ROLE_TEMP,
         .dtype = FIG_E4M3,
         .rank = 2,
         .symbol = FIG_SYMBOL_BATCH,
         .dims = {2, 7, 1, 1}},
        {.role = FIG_ROLE_TEMP,
         .dtype = FIG_BF16,
         .rank = 2,
         .symbol = FIG_SYMBOL_QUERIES,
         .dims = {1, 9, 1, 1}},
        {.role = FIG_ROLE_TEMP, .dtype = FIG_F32, .rank = 1, .dims = {3, 1, 1, 1}},
    };
    const fig_program_view view = {.tensors = records, .tensor_count = 6};
    const uint64_t row_bytes[] = {6, 0, 0, 14, 0, 0}, fixed[] = {0, 0, 20, 0, 0, 12};
    const uint64_t query_bytes[] = {0, 0, 0, 0, 18, 0};
    for (int32_t rows = 1; rows < 3000; rows += 7) {
        const fig_run_size size = {rows, 1, FIG_RUN_SHAPE_BEST, 3 * rows};
        fig_run_temp temp = {0, 0, 0, 0};
        for (uint32_t id = 1; id <= 6; id++) {
            const uint64_t begin = fig_run_shape_temp_offset(&temp, &size);
            fig_run_shape_pass_temp(&view, id, &temp);
            const uint64_t bytes = row_bytes[id - 1] * (uint64_t)rows + fixed[id - 1] +
                                   query_bytes[id - 1] * (uint64_t)size.queries;
            assert_true(begin % 16 == 0);
            assert_true(fig_run_shape_temp_offset(&temp, &size) >= begin + bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_scratch_from_the_least_on_is_enough),
        cmocka_unit_test(as_many_workers_as_fit_are_kept),
        cmocka_unit_test(a_fixed_split_keeps_its_partials),
        cmocka_unit_test(a_row_may_fill_its_capacity_in_two_rounds_of_a_cluster),
        cmocka_unit_test(rows_of_known_or_fixed_splits_take_one_round),
        cmocka_unit_test(vllms_step_of_one_row_is_one_launch_of_clusters),
        cmocka_unit_test(temps_lie_apart_for_any_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
