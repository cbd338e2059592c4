/* test_latent_families.c: tests which family serves a launch of attention over a latent cache, and
 * how large groups and clusters are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/latent/latent_narrow.h"
#include "kernels/latent/latent_short.h"
#include "kernels/latent/latent_wide.h"
#include "kernels/table/families.h"
#include "kernels/table/reference_kernels.h"

/* ---- Groups and clusters */

/* The heads of a group have at most 64 query vectors, and all groups have equally many heads. */
static void groups_hold_at_most_64_vectors(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= FIG_LATENT_HEAD_LIMIT; heads += 8) {
        for (int32_t tokens = 1; tokens <= 16; tokens++) {
            const int32_t group = fig_latent_group_heads(heads, tokens);
            assert_int_equal(heads % group, 0);
            assert_int_equal(group % (tokens <= 8 ? 8 : 4), 0);
            assert_in_range(group * tokens, 8, FIG_LATENT_VECTORS);
        }
    }
    assert_int_equal(fig_latent_group_heads(128, 1), 64);
    assert_int_equal(fig_latent_group_heads(128, 2), 32);
    assert_int_equal(fig_latent_group_heads(40, 1), 40);
    assert_int_equal(fig_latent_group_heads(72, 1), 24);
    assert_int_equal(fig_latent_group_heads(128, 8), 8);
    assert_int_equal(fig_latent_group_heads(128, 9), 4);
}

/* The smallest groups divide the largest ones, and have at most 16 vectors where heads allow it. */
static void the_smallest_groups_divide_the_largest(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= FIG_LATENT_HEAD_LIMIT; heads += 8) {
        for (int32_t tokens = 1; tokens <= 16; tokens++) {
            const int32_t least = fig_latent_least_heads(heads, tokens);
            assert_int_equal(fig_latent_group_heads(heads, tokens) % least, 0);
            assert_int_equal(least % (tokens <= 8 ? 8 : 4), 0);
            if (tokens <= 2) assert_in_range(least * tokens, 8, FIG_LATENT_VECTORS_FEW);
        }
    }
    assert_int_equal(fig_latent_least_heads(128, 1), 16);
    assert_int_equal(fig_latent_least_heads(128, 2), 8);
    assert_int_equal(fig_latent_least_heads(16, 1), 16);
    assert_int_equal(fig_latent_least_heads(24, 1), 8);
    assert_int_equal(fig_latent_least_heads(128, 4), 8);
    assert_int_equal(fig_latent_least_heads(128, 16), 4);
}

/* Two blocks have at most 128 vectors of a group, half each. */
static void groups_of_two_blocks_are_twice_as_large(void **state) {
    (void)state;
    for (int32_t heads = 8; heads <= FIG_LATENT_HEAD_LIMIT; heads += 8) {
        for (int32_t tokens = 1; tokens <= 16; tokens++) {
            const int32_t pair = fig_latent_pair_heads(heads, tokens);
            assert_int_equal(heads % pair, 0);
            assert_int_equal(pair % fig_latent_group_heads(heads, tokens), 0);
            assert_in_range(pair * tokens, 8, 2 * FIG_LATENT_VECTORS);
        }
    }
    assert_int_equal(fig_latent_pair_heads(128, 1), 128);
    assert_int_equal(fig_latent_pair_heads(64, 1), 64); /* one group has them all */
    assert_int_equal(fig_latent_pair_heads(64, 2), 64);
    assert_int_equal(fig_latent_pair_heads(80, 1), 80);
    assert_int_equal(fig_latent_pair_heads(72, 1), 24); /* three groups of 24 */
}

/* A machine of 132 SMs runs 4 clusters of 16 blocks, 12 of 8, 28 of 4 and 66 of 2. */
static void a_short_row_has_the_largest_cluster_that_fits(void **state) {
    (void)state;
    static const struct {
        int32_t segments, tiles, blocks;
    } cases[] = {{1, 1, 0},   {1, 2, 2},  {1, 3, 4},   {1, 8, 8},   {4, 9, 16}, {4, 64, 16},
                 {4, 65, 0},  {5, 9, 8},  {12, 32, 8}, {12, 33, 0}, {13, 8, 4}, {28, 16, 4},
                 {28, 17, 0}, {29, 4, 2}, {66, 8, 2},  {66, 9, 0},  {67, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int32_t blocks = fig_latent_short_blocks(cases[i].segments, cases[i].tiles, 132);
        if (blocks != cases[i].blocks) fail_msg("case %zu: %d blocks", i, blocks);
    }
    assert_int_equal(fig_latent_short_blocks(1, 9, 108), 8); /* too few SMs for clusters of 16 */
}

/* ---- Families */

static fig_latent_attention_params wide_params(void) {
    return (fig_latent_attention_params){.q = (const void *)(uintptr_t)1024,
                                         .k_cache = (const void *)(uintptr_t)2048,
                                         .out = (void *)(uintptr_t)4096,
                                         .q_strides = {64 * 576, 576},
                                         .q_rope_strides = {64 * 64, 64},
                                         .out_strides = {64 * 512, 512},
                                         .k_cache_strides = {64 * 576, 576},
                                         .k_pages = 9,
                                         .split = {.row_limit = 4,
                                                   .groups = 1,
                                                   .tile_tokens = FIG_LATENT_TILE_TOKENS,
                                                   .workers = 132,
                                                   .row_tokens = 1},
                                         .q_heads = 64,
                                         .page_size = 64,
                                         .dtype = FIG_BF16,
                                         .kv_dtype = FIG_BF16};
}

static fig_family_choice choose(const fig_latent_attention_params *params, int32_t capability) {
    const fig_traits traits = {.size = sizeof traits,
                               .compute_capability = capability,
                               .sm_count = 132,
                               .shared_bytes = 227 * 1024};
    fig_family_choice choice;
    fig_families_choose(FIG_OP_LATENT_ATTENTION, params, &traits, &choice);
    return choice;
}

static void expect_refusal(const fig_latent_attention_params *params, const char *refusal) {
    const fig_family_choice choice = choose(params, 90);
    assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_PLAIN);
    assert_string_equal(choice.refusals[FIG_FAMILY_LATENT_ATTENTION_NARROW], refusal);
    assert_string_equal(choice.refusals[FIG_FAMILY_LATENT_ATTENTION_WIDE], refusal);
}

static void warpgroups_serve_caches_of_q_s_dtype_on_hopper(void **state) {
    (void)state;
    fig_latent_attention_params params = wide_params();
    for (int32_t i = 0; i < 2; i++) {
        static const int32_t kinds[] = {FIG_BF16, FIG_F16};
        static const char *const entries[] = {"fig_kernel_latent_attention_wide_bf16",
                                              "fig_kernel_latent_attention_wide_f16"};
        static const char *const ahead[] = {"fig_kernel_latent_attention_wide_bf16_ahead",
                                            "fig_kernel_latent_attention_wide_f16_ahead"};
        params.dtype = params.kv_dtype = kinds[i];
        const fig_family_choice choice = choose(&params, 90);
        assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_WIDE);
        assert_string_equal(choice.entry, entries[i]);
        params.q_heads *= 2;
        params.split.groups *= 2;
        assert_string_equal(choose(&params, 90).entry, ahead[i]);
        params.q_heads /= 2;
        params.split.groups /= 2;
        assert_int_equal(choice.shape.grid[0], 132);
        assert_int_equal(choice.shape.block[0], 384);
        assert_int_equal(choice.shape.shared_bytes, FIG_LATENT_WIDE_BYTES);
    }
    assert_int_equal(choose(&params, 80).family, FIG_FAMILY_LATENT_ATTENTION_PLAIN);
    assert_int_equal(choose(&params, 100).family, FIG_FAMILY_LATENT_ATTENTION_PLAIN);
    /* Before anything is bound, addresses, strides and pages are 0. */
    params.q = params.k_cache = params.out = NULL;
    params.q_strides = params.out_strides = (fig_row_strides){0};
    params.k_cache_strides = (fig_token_strides){0};
    params.k_pages = 0;
    assert_int_equal(choose(&params, 90).family, FIG_FAMILY_LATENT_ATTENTION_WIDE);
}

static void warpgroups_leave_other_kinds_of_rows_to_plain_cores(void **state) {
    (void)state;
    fig_latent_attention_params params = wide_params();
    params.dtype = params.kv_dtype = FIG_F32;
    expect_refusal(&params, "f16 or bf16");
    params = wide_params();
    params.kv_dtype = FIG_E4M3;
    expect_refusal(&params, "a cache of q's dtype");
    params = wide_params();
    params.flags = FIG_ATTENTION_DENSE;
    expect_refusal(&params, "a page table");
    params = wide_params();
    params.page_size = 24;
    expect_refusal(&params, "pages of a multiple of 16 tokens");
    params = wide_params();
    params.q_heads = 72;
    expect_refusal(&params, "at most 64 vectors of a group");
    params = wide_params();
    params.split.workers = 133;
    expect_refusal(&params, "at most one worker per SM");
}

static void warpgroups_need_whole_tiles_and_aligned_vectors(void **state) {
    (void)state;
    static const char split[] = "a split that is not fixed, with tiles of 64 tokens";
    static const char places[] = "vectors and tokens that begin at multiples of 16 bytes";
    fig_latent_attention_params params = wide_params();
    params.split.fixed = 1;
    expect_refusal(&params, split);
    params = wide_params();
    params.split.tile_tokens = 128;
    expect_refusal(&params, split);
    for (int32_t i = 0; i < 12; i++) {
        params = wide_params();
        int64_t *const strides[] = {&params.q_strides.row,         &params.q_strides.head,
                                    &params.out_strides.row,       &params.out_strides.head,
                                    &params.k_cache_strides.token, &params.k_cache_strides.page,
                                    &params.q_rope_strides.row,    &params.q_rope_strides.head};
        if (i < 8) *strides[i] += 4;
        if (i == 8) params.q = (const void *)(uintptr_t)1032;
        if (i == 9) params.k_cache = (const void *)(uintptr_t)2056;
        if (i == 10) params.out = (void *)(uintptr_t)4104;
        if (i == 11) params.q_rope = (const void *)(uintptr_t)8200;
        expect_refusal(&params, places);
    }
}

/* The smaller instance serves groups of up to 16 vectors. */
static void groups_of_at_most_32_vectors_have_a_kernel_of_their_own(void **state) {
    (void)state;
    static const struct {
        int32_t heads, groups, row_tokens;
        const char *entry;
    } cases[] = {{8, 1, 1, "narrow_bf16_16"},  {16, 1, 1, "narrow_bf16_16"},
                 {8, 1, 2, "narrow_bf16_16"},  {24, 1, 1, "narrow_bf16_32"},
                 {32, 1, 1, "narrow_bf16_32"}, {8, 1, 4, "narrow_bf16_32"},
                 {72, 3, 1, "narrow_bf16_32"}, {40, 1, 1, "wide_bf16"},
                 {16, 1, 3, "wide_bf16"},      {64, 2, 2, "wide_bf16_ahead"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char entry[FIG_ENTRY_BYTES];
        fig_latent_attention_params params = wide_params();
        params.q_heads = cases[i].heads;
        params.split.groups = cases[i].groups;
        params.split.row_tokens = cases[i].row_tokens;
        const fig_family_choice choice = choose(&params, 90);
        snprintf(entry, sizeof entry, "fig_kernel_latent_attention_%s", cases[i].entry);
        assert_string_equal(choice.entry, entry);
        assert_int_equal(choice.shape.grid[0], 132);
        const int is_narrow = strstr(entry, "narrow") != NULL;
        assert_int_equal(choice.shape.block[0], is_narrow ? 320 : 384);
        assert_int_equal(choice.shape.shared_bytes,
                         is_narrow ? FIG_LATENT_NARROW_BYTES : FIG_LATENT_WIDE_BYTES);
    }
}

static void expect_codes_refusal(const fig_latent_attention_params *params, const char *refusal) {
    const fig_family_choice choice = choose(params, 90);
    assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_PLAIN);
    assert_string_equal(choice.refusals[FIG_FAMILY_LATENT_ATTENTION_CODES], refusal);
}

static fig_latent_attention_params codes_params(void) {
    fig_latent_attention_params params = wide_params();
    params.q_heads = 16;
    params.kv_dtype = FIG_E4M3;
    params.page_size = 3;
    params.k_cache_strides = (fig_token_strides){.page = 3 * 656, .token = 656};
    return params;
}

static void warpgroups_serve_codes_of_few_vectors_with_pages_of_any_size(void **state) {
    (void)state;
    static const char places[] = "vectors and tokens that begin at multiples of 16 bytes";
    fig_latent_attention_params params = codes_params();
    fig_family_choice choice = choose(&params, 90);
    assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_CODES);
    assert_string_equal(choice.entry, "fig_kernel_latent_attention_codes_bf16_16");
    assert_int_equal(choice.shape.block[0], 640);
    assert_int_equal(choice.shape.shared_bytes, FIG_LATENT_NARROW_BYTES);
    params.q_heads = 32;
    assert_string_equal(choose(&params, 90).entry, "fig_kernel_latent_attention_codes_bf16_32");
    assert_int_equal(choose(&params, 80).family, FIG_FAMILY_LATENT_ATTENTION_PLAIN);
    params.q_heads = 40;
    expect_codes_refusal(&params, "at most 32 vectors of a group");
    params = codes_params();
    params.flags = FIG_ATTENTION_DENSE;
    expect_codes_refusal(&params, "a page table");
    params = codes_params();
    params.split.fixed = 1;
    expect_codes_refusal(&params, "a split that is not fixed, with tiles of 64 tokens");
    params = codes_params();
    params.split.workers = 133;
    expect_codes_refusal(&params, "at most one worker per SM");
    params = codes_params();
    params.k_cache_strides.token += 8;
    expect_codes_refusal(&params, places);
    params = codes_params();
    params.k_cache_strides.page += 8;
    expect_codes_refusal(&params, places);
    params = codes_params();
    params.q_rope = (const void *)(uintptr_t)8200;
    expect_codes_refusal(&params, places);
    params = codes_params();
    params.dtype = FIG_F16;
    expect_codes_refusal(&params, "bf16");
    params = codes_params();
    params.kv_dtype = FIG_E5M2;
    expect_codes_refusal(&params, "a cache of codes");
}

/* Each group of each row of the bucket has a cluster. If the workers do not divide into clusters of
 * a known size, or if a machine may not hold such clusters, the kernel for lines serves. */
static void clusters_serve_short_rows(void **state) {
    (void)state;
    static const struct {
        int32_t heads, workers;
        const char *entry;
    } cases[] = {{16, 8, "short_bf16_16_2"},  {16, 16, "short_bf16_16_4"},
                 {32, 32, "short_bf16_32_8"}, {32, 64, "short_bf16_32_16"},
                 {16, 4, "narrow_bf16_16"},   {16, 9, "narrow_bf16_16"},
                 {16, 128, "narrow_bf16_16"}, {64, 16, "wide_bf16"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_latent_attention_params params = wide_params();
        params.q_heads = cases[i].heads;
        params.split.workers = cases[i].workers;
        params.is_short = 1;
        const fig_family_choice choice = choose(&params, 90);
        assert_string_equal(choice.entry + strlen("fig_kernel_latent_attention_"), cases[i].entry);
        assert_int_equal(choice.shape.grid[0], cases[i].workers);
        params.is_short = 0;
        assert_int_not_equal(choose(&params, 90).family, FIG_FAMILY_LATENT_ATTENTION_SHORT);
    }
    fig_latent_attention_params params = wide_params();
    fig_traits traits = {.size = sizeof traits,
                         .compute_capability = 90,
                         .sm_count = 114,
                         .shared_bytes = FIG_LATENT_NARROW_BYTES};
    fig_family_choice choice;
    params.q_heads = 16;
    params.split.workers = 64;
    params.is_short = 1;
    fig_families_choose(FIG_OP_LATENT_ATTENTION, &params, &traits, &choice);
    assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_NARROW);
    assert_string_equal(choice.refusals[FIG_FAMILY_LATENT_ATTENTION_SHORT],
                        "2, 4, 8 or 16 workers per group of heads");
}

/* More than 64 vectors of a group are for two blocks, which together have two SMs. */
static void two_blocks_serve_more_than_64_vectors(void **state) {
    (void)state;
    static const struct {
        int32_t heads, tokens, workers, family;
    } cases[] = {{128, 1, 66, FIG_FAMILY_LATENT_ATTENTION_PAIR},
                 {64, 2, 1, FIG_FAMILY_LATENT_ATTENTION_PAIR},
                 {72, 1, 66, FIG_FAMILY_LATENT_ATTENTION_PAIR},
                 {128, 1, 67, FIG_FAMILY_LATENT_ATTENTION_PLAIN},
                 {136, 1, 66, FIG_FAMILY_LATENT_ATTENTION_PLAIN},
                 {64, 1, 132, FIG_FAMILY_LATENT_ATTENTION_WIDE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fig_latent_attention_params params = wide_params();
        params.q_heads = cases[i].heads;
        params.split.row_tokens = cases[i].tokens;
        params.split.workers = cases[i].workers;
        const fig_family_choice choice = choose(&params, 90);
        if ((int32_t)choice.family != cases[i].family) fail_msg("case %zu: %u", i, choice.family);
        if (choice.family != FIG_FAMILY_LATENT_ATTENTION_PAIR) continue;
        assert_string_equal(choice.entry, "fig_kernel_latent_attention_pair_bf16");
        assert_int_equal(choice.shape.grid[0], 2 * cases[i].workers);
        assert_int_equal(choice.shape.block[0], 384);
        assert_int_equal(choice.shape.shared_bytes, FIG_LATENT_WIDE_BYTES);
    }
    const fig_traits traits = {.size = sizeof traits, .sm_count = 132};
    fig_latent_attention_params params = wide_params();
    params.q_heads = 128;
    assert_true(fig_latent_attention_cut(&params, &traits, 0));
    assert_int_equal(choose(&params, 90).family, FIG_FAMILY_LATENT_ATTENTION_PAIR);
}

/* A runner loads the kernels of every way in which a run may be cut. */
static void every_cut_of_a_run_has_its_kernel(void **state) {
    (void)state;
    static const char *const entries[] = {"narrow_bf16_32", "short_bf16_32_2", "short_bf16_32_4",
                                          "short_bf16_32_8", "short_bf16_32_16"};
    const fig_traits traits = {.size = sizeof traits, .sm_count = 132};
    fig_latent_attention_params params = wide_params();
    params.split.groups = 2;
    for (int32_t n = 0; n < 5; n++) {
        assert_true(fig_latent_attention_cut(&params, &traits, n));
        assert_string_equal(choose(&params, 90).entry + strlen("fig_kernel_latent_attention_"),
                            entries[n]);
    }
    assert_false(fig_latent_attention_cut(&params, &traits, 5));
}

/* A device with less shared memory than that of compute capability 9.0 leaves the ring less room
 * than the kernel counts on. */
static void few_vectors_need_all_of_a_block_s_shared_memory(void **state) {
    (void)state;
    fig_latent_attention_params params = wide_params();
    params.q_heads = 16;
    const fig_traits traits = {.size = sizeof traits,
                               .compute_capability = 90,
                               .sm_count = 132,
                               .shared_bytes = FIG_LATENT_NARROW_BYTES - 1};
    fig_family_choice choice;
    fig_families_choose(FIG_OP_LATENT_ATTENTION, &params, &traits, &choice);
    assert_int_equal(choice.family, FIG_FAMILY_LATENT_ATTENTION_WIDE);
    assert_string_equal(choice.refusals[FIG_FAMILY_LATENT_ATTENTION_NARROW],
                        "227 KB of shared memory");
}

/* A box lies in one page, and boxes make up a tile. */
static void boxes_of_the_cache_fit_pages_and_tiles(void **state) {
    (void)state;
    static const int32_t pages[] = {16, 32, 48, 64, 80, 96, 128, 192};
    static const int32_t boxes[] = {16, 32, 16, 64, 16, 32, 64, 64};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        fig_latent_attention_params params = wide_params();
        fig_tensor_map_recipe recipe = {0};
        params.page_size = pages[i];
        params.k_cache_strides = (fig_token_strides){pages[i] * 584 + 8, 584};
        assert_int_equal(choose(&params, 90).family, FIG_FAMILY_LATENT_ATTENTION_WIDE);
        fig_latent_attention_wide_map(&params, 0, &recipe);
        assert_int_equal(recipe.address, 2048);
        assert_int_equal(recipe.rank, 3);
        assert_int_equal(recipe.dims[0], FIG_LATENT_KEY_DIM);
        assert_int_equal(recipe.dims[1], pages[i]);
        assert_int_equal(recipe.dims[2], 9);
        assert_int_equal(recipe.strides_bytes[1], 2 * 584);
        assert_int_equal(recipe.strides_bytes[2], 2 * (pages[i] * 584 + 8));
        assert_int_equal(recipe.box[0] * 2, recipe.swizzle_bytes);
        assert_int_equal(recipe.box[1], boxes[i]);
        assert_int_equal(recipe.box[2], 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_hold_at_most_64_vectors),
        cmocka_unit_test(the_smallest_groups_divide_the_largest),
        cmocka_unit_test(groups_of_two_blocks_are_twice_as_large),
        cmocka_unit_test(a_short_row_has_the_largest_cluster_that_fits),
        cmocka_unit_test(warpgroups_serve_caches_of_q_s_dtype_on_hopper),
        cmocka_unit_test(warpgroups_leave_other_kinds_of_rows_to_plain_cores),
        cmocka_unit_test(warpgroups_need_whole_tiles_and_aligned_vectors),
        cmocka_unit_test(groups_of_at_most_32_vectors_have_a_kernel_of_their_own),
        cmocka_unit_test(warpgroups_serve_codes_of_few_vectors_with_pages_of_any_size),
        cmocka_unit_test(clusters_serve_short_rows),
        cmocka_unit_test(two_blocks_serve_more_than_64_vectors),
        cmocka_unit_test(every_cut_of_a_run_has_its_kernel),
        cmocka_unit_test(few_vectors_need_all_of_a_block_s_shared_memory),
        cmocka_unit_test(boxes_of_the_cache_fit_pages_and_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
