/* test_lower.c: tests that a bucket's split has as many workers as its machine and its tiles allow,
 * and that a program that cannot be split is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "graphs/lower/launch_list.h"
#include "graphs/lower/lower.h"
#include "graphs/lower/variants.h"
#include "graphs/record/program.h"
#include "kernels/attention/geometry.h"
#include "planner/split/bounds.h"
#include "tests/support/files/sample.h"

static fig_status shape_for(const fig_program *program, const fig_lower_target *target,
                            const fig_bucket *caps, int32_t variant, fig_bucket_shape *shape) {
    memset(shape, 0xff, sizeof *shape);
    shape->caps = *caps;
    shape->variant = variant;
    shape->queries = shape->is_loose = 0;
    return fig_lower_shape(fig_program_view_of(program), target, 3, shape);
}

/* 2 kv heads of 64 in f16. Variant 0 reads one head at a time in tiles of 64 tokens, variant 1
 * reads both heads in tiles of 16. On tensor cores, a tile has twice as many tokens if each token
 * has 128 bytes, and no tile is shorter than a strip. 6 rows of 200 tokens, one head at a time, are
 * 12 segments; at 64 KB per worker they take 10 workers. On 9.0 such rows are short: each segment
 * has 4 workers, and a tile is one turn of a block. */
static void workers_are_the_machines_or_the_tiles(void **state) {
    (void)state;
    static const struct {
        const char *traits;
        fig_bucket caps;
        int32_t variant, groups, tile_tokens, workers, tile_limit;
    } cases[] = {
        {"host", {1, 1}, 0, 2, 64, 2, 2},      {"host", {1, 1}, 1, 1, 16, 1, 1},
        {"host", {1, 200}, 0, 2, 64, 8, 8},    {"h200", {1, 200}, 0, 2, 64, 8, 8},
        {"h200", {1, 200}, 1, 1, 128, 2, 2},   {"h200", {6, 200}, 0, 2, 64, 48, 48},
        {"h200", {6, 200}, 2, 1, 128, 12, 12}, {"a100", {6, 200}, 0, 2, 128, 10, 24},
        {"host", {6, 200}, 1, 1, 16, 8, 78},
    };
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fig_lower_target target = fig_sample_target(cases[i].traits);
        fig_bucket_shape shape;
        assert_int_equal(shape_for(program, &target, &cases[i].caps, cases[i].variant, &shape),
                         FIG_OK);
        const fig_split_shape expected = {.row_limit = cases[i].caps.batch,
                                          .groups = cases[i].groups,
                                          .tile_tokens = cases[i].tile_tokens,
                                          .workers = cases[i].workers,
                                          .row_tokens = 1,
                                          .tile_limit = cases[i].tile_limit};
        if (memcmp(&shape.plan.splits[0], &expected, sizeof expected) != 0)
            fail_msg("case %zu: groups %d, tiles of %d, %d workers", i, shape.plan.splits[0].groups,
                     shape.plan.splits[0].tile_tokens, shape.plan.splits[0].workers);
        assert_int_equal(shape.token_bytes[0], 2 * (2 / cases[i].groups) * 64 * 2);
        assert_int_equal(shape.plan.exec, 3);
        assert_int_equal(shape.plan.row_limit, cases[i].caps.batch);
        assert_int_equal(shape.plan.class_count, 1);
        assert_true(shape.plan.layout.bytes > sizeof(fig_plan_head));
    }
    fig_program_destroy(program);
}

static fig_tensor tensor(fig_program *program, const char *name, fig_dtype dtype, int64_t first,
                         int64_t second, int64_t third) {
    return fig_program_tensor(
        program, FIG_OPTIONS(fig_tensor_info, .name = name, .role = FIG_ROLE_BOUND, .dtype = dtype,
                             .rank = third > 0 ? 3 : 2, .dims = {first, second, third}));
}

/* dtype: of q and out; kv_dtype: of the cache, with codes if FIG_E4M3. */
static fig_program *latent_program_of(int32_t heads, int32_t rows, fig_dtype dtype,
                                      fig_dtype kv_dtype) {
    const fig_spec spec = {.size = sizeof spec,
                           .dtype = FIG_BF16,
                           .q_heads = 8,
                           .kv_heads = 1,
                           .head_dim = 64,
                           .page_size = 64,
                           .batch_limit = rows,
                           .kv_limit = 33856};
    fig_program *program = fig_sample_program(&spec);
    fig_latent_attention_op op = {.size = sizeof op, .sm_scale = 0.04f};
    op.q = tensor(program, "q", dtype, FIG_DIM_BATCH, heads, 576);
    op.out = tensor(program, "out", dtype, FIG_DIM_BATCH, heads, 512);
    op.cache =
        tensor(program, "cache", kv_dtype, FIG_DIM_PAGES, 64, kv_dtype == FIG_E4M3 ? 656 : 576);
    op.page_table = tensor(program, "table", FIG_I32, rows, 529, 0);
    fig_latent_attention(program, &op);
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

static fig_program *latent_program(int32_t heads, int32_t rows) {
    return latent_program_of(heads, rows, FIG_BF16, FIG_BF16);
}

/* A group has at most 64 heads, and the machine has 132 SMs. With 64 or 8 segments, 128 workers are
 * launched: each then has whole segments or an equal part of one. With 44 segments, 132 workers
 * give each segment 3. 45 segments would need 90 workers, and 150 segments 75, which would leave
 * too many SMs idle. 257 segments cannot be divided by 2. In a step of 67 to 132 tiles, or of up to
 * 528 of one segment or 264 of two, half of the machine has work. */
static void cuts_of_latent_caches_fall_on_ends_of_segments(void **state) {
    (void)state;
    static const struct {
        int32_t heads, rows, length, workers;
    } cases[] = {
        {16, 64, 8192, 128},  {128, 64, 8192, 128}, {16, 8, 8192, 128},   {16, 44, 8192, 132},
        {16, 43, 8192, 129},  {16, 45, 8192, 132},  {128, 75, 8192, 132}, {16, 256, 8192, 128},
        {16, 257, 8192, 132}, {16, 4, 2048, 64},    {64, 16, 512, 64},    {16, 1, 8192, 66},
        {16, 1, 8448, 66},    {16, 133, 64, 132},   {16, 1, 33792, 66},   {16, 1, 33856, 132},
        {16, 2, 8448, 66},    {16, 2, 8512, 132},   {16, 4, 2112, 64},    {16, 4, 2176, 132}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_program *program = latent_program(cases[i].heads, cases[i].rows);
        const fig_bucket caps = {cases[i].rows, cases[i].length};
        fig_lower_target target = fig_sample_target("h200");
        fig_bucket_shape shape;
        assert_int_equal(shape_for(program, &target, &caps, 0, &shape), FIG_OK);
        if (shape.plan.splits[0].workers != cases[i].workers)
            fail_msg("case %zu: %d workers", i, shape.plan.splits[0].workers);
        target.deterministic = 1;
        assert_int_equal(shape_for(program, &target, &caps, 0, &shape), FIG_OK);
        if (cases[i].rows >= 43 && cases[i].length > 64)
            assert_int_equal(shape.plan.splits[0].workers, 132);
        fig_program_destroy(program);
    }
}

/* Variant 0 serves whole groups in lines, as before others existed; 1 the smallest groups, of 16
 * heads, and 2 twice as many heads, both in clusters where rows are short. With variant 3 a worker
 * is two blocks, for twice as many heads as a whole group has. No other machine divides groups. */
static void groups_over_latent_caches_have_several_sizes(void **state) {
    (void)state;
    static const struct {
        int32_t heads, rows, length, variant, groups, workers, is_short;
    } cases[] = {
        {128, 1, 512, 0, 2, 16, 0},  {128, 1, 512, 1, 8, 64, 1},   {128, 1, 512, 2, 4, 32, 1},
        {64, 1, 512, 0, 1, 8, 0},    {64, 1, 512, 1, 4, 32, 1},    {64, 1, 2048, 1, 4, 64, 1},
        {64, 4, 2048, 2, 2, 64, 1},  {16, 1, 512, 0, 1, 8, 0},     {16, 1, 512, 1, 1, 8, 1},
        {16, 1, 8192, 1, 1, 66, 0},  {64, 64, 8192, 1, 4, 128, 0}, {128, 64, 8192, 3, 1, 64, 0},
        {128, 75, 8192, 3, 1, 66, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_program *program = latent_program(cases[i].heads, cases[i].rows);
        const fig_bucket caps = {cases[i].rows, cases[i].length};
        const fig_lower_target target = fig_sample_target("h200"), old = fig_sample_target("a100");
        fig_bucket_shape shape;
        assert_int_equal(shape_for(program, &target, &caps, cases[i].variant, &shape), FIG_OK);
        const fig_split_shape *split = &shape.plan.splits[0];
        if (split->groups != cases[i].groups || split->workers != cases[i].workers ||
            shape.is_short[0] != cases[i].is_short)
            fail_msg("case %zu: %d groups, %d workers, is_short %d", i, split->groups,
                     split->workers, shape.is_short[0]);
        assert_int_equal(fig_variants_serves(fig_program_view_of(program), &old, 1), 0);
        assert_int_equal(fig_variants_serves(fig_program_view_of(program), &target, 2),
                         cases[i].heads > 16);
        assert_int_equal(fig_variants_serves(fig_program_view_of(program), &target, 3),
                         cases[i].heads > 64);
        fig_program_destroy(program);
    }
}

/* Only the kernel for at most 32 vectors over 16-bit values has clusters. Variant 3 serves four
 * smallest groups, which are a whole group of 64 heads. Of the five smallest groups of 40 heads, no
 * worker serves two. */
static void short_rows_have_clusters_only_where_a_kernel_does(void **state) {
    (void)state;
    static const struct {
        int32_t heads;
        fig_dtype dtype, kv_dtype;
        int32_t variant, groups, is_short;
    } cases[] = {{64, FIG_F16, FIG_F16, 1, 4, 1},   {64, FIG_BF16, FIG_BF16, 2, 2, 1},
                 {64, FIG_BF16, FIG_BF16, 3, 1, 0}, {64, FIG_BF16, FIG_E4M3, 1, 4, 0},
                 {64, FIG_BF16, FIG_E4M3, 2, 2, 0}, {64, FIG_F32, FIG_F32, 1, 1, 0},
                 {40, FIG_BF16, FIG_BF16, 2, 5, 1}, {40, FIG_BF16, FIG_BF16, 0, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_program *program =
            latent_program_of(cases[i].heads, 1, cases[i].dtype, cases[i].kv_dtype);
        const fig_lower_target target = fig_sample_target("h200");
        fig_bucket_shape shape;
        assert_int_equal(
            shape_for(program, &target, &(fig_bucket){1, 512}, cases[i].variant, &shape), FIG_OK);
        if (shape.plan.splits[0].groups != cases[i].groups ||
            shape.is_short[0] != cases[i].is_short)
            fail_msg("case %zu: %d groups, is_short %d", i, shape.plan.splits[0].groups,
                     shape.is_short[0]);
        assert_int_equal(fig_variants_serves(fig_program_view_of(program), &target, 3), 0);
        fig_program_destroy(program);
    }
}

/* Kernels over latent caches read from their params whether workers are clusters. */
static void buckets_in_lines_and_in_clusters_share_no_launches(void **state) {
    (void)state;
    fig_program *program = latent_program(16, 1);
    const fig_lower_target target = fig_sample_target("h200");
    fig_bucket_shape clusters, lines;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1, 512}, 1, &clusters), FIG_OK);
    assert_int_equal(clusters.is_short[0], 1);
    lines = clusters;
    assert_int_equal(fig_lower_alike(&lines, &clusters), 1);
    assert_int_equal(fig_lower_shape_digest(&lines), fig_lower_shape_digest(&clusters));
    lines.is_short[0] = 0;
    assert_int_equal(fig_lower_alike(&lines, &clusters), 0);
    assert_int_not_equal(fig_lower_shape_digest(&lines), fig_lower_shape_digest(&clusters));
    fig_program_destroy(program);
}

/* 8 kv heads of 128, one at a time; 64 KB are 128 tokens of bf16 or 256 of e4m3. Rows have two
 * tokens, since rows with one token would count as short. */
static void a_segment_is_whole_where_cutting_it_gains_nothing(void **state) {
    (void)state;
    static const struct {
        fig_bucket caps;
        fig_dtype kv_dtype;
        int32_t workers;
    } cases[] = {{{1, 256}, FIG_BF16, 32},  {{1, 512}, FIG_BF16, 32},   {{4, 256}, FIG_BF16, 32},
                 {{4, 512}, FIG_BF16, 132}, {{8, 128}, FIG_BF16, 64},   {{8, 256}, FIG_BF16, 64},
                 {{8, 512}, FIG_BF16, 64},  {{8, 1024}, FIG_BF16, 132}, {{16, 128}, FIG_BF16, 132},
                 {{8, 512}, FIG_E4M3, 132}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = fig_sample_spec();
        fig_bucket_shape shape;
        spec.dtype = FIG_BF16;
        spec.kv_dtype = cases[i].kv_dtype;
        spec.q_heads = 32;
        spec.kv_heads = 8;
        spec.head_dim = 128;
        spec.row_tokens = 2;
        spec.batch_limit = 16;
        spec.kv_limit = 1024;
        fig_program *program = fig_sample_step(&spec);
        const fig_lower_target target = fig_sample_target("h200");
        assert_int_equal(shape_for(program, &target, &cases[i].caps, 0, &shape), FIG_OK);
        if (shape.plan.splits[0].workers != cases[i].workers)
            fail_msg("case %zu: %d workers", i, shape.plan.splits[0].workers);
        assert_int_equal(shape.places[0], cases[i].kv_dtype == FIG_BF16 ? 132 : 0);
        fig_program_destroy(program);
    }
}

/* Records a single attention node over pages of 16. */
static fig_program *record_paged(const fig_spec *spec, const fig_sample_heads *heads) {
    fig_program *program = fig_sample_program(spec);
    fig_tensor_info info = {.size = sizeof info,
                            .name = "page_table",
                            .role = FIG_ROLE_STATE,
                            .dtype = FIG_I32,
                            .rank = 2,
                            .dims = {spec->sequence_limit, spec->kv_limit / 16}};
    fig_cache cache = {.page_table = fig_program_tensor(program, &info)};
    info = (fig_tensor_info){.size = sizeof info,
                             .name = "k",
                             .role = FIG_ROLE_STATE,
                             .dtype = spec->kv_dtype,
                             .rank = 4,
                             .dims = {FIG_DIM_PAGES, 16, heads->kv, heads->head_dim}};
    cache.k = fig_program_tensor(program, &info);
    info.name = "v";
    cache.v = fig_program_tensor(program, &info);
    const fig_tensor q = fig_sample_rows(program, "q", heads->q, heads->head_dim);
    const fig_tensor out = fig_sample_rows(program, "out", heads->q, heads->head_dim);
    fig_attention(program, FIG_OPTIONS(fig_attention_op, .q = q, .out = out, .cache = cache));
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    return program;
}

/* Tries heads for which there are kernels for short rows, and heads for which there are none; q is
 * f16. A tile is one turn of a block. */
static void short_rows_have_a_cluster_for_each_kv_head(void **state) {
    (void)state;
    static const struct {
        const char *traits;
        fig_bucket caps;
        fig_sample_heads heads;
        fig_dtype kv_dtype;
        int32_t deterministic, workers, tile_tokens;
    } cases[] = {{"h200", {1, 128}, {32, 8, 128}, FIG_F16, 0, 16, 64},
                 {"h200", {1, 256}, {32, 8, 128}, FIG_F16, 0, 32, 64},
                 {"h100", {1, 512}, {32, 8, 128}, FIG_F16, 0, 64, 64},
                 {"h200", {1, 1024}, {64, 8, 128}, FIG_F16, 0, 64, 128},
                 {"h200", {4, 256}, {32, 8, 128}, FIG_F16, 0, 128, 64},
                 {"h200", {8, 128}, {32, 8, 128}, FIG_F16, 0, 128, 64},
                 {"h200", {8, 256}, {32, 8, 128}, FIG_F16, 0, 64, 64},
                 {"h200", {8, 512}, {32, 8, 128}, FIG_F16, 0, 64, 64},
                 {"h200", {8, 512}, {32, 8, 128}, FIG_E4M3, 0, 128, 64},
                 {"h200", {1, 2048}, {32, 8, 128}, FIG_F16, 0, 64, 128},
                 {"h200", {1, 512}, {32, 8, 128}, FIG_E4M3, 0, 64, 64},
                 {"h200", {1, 1024}, {32, 8, 128}, FIG_E4M3, 0, 64, 64},
                 {"h200", {1, 2048}, {32, 8, 128}, FIG_E5M2, 0, 64, 128},
                 {"h200", {1, 512}, {32, 8, 64}, FIG_E4M3, 0, 64, 64},
                 {"h200", {1, 2048}, {16, 2, 128}, FIG_F16, 0, 16, 128},
                 {"h200", {1, 2049}, {16, 2, 128}, FIG_F16, 0, 32, 128},
                 {"h100", {1, 4096}, {16, 2, 128}, FIG_F16, 0, 32, 128},
                 {"h200", {1, 4096}, {8, 1, 128}, FIG_E4M3, 0, 16, 128},
                 {"h200", {2, 4096}, {16, 2, 128}, FIG_E5M2, 0, 64, 128},
                 {"h200", {3, 4096}, {16, 2, 128}, FIG_F16, 0, 132, 64},
                 {"h200", {1, 8192}, {16, 2, 128}, FIG_F16, 0, 32, 128},
                 {"h200", {1, 8193}, {16, 2, 128}, FIG_F16, 0, 132, 64},
                 {"h200", {1, 4096}, {16, 2, 64}, FIG_F16, 0, 32, 128},
                 {"h200", {1, 512}, {72, 8, 128}, FIG_F16, 0, 32, 64},
                 {"h200", {1, 512}, {32, 8, 96}, FIG_F16, 0, 64, 64},
                 {"h200", {8, 128}, {32, 8, 96}, FIG_F16, 0, 128, 64},
                 {"h200", {1, 512}, {32, 8, 96}, FIG_E4M3, 0, 32, 128},
                 {"h200", {1, 512}, {32, 8, 80}, FIG_F16, 0, 20, 128},
                 {"a100", {1, 512}, {32, 8, 128}, FIG_F16, 0, 32, 64},
                 {"h200", {1, 512}, {32, 8, 128}, FIG_F16, 1, 8, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = fig_sample_spec();
        fig_bucket_shape shape;
        spec.batch_limit = 8;
        spec.kv_limit = 16384;
        spec.kv_dtype = cases[i].kv_dtype;
        fig_program *program = record_paged(&spec, &cases[i].heads);
        fig_lower_target target = fig_sample_target(cases[i].traits);
        target.deterministic = cases[i].deterministic;
        assert_int_equal(shape_for(program, &target, &cases[i].caps, 0, &shape), FIG_OK);
        const fig_split_shape *split = &shape.plan.splits[0];
        if (split->workers != cases[i].workers ||
            (cases[i].tile_tokens > 0 && split->tile_tokens != cases[i].tile_tokens))
            fail_msg("case %zu: %d workers, tiles of %d", i, split->workers, split->tile_tokens);
        fig_program_destroy(program);
    }
}

/* A worker has at most 8 warps, and each warp takes a strip of up to 8 vectors of one head. With
 * more than 16 vectors, warpgroups read whole strips of one head. f16, head_dim 128. */
static void no_worker_has_more_heads_than_warps(void **state) {
    (void)state;
    static const struct {
        int32_t group, row_tokens, variant, heads, tile_tokens;
    } cases[] = {{4, 1, 1, 8, 16}, {16, 1, 1, 4, 16}, {8, 2, 1, 4, 16},  {4, 4, 3, 4, 32},
                 {8, 4, 1, 1, 64}, {8, 8, 3, 1, 64},  {16, 1, 0, 1, 64}, {1, 1, 2, 2, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_spec spec = fig_sample_spec();
        spec.kv_heads = 8;
        spec.q_heads = 8 * cases[i].group;
        spec.head_dim = 128;
        spec.row_tokens = cases[i].row_tokens;
        fig_program *program = fig_sample_step(&spec);
        const fig_lower_target target = fig_sample_target("h200");
        fig_bucket_shape shape;
        assert_int_equal(
            shape_for(program, &target, &(fig_bucket){6, 200}, cases[i].variant, &shape), FIG_OK);
        if (shape.variants[0].heads != cases[i].heads ||
            shape.variants[0].tile_tokens != cases[i].tile_tokens)
            fail_msg("case %zu: %dx%d", i, (int)shape.variants[0].heads,
                     (int)shape.variants[0].tile_tokens);
        fig_program_destroy(program);
    }
}

/* Tries every number of vectors per kv head, in one bucket and each variant of each machine. On
 * warpgroups, 17 to 128 vectors have strips of 128 tokens. Otherwise, with more than 64 vectors
 * tensor cores have too few warps, so the variant keeps the machine's tile. */
static void every_count_of_vectors_is_shaped(void **state) {
    (void)state;
    static const char *const machines[] = {"h200", "h100", "a100", "host"};
    static const int32_t groups[] = {1, 4, 8, 9, 13, 16};
    for (int32_t i = 0; i < 4 * 6 * 16; i++) {
        const fig_lower_target target = fig_sample_target(machines[i % 4]);
        fig_spec spec = fig_sample_spec();
        spec.kv_heads = 1;
        spec.q_heads = groups[i / 4 % 6];
        spec.row_tokens = 1 + i / 24;
        fig_program *program = fig_sample_step(&spec);
        const int32_t vectors = spec.q_heads * spec.row_tokens;
        const int is_many = target.traits.compute_capability == FIG_GEOMETRY_CAPABILITY_OF_BULK &&
                            vectors > 16 && vectors <= 128;
        const int is_fit =
            target.traits.compute_capability >= FIG_GEOMETRY_CAPABILITY && vectors <= 64;
        for (int32_t n = 0; n < fig_traits_variant_count(&target.traits); n++) {
            const fig_variant given = fig_traits_variant(&target.traits, n, 2);
            fig_bucket_shape shape;
            assert_int_equal(shape_for(program, &target, &(fig_bucket){6, 200}, n, &shape), FIG_OK);
            assert_int_equal(shape.variants[0].heads, 1);
            if (is_many) assert_int_equal(shape.variants[0].tile_tokens, 128);
            if (is_many) continue;
            if (!is_fit) assert_int_equal(shape.variants[0].tile_tokens, given.tile_tokens);
            if (is_fit) assert_in_range(shape.variants[0].tile_tokens, 2 * given.tile_tokens, 128);
        }
        fig_program_destroy(program);
    }
}

/* The class has the row_tokens of its own layers. The window counts from a row's first query, so it
 * is 41 tokens. */
static void a_class_brings_its_window_and_row_tokens(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){6, 200}, 1, &shape), FIG_OK);
    assert_int_equal(shape.plan.class_count, 2);
    for (int i = 0; i < 2; i++) {
        const fig_split_shape *split = &shape.plan.splits[i];
        assert_int_equal(split->window, i == 0 ? 40 : 0);
        assert_int_equal(split->row_tokens, 2);
        assert_int_equal(split->fixed, 0);
        /* A window of 41 tokens touches at most four tiles of 16; 200 tokens touch thirteen. */
        assert_int_equal(split->tile_limit, 6 * (i == 0 ? 4 : 13));
        assert_int_equal(split->tile_limit,
                         split->groups * fig_bounds_tiles(split, INT64_C(6) * 200, 200));
        assert_int_equal(shape.token_bytes[i], 2 * 2 * 64 * 1);
    }
    fig_program_destroy(program);
}

/* Tiles and heads are the same in every bucket and on every machine. */
static void a_deterministic_split_is_fixed_and_alike_in_every_bucket(void **state) {
    (void)state;
    static const fig_bucket caps[] = {{1, 100}, {1, 200}, {6, 100}, {6, 200}};
    static const char *const machines[] = {"host", "h200", "a100"};
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_program_view *view = fig_program_view_of(program);
    for (int i = 0; i < 12; i++) {
        fig_lower_target target = fig_sample_target(machines[i / 4]);
        fig_bucket_shape shape;
        target.deterministic = 1;
        assert_int_equal(shape_for(program, &target, &caps[i % 4], 0, &shape), FIG_OK);
        const fig_split_shape *split = &shape.plan.splits[0];
        assert_int_equal(split->fixed, 1);
        assert_int_equal(split->tile_tokens, FIG_FIXED_TILE_TOKENS);
        assert_int_equal(split->groups, 2);
        assert_int_equal(split->tile_limit, 2 * caps[i % 4].batch);
        assert_int_equal(fig_split_partial_limit(split), split->tile_limit);
        assert_int_equal(fig_variants_serves(view, &target, 0), 1);
        assert_int_equal(fig_variants_serves(view, &target, 1), 0);
        FIG_SAMPLE_REFUSES(shape_for(program, &target, &caps[i % 4], 1, &shape), FIG_INVALID,
                           "variant is 1, it must be 0 where splits are fixed");
    }
    fig_program_destroy(program);
}

/* Even a bucket that is too small for a row of two tokens has a grid. */
static void a_bucket_of_no_tile_has_a_worker(void **state) {
    (void)state;
    fig_program *program = fig_sample_breadth();
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1, 1}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].tile_limit, 0);
    assert_int_equal(shape.plan.splits[0].workers, 1);
    fig_program_destroy(program);
}

static void a_machine_of_a_thousand_places_is_used_whole(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.batch_limit = 1024;
    spec.kv_limit = 4096;
    fig_program *program = fig_sample_step(&spec);
    fig_lower_target target = fig_sample_target("h200");
    fig_bucket_shape shape;
    target.traits.sm_count = 1024;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 4096}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].workers, FIG_WORKER_LIMIT);
    target.traits.sm_count = 100000;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 4096}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.splits[0].workers, FIG_WORKER_LIMIT);
    fig_program_destroy(program);
}

static void caps_beyond_the_spec_are_refused(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_step(&spec);
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){0, 1}, 0, &shape), FIG_INVALID,
                       "batch is 0, limits 1 to 6");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){7, 1}, 0, &shape), FIG_INVALID,
                       "batch is 7, limits 1 to 6");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 0}, 0, &shape), FIG_INVALID,
                       "kv is 0, limits 1 to 200");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 201}, 0, &shape), FIG_INVALID,
                       "kv is 201, limits 1 to 200");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 1}, -1, &shape), FIG_INVALID,
                       "variant is -1");
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){6, 1}, 2, &shape), FIG_INVALID,
                       "variant is 2, limits 0 to 1");
    fig_program_destroy(program);
}

/* The spec's limit applies to its own heads; a program may have attention over more heads. */
static void a_line_that_an_int_cannot_count_is_refused(void **state) {
    (void)state;
    fig_spec spec = fig_sample_spec();
    spec.batch_limit = 1024;
    spec.kv_limit = 1 << 20;
    fig_program *program = fig_sample_program(&spec);
    fig_sample_attention(program, "wide", &(fig_sample_heads){256, 256, 64});
    if (fig_program_finish(program) != FIG_OK) fail_msg("%s", fig_message());
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1024, 1 << 20}, 0, &shape),
                       FIG_TOO_LARGE, "bucket 1024 x 1048576: 4294967296 tiles in 256 head groups");
    assert_int_equal(shape_for(program, &target, &(fig_bucket){1024, 1 << 18}, 0, &shape), FIG_OK);
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1024, 1 << 20}, 1, &shape),
                       FIG_TOO_LARGE, "2147483648 tiles");
    fig_program_destroy(program);
}

static fig_program *record_calls_alone(void) {
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    fig_call(program, FIG_OPTIONS(fig_call_op, .call = "c"));
    assert_int_equal(fig_program_finish(program), FIG_OK);
    return program;
}

static void without_attention_there_is_no_split_and_one_variant(void **state) {
    (void)state;
    fig_program *program = record_calls_alone();
    const fig_lower_target target = fig_sample_target("host");
    const fig_program_view *view = fig_program_view_of(program);
    fig_bucket_shape shape;
    fig_workspace workspace;
    assert_int_equal(shape_for(program, &target, &(fig_bucket){4, 100}, 0, &shape), FIG_OK);
    assert_int_equal(shape.plan.class_count, 0);
    assert_int_equal(fig_workspace_init(&workspace, view, &shape, 1), FIG_OK);
    assert_int_equal(workspace.bytes, 0);
    assert_int_equal(fig_launch_list_count(view), 2);
    assert_int_equal(fig_variants_serves(view, &target, 0), 1);
    assert_int_equal(fig_variants_serves(view, &target, 1), 0);
    fig_workspace_finish(&workspace);
    fig_program_destroy(program);

    /* With one kv head, both variants read one head, but in tiles of different lengths. */
    for (int32_t kv_heads = 1; kv_heads <= 2; kv_heads++) {
        fig_spec spec = fig_sample_spec();
        spec.kv_heads = kv_heads;
        program = fig_sample_step(&spec);
        assert_int_equal(fig_variants_serves(fig_program_view_of(program), &target, 1), 1);
        fig_program_destroy(program);
    }
}

static void one_class_too_many_is_not_shaped(void **state) {
    (void)state;
    const fig_spec spec = fig_sample_spec();
    fig_program *program = fig_sample_program(&spec);
    const fig_lower_target target = fig_sample_target("host");
    fig_bucket_shape shape;
    char name[16];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "%d", i);
        fig_sample_attention(program, name, &(fig_sample_heads){16, 1 << i, 64});
    }
    assert_int_equal(fig_program_finish(program), FIG_OK);
    FIG_SAMPLE_REFUSES(shape_for(program, &target, &(fig_bucket){1, 1}, 0, &shape), FIG_UNSUPPORTED,
                       "node 4 (attention): 16 kv heads, window 0 and 1 tokens of a row");
    fig_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_are_the_machines_or_the_tiles),
        cmocka_unit_test(cuts_of_latent_caches_fall_on_ends_of_segments),
        cmocka_unit_test(groups_over_latent_caches_have_several_sizes),
        cmocka_unit_test(short_rows_have_clusters_only_where_a_kernel_does),
        cmocka_unit_test(buckets_in_lines_and_in_clusters_share_no_launches),
        cmocka_unit_test(a_segment_is_whole_where_cutting_it_gains_nothing),
        cmocka_unit_test(short_rows_have_a_cluster_for_each_kv_head),
        cmocka_unit_test(no_worker_has_more_heads_than_warps),
        cmocka_unit_test(every_count_of_vectors_is_shaped),
        cmocka_unit_test(a_class_brings_its_window_and_row_tokens),
        cmocka_unit_test(a_deterministic_split_is_fixed_and_alike_in_every_bucket),
        cmocka_unit_test(a_bucket_of_no_tile_has_a_worker),
        cmocka_unit_test(a_machine_of_a_thousand_places_is_used_whole),
        cmocka_unit_test(caps_beyond_the_spec_are_refused),
        cmocka_unit_test(a_line_that_an_int_cannot_count_is_refused),
        cmocka_unit_test(without_attention_there_is_no_split_and_one_variant),
        cmocka_unit_test(one_class_too_many_is_not_shaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
