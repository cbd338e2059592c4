/* test_latent_attention.c: compares split attention over a latent cache with float64, for random
 * shapes, for each number of heads, and for long rows, and tests which family serves a launch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/latent/latent.h"
#include "kernels/latent/latent_narrow.h"
#include "kernels/latent/latent_wide.h"
#include "kernels/table/families.h"
#include "kernels/table/reference_kernels.h"
#include "tests/support/kernels/latent_case.h"
#include "tests/support/place.h"

enum { ALL = 1 << 20, SOME = 12, ROWS = 5, LONG = 40000 };

static uint64_t seed;
static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};

static fig_random try_form(const fig_latent_form *form, fig_random random, int32_t most) {
    fig_latent_case c;
    fig_latent_case_open(&c, form, random);
    fig_latent_case_run(&c, &c.random);
    fig_latent_case_check(&c, most);
    random = c.random;
    fig_latent_case_close(&c);
    return random;
}

static void split_attention_over_latents_equals_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(60); n++) {
        fig_random random = fig_random_seed(seed + n);
        const fig_latent_form form = fig_latent_form_draw(&random, seed + n);
        try_form(&form, random, SOME);
    }
}

/* Runs the cases under each of the flags that decide which blocks may wait for others. The second
 * run of a case uses the workspace as the first run left it. */
static void launches_on_warpgroups_equal_float64(void **state) {
    (void)state;
    static const uint32_t rules[] = {0, FIG_ATTENTION_IN_ORDER, FIG_ATTENTION_APART,
                                     FIG_ATTENTION_EARLY};
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(48); n++) {
        fig_random random = fig_random_seed(seed + 7000 + n);
        const fig_latent_form form = fig_latent_form_draw_wide(&random, seed + n);
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        c.params.flags = rules[n % 4];
        fig_latent_case_run(&c, &c.random);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_run(&c, NULL);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_close(&c);
    }
}

/* Kernels take weights relative to a reference that is not the greatest logit. Here, many logits
 * are so far above the first ones that references must rise. */
static void logits_far_above_the_first_ones_equal_float64(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(16); n++) {
        fig_random random = fig_random_seed(seed + 8000 + n);
        fig_latent_form form = fig_latent_form_draw_wide(&random, seed + n);
        form.dtype = form.kv_dtype = n % 2 ? FIG_BF16 : FIG_F16;
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        c.params.sm_scale *= 100;
        fig_latent_case_run(&c, NULL);
        fig_latent_case_check(&c, SOME);
        fig_latent_case_close(&c);
    }
}

/* Draws a cell of heads x query tokens x pages x length whose work takes the host less than a
 * second. */
static fig_latent_form draw_cell(fig_random *random, int32_t number) {
    static const int32_t heads[] = {8, 16, 32, 64, 128}, tokens[] = {1, 4, 16},
                         pages[] = {1, 16, 64};
    static const int32_t lengths[] = {1, 63, 64, 65, 700, 5000, LONG};
    const int32_t count = sizeof lengths / sizeof lengths[0];
    fig_latent_form form = {.seed = seed + (uint64_t)number,
                            .dtype = dtypes[fig_random_range(random, 0, 2)],
                            .q_heads = heads[number % 5],
                            .page_size = pages[number / 5 % 3],
                            .tile_tokens = 64,
                            .workers = fig_random_range(random, 1, 20),
                            .row_limit = ROWS,
                            .rows = ROWS,
                            .row_tokens = tokens[number % 3],
                            .sinks = fig_random_range(random, 0, 1),
                            .contents = {0, 1, 2, 3, 4}};
    form.kv_dtype = form.dtype != FIG_F32 && fig_random_range(random, 0, 1) ? FIG_E4M3 : form.dtype;
    int32_t longest = lengths[fig_random_range(random, 0, count - 1)];
    while (longest > 64 && longest * form.q_heads * form.row_tokens > 150000)
        longest /= 2;
    longest = longest < form.row_tokens ? form.row_tokens : longest;
    form.length_limit = longest;
    form.lengths[fig_random_range(random, 0, ROWS - 1)] = longest;
    for (int32_t r = 0; r < ROWS; r++)
        if (form.lengths[r] == 0 && fig_random_range(random, 0, 2) > 0)
            form.lengths[r] =
                fig_random_range(random, form.row_tokens, longest < 200 ? longest : 200);
    return form;
}

static void every_number_of_heads_tokens_and_pages_agrees(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 1000);
    for (int32_t number = 0; number < fig_place_cases(45); number++) {
        const fig_latent_form form = draw_cell(&random, number);
        random = try_form(&form, random, SOME);
    }
}

static void a_row_of_forty_thousand_tokens_agrees(void **state) {
    (void)state;
    static const int32_t kinds[] = {FIG_BF16, FIG_E4M3};
    for (int32_t i = 0; i < 2; i++) {
        const fig_latent_form form = {.seed = seed,
                                      .dtype = FIG_BF16,
                                      .kv_dtype = kinds[i],
                                      .q_heads = 16,
                                      .page_size = 64,
                                      .tile_tokens = 64,
                                      .workers = 7,
                                      .row_limit = 2,
                                      .rows = 2,
                                      .row_tokens = 1,
                                      .length_limit = LONG,
                                      .lengths = {LONG, 3},
                                      .contents = {0, 1}};
        try_form(&form, fig_random_seed(seed + 1500 + (uint64_t)i), 4);
    }
}

/* Returns vector [query][head] number n of a row of out. */
static const uint8_t *vector_of(const fig_latent_case *c, int32_t row, int32_t n) {
    const int32_t heads = c->form.q_heads;
    return (const uint8_t *)c->out.data +
           fig_latent_case_out(c, row, n / heads, n % heads) * fig_numeric_bytes(c->form.dtype);
}

static void freeze(fig_latent_case *c) {
    fig_reference_array_keep(&c->out);
    fig_reference_array_keep(&c->lse);
    memset(c->out.free, 0, (size_t)c->out.count);
    memset(c->lse.free, 0, (size_t)c->lse.count);
}

/* Each run uses the workspace as the run before it left it. */
static void the_order_of_blocks_changes_no_bit(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(12); n++) {
        fig_random random = fig_random_seed(seed + 2000 + n);
        fig_latent_form form = fig_latent_form_draw(&random, seed);
        form.workers = fig_random_range(&random, 8, 40);
        fig_latent_case c;
        fig_latent_case_open(&c, &form, random);
        fig_latent_case_run(&c, NULL);
        freeze(&c);
        for (int i = 0; i < 3; i++)
            fig_latent_case_run(&c, &c.random);
        fig_latent_case_close(&c);
    }
}

/* In a fixed split, a row has the same bits alone and among other rows. */
static void a_fixed_split_s_bits_depend_on_the_row_alone(void **state) {
    (void)state;
    fig_latent_form alone = {.seed = seed,
                             .dtype = FIG_BF16,
                             .kv_dtype = FIG_BF16,
                             .q_heads = 16,
                             .page_size = 16,
                             .tile_tokens = 64,
                             .workers = 3,
                             .row_limit = 1,
                             .rows = 1,
                             .row_tokens = 1,
                             .fixed = 1,
                             .length_limit = 500,
                             .lengths = {450},
                             .contents = {7}};
    fig_latent_form among = alone;
    among.workers = 9;
    among.row_limit = among.rows = 4;
    const int32_t lengths[] = {10, 450, 0, 333}, contents[] = {1, 7, 2, 3};
    memcpy(among.lengths, lengths, sizeof lengths);
    memcpy(among.contents, contents, sizeof contents);
    fig_latent_case a, b;
    fig_latent_case_open(&a, &alone, fig_random_seed(seed + 3000));
    fig_latent_case_open(&b, &among, fig_random_seed(seed + 3001));
    fig_latent_case_run(&a, NULL);
    fig_latent_case_run(&b, NULL);
    for (int32_t head = 0; head < alone.q_heads; head++) {
        const uint16_t *one = (const uint16_t *)a.out.data + fig_latent_case_out(&a, 0, 0, head);
        const uint16_t *other = (const uint16_t *)b.out.data + fig_latent_case_out(&b, 1, 0, head);
        assert_memory_equal(one, other, FIG_LATENT_DIM * sizeof *one);
    }
    fig_latent_case_close(&a);
    fig_latent_case_close(&b);
}

static void idle_rows_get_zeros_and_minus_infinity_whoever_works(void **state) {
    (void)state;
    for (int32_t workers = 1; workers <= 6; workers++) {
        fig_latent_form form = {.seed = seed,
                                .dtype = dtypes[workers % 3],
                                .kv_dtype = dtypes[workers % 3],
                                .q_heads = 8,
                                .page_size = 16,
                                .tile_tokens = 16,
                                .workers = workers,
                                .row_limit = ROWS,
                                .rows = ROWS - 1,
                                .row_tokens = 1 + workers % 3,
                                .sinks = workers % 2,
                                .length_limit = 40,
                                .contents = {0, 1, 2, 3, 4}};
        for (int32_t busy = -1; busy < form.rows; busy++) { /* at -1 every row is idle */
            memset(form.lengths, 0, sizeof form.lengths);
            if (busy >= 0) form.lengths[busy] = 40;
            try_form(&form, fig_random_seed(seed + 4000 + (uint64_t)workers), ALL);
        }
    }
}

/* If a fetch finds no plan, the plan's head has 0 rows, and the sections of the old plan remain
 * behind it. */
static void no_rows_over_a_stale_plan_do_nothing(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 5000);
    fig_latent_form form = fig_latent_form_draw(&random, seed);
    form.counted = 0;
    form.rows = form.row_limit;
    form.lengths[0] = 50;
    fig_latent_case c;
    fig_latent_case_open(&c, &form, random);
    memset(c.plan, 0, sizeof(fig_plan_head));
    freeze(&c);
    fig_latent_case_run(&c, &c.random);
    fig_latent_case_close(&c);
}

static void without_lse_out_is_the_same(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed + 6000);
    fig_latent_form form = fig_latent_form_draw(&random, seed);
    fig_latent_case c;
    fig_latent_case_open(&c, &form, random);
    fig_latent_case_run(&c, NULL);
    freeze(&c);
    c.params.lse = NULL;
    fig_latent_case_run(&c, NULL);
    fig_latent_case_close(&c);
}

/* One run has q in one tensor. The others have the same q in two, and the same split. */
static void q_in_two_tensors_gives_the_bits_of_one(void **state) {
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)fig_place_cases(24); n++) {
        fig_random random = fig_random_seed(seed + 9000 + n);
        fig_latent_form form = n % 2 ? fig_latent_form_draw(&random, seed + n)
                                     : fig_latent_form_draw_wide(&random, seed + n);
        const size_t bytes = FIG_LATENT_DIM * (size_t)fig_numeric_bytes(form.dtype);
        fig_latent_case one, two;
        form.outside = 0; /* each case draws its pages */
        form.apart = 0;
        fig_latent_case_open(&one, &form, random);
        fig_latent_case_run(&one, NULL);
        for (form.apart = 1; form.apart <= 2; form.apart++) {
            fig_latent_case_open(&two, &form, random);
            fig_latent_case_run(&two, NULL);
            for (int32_t row = 0; row < form.rows; row++)
                for (int32_t i = 0; i < fig_latent_form_queries(&form, row).count * form.q_heads;
                     i++)
                    assert_memory_equal(vector_of(&one, row, i), vector_of(&two, row, i), bytes);
            fig_latent_case_close(&two);
        }
        fig_latent_case_close(&one);
    }
}

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

/* Each group of each row of the bucket has a cluster. If the workers do not divide into clusters of a
 * known size, or if a machine may not hold such clusters, the kernel for lines serves. */
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

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_attention_over_latents_equals_float64),
        cmocka_unit_test(launches_on_warpgroups_equal_float64),
        cmocka_unit_test(logits_far_above_the_first_ones_equal_float64),
        cmocka_unit_test(every_number_of_heads_tokens_and_pages_agrees),
        cmocka_unit_test(a_row_of_forty_thousand_tokens_agrees),
        cmocka_unit_test(the_order_of_blocks_changes_no_bit),
        cmocka_unit_test(a_fixed_split_s_bits_depend_on_the_row_alone),
        cmocka_unit_test(idle_rows_get_zeros_and_minus_infinity_whoever_works),
        cmocka_unit_test(no_rows_over_a_stale_plan_do_nothing),
        cmocka_unit_test(without_lse_out_is_the_same),
        cmocka_unit_test(q_in_two_tensors_gives_the_bits_of_one),
        cmocka_unit_test(groups_hold_at_most_64_vectors),
        cmocka_unit_test(the_smallest_groups_divide_the_largest),
        cmocka_unit_test(groups_of_two_blocks_are_twice_as_large),
        cmocka_unit_test(a_short_row_has_the_largest_cluster_that_fits),
        cmocka_unit_test(warpgroups_serve_caches_of_q_s_dtype_on_hopper),
        cmocka_unit_test(warpgroups_serve_codes_of_few_vectors_with_pages_of_any_size),
        cmocka_unit_test(warpgroups_leave_other_kinds_of_rows_to_plain_cores),
        cmocka_unit_test(warpgroups_need_whole_tiles_and_aligned_vectors),
        cmocka_unit_test(groups_of_at_most_32_vectors_have_a_kernel_of_their_own),
        cmocka_unit_test(clusters_serve_short_rows),
        cmocka_unit_test(two_blocks_serve_more_than_64_vectors),
        cmocka_unit_test(every_cut_of_a_run_has_its_kernel),
        cmocka_unit_test(few_vectors_need_all_of_a_block_s_shared_memory),
        cmocka_unit_test(boxes_of_the_cache_fit_pages_and_tiles),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
