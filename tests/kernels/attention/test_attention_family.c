/* test_attention_family.c: tests which family of kernels serves an attention launch, and that its
 * blocks fit the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/families.h"

/* Returns params for 32 q heads, 8 kv heads, head_dim 128, bf16, and pages of 16 tokens. */
static fig_attention_params common(void) {
    return (fig_attention_params){.k_cache_strides = {16384, 1024, 128},
                                  .v_cache_strides = {16384, 1024, 128},
                                  .q_strides = {4096, 128},
                                  .out_strides = {4096, 128},
                                  .split = {.row_tokens = 1, .workers = 132},
                                  .q_heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .heads_per_worker = 1,
                                  .page_size = 16,
                                  .dtype = FIG_BF16,
                                  .kv_dtype = FIG_BF16};
}

/* The shared memory that a block can have on an H200, an A100 and an L40. */
enum { H200_BYTES = 232448, A100_BYTES = 166912, L40_BYTES = 101376 };

static fig_family_choice choose_within(const fig_attention_params *params, int32_t capability,
                                       int32_t shared_bytes) {
    const fig_traits traits = {
        .compute_capability = capability, .sm_count = 132, .shared_bytes = shared_bytes};
    fig_family_choice choice;
    fig_families_choose(FIG_OP_ATTENTION, params, &traits, &choice);
    return choice;
}

static fig_family_choice choose(const fig_attention_params *params, int32_t capability) {
    return choose_within(params, capability, capability == 90 ? H200_BYTES : A100_BYTES);
}

static void expect(const fig_attention_params *params, int32_t capability, const char *family,
                   const char *entry) {
    const fig_family_choice choice = choose(params, capability);
    assert_string_equal(fig_families_of(FIG_OP_ATTENTION, choice.family)->name, family);
    assert_string_equal(choice.entry, entry);
}

static void the_machine_and_the_places_of_tokens_choose(void **state) {
    (void)state;
    fig_attention_params p = common();
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    expect(&p, 80, "copy", "fig_kernel_attention_copy_bf16_128");
    expect(&p, 0, "scalar", "fig_kernel_attention");
    p.page_size = 5;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_bf16_128");
    /* a dense sequence is one page, so no tile crosses the end of a page */
    p.flags = FIG_ATTENTION_DENSE;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    p.flags = 0;
    p.v_cache_strides.token = 1028;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p = common();
    p.k_cache_strides.token = 1028;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p = common();
    p.head_dim = 112;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p = common();
    p.head_dim = 80;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_bf16_80");
    p = common();
    p.q_strides.row = 4097;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p = common();
    p.dtype = p.kv_dtype = FIG_F32;
    expect(&p, 90, "scalar", "fig_kernel_attention");
}

/* There are 3 rows of 8 kv heads, with 4 workers for each head of a row. */
static void as_many_workers_for_each_head_of_a_row_are_a_cluster(void **state) {
    (void)state;
    fig_attention_params p = common();
    p.split.row_limit = 3;
    p.split.workers = 3 * 8 * 4;
    expect(&p, 90, "short", "fig_kernel_attention_short_bf16_128_4_4");
    expect(&p, 80, "copy", "fig_kernel_attention_copy_bf16_128");
    const fig_family_choice choice = choose(&p, 90);
    assert_int_equal(choice.shape.grid[0], 96);
    assert_int_equal(choice.shape.block[0], 128);
    assert_int_equal(choice.shape.shared_bytes, H200_BYTES / 3);
    p.split.workers++;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    /* Shared memory holds two turns of 64 tokens, the weights of both, the sums of 4 warps, and the
     * data that 4 blocks exchange. */
    p.split.workers--;
    p.head_dim = 256;
    assert_int_equal(choose(&p, 90).shape.shared_bytes,
                     2 * 64 * 2 * 512 + 4 * (2 * 512 + 64) + 256 * 32 + 4 * 64 + 16);
}

/* The families that use clusters, and those that do RoPE within attention, need rows with equal
 * numbers of queries. */
static void rows_of_unequal_numbers_of_queries_keep_to_kernels_that_go_row_by_row(void **state) {
    (void)state;
    fig_attention_params p = common();
    p.split.row_limit = 3;
    p.split.workers = 3 * 8 * 4;
    p.queries_offset = 64;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    p = common();
    p.turn.rope.rotary_dim = 128;
    expect(&p, 90, "turn", "fig_kernel_attention_turn_bf16_128_4");
    p.queries_offset = 64;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    expect(&p, 80, "copy", "fig_kernel_attention_copy_bf16_128");
    p.is_packed = 1; /* all vectors of a row fit one set of warps */
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    p.split.row_tokens = 8;
    p.heads_per_worker = 2;
    expect(&p, 90, "packed", "fig_kernel_attention_packed_bf16_128_1");
    expect(&p, 80, "copy", "fig_kernel_attention_copy_bf16_128");
    p.heads_per_worker = 1;
    p.kv_dtype = FIG_E4M3;
    expect(&p, 90, "packed", "fig_kernel_attention_packed_e4m3_128_2");
    p.kv_dtype = FIG_E5M2;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_e5m2_128_2");
    p.kv_dtype = FIG_E4M3;
    p.is_packed = 0;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_e4m3_128_2");
    p.is_packed = 1;
    p.split.fixed = 1;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_e4m3_128_2");
    p.split.fixed = 0;
    p.kv_dtype = FIG_BF16;
    p.q_heads = p.kv_heads; /* one set of warps for each kv head: none of a head take turns */
    p.heads_per_worker = 8;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_1");
    p.q_heads = common().q_heads;
    p.heads_per_worker = common().heads_per_worker;
    p.head_dim = 96;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_96_2");
    p.head_dim = 128;
    p.page_size = 8;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_bf16_128");
}

/* A warpgroup has 64 vectors, and a block two of them. */
static void rows_of_17_to_128_vectors_of_a_head_are_those_of_warpgroups(void **state) {
    (void)state;
    const fig_attention_params usual = common(); /* 4 vectors for each query token */
    fig_attention_params p = usual;
    p.split.row_tokens = 4;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
    p.split.row_tokens = 5;
    expect(&p, 90, "many", "fig_kernel_attention_many_bf16_128");
    expect(&p, 80, "copy", "fig_kernel_attention_copy_bf16_128");
    p.q_heads = 8 * p.kv_heads;
    p.split.row_tokens = 16;
    expect(&p, 90, "many", "fig_kernel_attention_many_bf16_128");
    const fig_family_choice choice = choose(&p, 90);
    assert_int_equal(choice.shape.block[0], 12 * 32);
    assert_int_equal(choice.shape.shared_bytes, 3 * 16384 + 2048 + 5 * 32768 + 2112);
    p.q_heads = 9 * p.kv_heads;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p = usual;
    p.split.row_tokens = 16;
    p.queries_offset = 64;
    p.is_packed = 1;
    p.split.fixed = 1;
    p.dtype = p.kv_dtype = FIG_F16;
    p.head_dim = 64;
    expect(&p, 90, "many", "fig_kernel_attention_many_f16_64");
    p.flags = FIG_ATTENTION_DENSE;
    p.page_size = 7;
    expect(&p, 90, "many", "fig_kernel_attention_many_f16_64");
    p.page_size = usual.page_size;
    p.flags = 0;
    p.heads_per_worker = 2;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p.heads_per_worker = 1;
    static const float slopes[32] = {0};
    p.alibi = slopes;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_f16_64_1");
    p.alibi = NULL;
    p.q_strides.row += 1;
    expect(&p, 90, "scalar", "fig_kernel_attention");
    p.q_strides.row += 1;
    expect(&p, 90, "many", "fig_kernel_attention_many_f16_64");
    p.q_strides.row -= 2;
    p.out_strides.head += 1;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_f16_64_1");
    p.out_strides.head -= 1;
    p.kv_dtype = FIG_E4M3;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_e4m3_64");
    p.kv_dtype = FIG_F16;
    p.page_size = 8;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_f16_64");
}

/* Before binding, addresses and strides are 0; families must accept that. */
static void launches_are_served_before_anything_is_bound(void **state) {
    (void)state;
    fig_attention_params p = common();
    memset(&p.k_cache_strides, 0, sizeof p.k_cache_strides);
    memset(&p.v_cache_strides, 0, sizeof p.v_cache_strides);
    memset(&p.q_strides, 0, sizeof p.q_strides);
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_128_4");
}

static void warps_are_eight_at_most_and_shared_memory_the_machine_s(void **state) {
    (void)state;
    static const int32_t dims[] = {64, 80, 96, 128, 256};
    static const int32_t dtypes[] = {FIG_BF16, FIG_E4M3};
    int served = 0;
    for (int n = 0; n < 5 * 2 * 8 * 16 * 16; n++) {
        const int32_t ratio = n / 80 % 16 + 1, queries = n / 1280 + 1;
        fig_attention_params p = common();
        p.head_dim = dims[n % 5];
        p.kv_dtype = dtypes[n / 5 % 2];
        p.heads_per_worker = n / 10 % 8 + 1;
        p.split.row_tokens = queries;
        p.q_heads = p.kv_heads * ratio;
        for (int i = 0; i < 3; i++) {
            const int32_t limit = (const int32_t[]){H200_BYTES, A100_BYTES, L40_BYTES}[i];
            const fig_family_choice choice = choose_within(&p, i == 0 ? 90 : 80, limit);
            if (fig_families_of(FIG_OP_ATTENTION, choice.family + 1) == NULL) continue;
            assert_in_range(choice.shape.block[0], 64, 12 * 32);
            assert_in_range(choice.shape.shared_bytes, 1, limit);
            assert_true(p.heads_per_worker * ((ratio * queries + 7) / 8) <=
                        (choice.shape.block[0] == 12 * 32 ? 16 : 8));
            served++;
        }
    }
    assert_true(served > 1000);
}

/* Besides the reading warps, a block has two filling warps if TMA boxes fill the slots, and four if
 * copies do. */
static void warps_that_share_a_head_are_four_two_or_one(void **state) {
    (void)state;
    static const struct {
        int32_t heads, readers;
    } rows[] = {{1, 4}, {2, 8}, {3, 6}, {4, 8}, {5, 5}, {8, 8}};
    fig_attention_params p = common();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        p.heads_per_worker = rows[i].heads;
        assert_int_equal(choose(&p, 90).shape.block[0], 32 * (rows[i].readers + 2));
        assert_int_equal(choose(&p, 80).shape.block[0], 32 * (rows[i].readers + 4));
    }
}

/* A slot has 64 tokens of K and of V; a token takes 256 bytes and 16 bytes of padding. */
static void a_ring_has_as_many_slots_as_the_machine_s_blocks_have_room_for(void **state) {
    (void)state;
    fig_attention_params p = common();
    const uint32_t slot = 2 * 64 * (256 + 16);
    const uint32_t few = choose_within(&p, 80, L40_BYTES).shape.shared_bytes;
    const uint32_t many = choose_within(&p, 80, A100_BYTES).shape.shared_bytes;
    const uint32_t most = choose_within(&p, 80, H200_BYTES).shape.shared_bytes;
    assert_in_range(few, L40_BYTES - slot, L40_BYTES);
    assert_int_equal(many, few + 2 * slot);
    assert_int_equal(most, few + 3 * slot);
    assert_string_equal(choose_within(&p, 80, (int32_t)slot).refusals[6],
                        "shared memory for a slot");
}

/* A box has 16 tokens of all heads that a worker reads at once. */
static void a_map_has_a_box_of_whole_columns(void **state) {
    (void)state;
    fig_attention_params p = common();
    fig_tensor_map_recipe recipe;
    p.heads_per_worker = 2;
    p.k_pages = 7;
    p.v_pages = 9;
    fig_families_of(FIG_OP_ATTENTION, choose(&p, 90).family)->map(&p, FIG_ATTENTION_V_MAP, &recipe);
    const uint64_t dims[] = {64, 16, 2, 8, 9}, strides[] = {2, 2048, 128, 256, 32768};
    const uint32_t box[] = {64, 16, 2, 2, 1};
    assert_int_equal(recipe.rank, 5);
    assert_memory_equal(recipe.dims, dims, sizeof dims);
    assert_memory_equal(recipe.strides_bytes, strides, sizeof strides);
    assert_memory_equal(recipe.box, box, sizeof box);
    assert_int_equal(recipe.swizzle_bytes, 128);
}

/* The columns of a strip lie apart, so a box has one. */
static void a_map_for_warpgroups_has_a_box_of_one_column(void **state) {
    (void)state;
    fig_attention_params p = common();
    p.split.row_tokens = 8;
    fig_tensor_map_recipe recipe;
    fig_families_of(FIG_OP_ATTENTION, choose(&p, 90).family)->map(&p, FIG_ATTENTION_K_MAP, &recipe);
    assert_int_equal(recipe.box[2], 1);
    assert_int_equal(recipe.dims[2], 2);
}

/* A token of 192 bytes is divided into three columns of 64 bytes. */
static void a_map_has_narrow_columns_where_a_token_needs_them(void **state) {
    (void)state;
    fig_attention_params p = common();
    fig_tensor_map_recipe recipe;
    p.head_dim = 96;
    p.k_pages = p.v_pages = 7;
    p.k_cache_strides.head = p.v_cache_strides.head = 96;
    expect(&p, 90, "bulk", "fig_kernel_attention_bulk_bf16_96_4");
    fig_families_of(FIG_OP_ATTENTION, choose(&p, 90).family)->map(&p, FIG_ATTENTION_V_MAP, &recipe);
    const uint64_t dims[] = {32, 16, 3, 8, 7}, strides[] = {2, 2048, 64, 192, 32768};
    const uint32_t box[] = {32, 16, 3, 1, 1};
    assert_int_equal(recipe.rank, 5);
    assert_memory_equal(recipe.dims, dims, sizeof dims);
    assert_memory_equal(recipe.strides_bytes, strides, sizeof strides);
    assert_memory_equal(recipe.box, box, sizeof box);
    assert_int_equal(recipe.swizzle_bytes, 64);
    p.kv_dtype = FIG_E4M3;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_e4m3_96");
    p.head_dim = 64;
    expect(&p, 90, "copy", "fig_kernel_attention_copy_e4m3_64");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_and_the_places_of_tokens_choose),
        cmocka_unit_test(as_many_workers_for_each_head_of_a_row_are_a_cluster),
        cmocka_unit_test(rows_of_17_to_128_vectors_of_a_head_are_those_of_warpgroups),
        cmocka_unit_test(launches_are_served_before_anything_is_bound),
        cmocka_unit_test(rows_of_unequal_numbers_of_queries_keep_to_kernels_that_go_row_by_row),
        cmocka_unit_test(warps_are_eight_at_most_and_shared_memory_the_machine_s),
        cmocka_unit_test(warps_that_share_a_head_are_four_two_or_one),
        cmocka_unit_test(a_ring_has_as_many_slots_as_the_machine_s_blocks_have_room_for),
        cmocka_unit_test(a_map_has_a_box_of_whole_columns),
        cmocka_unit_test(a_map_for_warpgroups_has_a_box_of_one_column),
        cmocka_unit_test(a_map_has_narrow_columns_where_a_token_needs_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
