/* test_recipe.c: tests the programs that are made from recipes. */
#include "ffi/recipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static fig_recipe attention(void) {
    return (fig_recipe){.kind = FIG_RECIPE_ATTENTION,
                        .dtype = FIG_F16,
                        .kv_dtype = FIG_E4M3,
                        .q_heads = 8,
                        .kv_heads = 4,
                        .head_dim = 64,
                        .layout = FIG_HND,
                        .kv_limit = 128,
                        .scales = 4,
                        .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_K_CACHE |
                                 1u << FIG_SLOT_V_CACHE | 1u << FIG_SLOT_OUT};
}

/* Compares the names of a recipe's tensors, in order. */
static void expect_tensors(const fig_recipe *recipe, const char *const *names) {
    fig_tensor_info info = {.size = sizeof info};
    fig_graphs *graphs;
    int32_t count = 0;
    if (fig_recipe_make(recipe, &graphs) != FIG_OK) fail_msg("%s", fig_message());
    for (; names[count] != NULL; count++) {
        assert_int_equal(fig_graphs_tensor(graphs, count, &info), FIG_OK);
        assert_string_equal(info.name, names[count]);
        assert_int_equal(info.role, FIG_ROLE_BOUND);
    }
    assert_int_equal(fig_graphs_tensor(graphs, count, &info), FIG_INVALID);
    fig_graphs_destroy(graphs);
}

static void tensors_are_in_the_order_of_slots(void **state) {
    (void)state;
    fig_recipe recipe = attention();
    expect_tensors(&recipe, (const char *[]){"q", "k_cache", "v_cache", "out", NULL});
    recipe.page_size = 16;
    recipe.slots |= 1u << FIG_SLOT_PAGE_TABLE | 1u << FIG_SLOT_LENGTHS | 1u << FIG_SLOT_LSE |
                    1u << FIG_SLOT_ALIBI | 1u << FIG_SLOT_SINKS | 1u << FIG_SLOT_K_SCALE |
                    1u << FIG_SLOT_V_SCALE;
    expect_tensors(&recipe,
                   (const char *[]){"q", "k_cache", "v_cache", "page_table", "lengths", "k_scale",
                                    "v_scale", "sinks", "alibi", "out", "lse", NULL});
    recipe = (fig_recipe){.kind = FIG_RECIPE_ROPE,
                          .dtype = FIG_BF16,
                          .index_dtype = FIG_I64,
                          .q_heads = 8,
                          .kv_heads = 2,
                          .head_dim = 96,
                          .segments = 5,
                          .positions = 100,
                          .rope = {.rotary_dim = 64},
                          .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_K | 1u << FIG_SLOT_INDPTR |
                                   1u << FIG_SLOT_OFFSETS | 1u << FIG_SLOT_COS_SIN |
                                   1u << FIG_SLOT_OUT | 1u << FIG_SLOT_K_OUT};
    expect_tensors(
        &recipe, (const char *[]){"q", "k", "indptr", "offsets", "cos_sin", "out", "k_out", NULL});
    recipe = (fig_recipe){.kind = FIG_RECIPE_LATENT_DECODE,
                          .dtype = FIG_BF16,
                          .kv_dtype = FIG_E4M3,
                          .q_heads = 16,
                          .kv_heads = 1,
                          .head_dim = 576,
                          .page_size = 16,
                          .kv_limit = 64,
                          .rope = {.rotary_dim = 64},
                          .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_LATENT | 1u << FIG_SLOT_NORM |
                                   1u << FIG_SLOT_LATENT_CACHE | 1u << FIG_SLOT_PAGE_TABLE |
                                   1u << FIG_SLOT_LENGTHS | 1u << FIG_SLOT_OUT};
    expect_tensors(&recipe, (const char *[]){"q", "latent", "norm", "cache", "page_table",
                                             "lengths", "out", NULL});
}

static void rows_have_as_many_tokens_as_the_recipe(void **state) {
    (void)state;
    for (int32_t tokens = 0; tokens <= 3; tokens++) {
        fig_recipe recipe = attention();
        fig_tensor_info info = {.size = sizeof info};
        fig_graphs *graphs;
        recipe.row_tokens = tokens;
        recipe.slots |= 1u << FIG_SLOT_LENGTHS;
        assert_int_equal(fig_recipe_tokens(&recipe), tokens > 1 ? tokens : 1);
        if (fig_recipe_make(&recipe, &graphs) != FIG_OK) fail_msg("%s", fig_message());
        for (int32_t i = 0; fig_graphs_tensor(graphs, i, &info) == FIG_OK; i++) {
            const int is_token = strcmp(info.name, "q") == 0 || strcmp(info.name, "out") == 0;
            if (is_token) assert_int_equal(info.multiple, tokens > 1 ? tokens : 1);
            if (strcmp(info.name, "lengths") == 0) assert_int_equal(info.multiple, 1);
        }
        fig_graphs_destroy(graphs);
    }
}

static void a_cache_has_its_layout_and_pages(void **state) {
    (void)state;
    fig_recipe recipe = attention();
    fig_tensor_info info = {.size = sizeof info};
    fig_graphs *graphs;
    recipe.page_size = 16;
    recipe.slots |= 1u << FIG_SLOT_PAGE_TABLE;
    assert_int_equal(fig_recipe_make(&recipe, &graphs), FIG_OK);
    assert_int_equal(fig_graphs_tensor(graphs, 1, &info), FIG_OK);
    assert_int_equal(info.layout, FIG_HND);
    assert_int_equal(info.dtype, FIG_E4M3);
    assert_int_equal(info.dims[0], FIG_DIM_PAGES);
    assert_int_equal(info.dims[1], 16);
    assert_int_equal(fig_graphs_tensor(graphs, 3, &info), FIG_OK);
    assert_int_equal(info.dims[1], 8); /* pages of 128 tokens */
    fig_graphs_destroy(graphs);
}

static void the_longest_sequences_leave_room_for_rows(void **state) {
    (void)state;
    fig_recipe recipe = attention();
    fig_graphs_info info = {.size = sizeof info};
    fig_graphs *graphs;
    recipe.kv_dtype = FIG_F16;
    recipe.scales = 0;
    recipe.kv_limit = 1 << 20;
    recipe.q_heads = recipe.kv_heads = 256;
    if (fig_recipe_make(&recipe, &graphs) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_read_info(graphs, &info), FIG_OK);
    assert_int_equal(info.spec->batch_limit, 64);
    fig_graphs_destroy(graphs);
    recipe =
        (fig_recipe){.kind = FIG_RECIPE_LATENT,
                     .dtype = FIG_BF16,
                     .kv_dtype = FIG_BF16,
                     .q_heads = 128,
                     .kv_heads = 1,
                     .head_dim = 576,
                     .kv_limit = 1 << 20,
                     .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_LATENT_CACHE | 1u << FIG_SLOT_OUT};
    if (fig_recipe_make(&recipe, &graphs) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_read_info(graphs, &info), FIG_OK);
    assert_int_equal(info.spec->batch_limit, 1024); /* 2^34 / 2^20 / (128 / 8) */
    fig_graphs_destroy(graphs);
}

static void tokens_are_rounded_to_powers_of_two(void **state) {
    (void)state;
    static const int64_t tokens[] = {0, 1, 2, 3, 400, 512, 513, 1 << 20};
    static const int32_t limits[] = {1, 1, 2, 4, 512, 512, 1024, 1 << 20};
    int32_t limit;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        int64_t room = tokens[i];
        assert_int_equal(fig_recipe_round_tokens(&room, 0, &limit), FIG_OK);
        assert_int_equal(limit, limits[i]);
        assert_int_equal(room, tokens[i]);
    }
}

static void
room_for_more_tokens_than_are_planned_is_no_fault_where_lengths_say_how_many(void **state) {
    (void)state;
    int64_t room = INT64_C(1) << 40;
    int32_t limit;
    assert_int_equal(fig_recipe_round_tokens(&room, 1, &limit), FIG_OK);
    assert_int_equal(limit, 1 << 20);
    assert_int_equal(room, 1 << 20);
    room = (1 << 20) + 1;
    assert_int_equal(fig_recipe_round_tokens(&room, 0, &limit), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "each sequence has 1048577 tokens, limit 1048576"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_in_the_order_of_slots),
        cmocka_unit_test(rows_have_as_many_tokens_as_the_recipe),
        cmocka_unit_test(a_cache_has_its_layout_and_pages),
        cmocka_unit_test(the_longest_sequences_leave_room_for_rows),
        cmocka_unit_test(tokens_are_rounded_to_powers_of_two),
        cmocka_unit_test(
            room_for_more_tokens_than_are_planned_is_no_fault_where_lengths_say_how_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
