/* test_recipe.c: the programs that recipes stand for. */
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

/* The names of a recipe's tensors, in their order. */
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
    assert_int_equal(fig_recipe_round_tokens(1 << 20, &recipe.kv_limit), FIG_OK);
    recipe.q_heads = recipe.kv_heads = 256;
    if (fig_recipe_make(&recipe, &graphs) != FIG_OK) fail_msg("%s", fig_message());
    assert_int_equal(fig_graphs_read_info(graphs, &info), FIG_OK);
    assert_int_equal(info.spec->batch_limit, 64);
    fig_graphs_destroy(graphs);
}

static void tokens_are_rounded_to_powers_of_two(void **state) {
    (void)state;
    static const int64_t tokens[] = {0, 1, 2, 3, 400, 512, 513, 1 << 20};
    static const int32_t limits[] = {1, 1, 2, 4, 512, 512, 1024, 1 << 20};
    int32_t limit;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        assert_int_equal(fig_recipe_round_tokens(tokens[i], &limit), FIG_OK);
        assert_int_equal(limit, limits[i]);
    }
    assert_int_equal(fig_recipe_round_tokens((1 << 20) + 1, &limit), FIG_TOO_LARGE);
    assert_non_null(strstr(fig_message(), "a sequence may have 1048577 tokens"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_in_the_order_of_slots),
        cmocka_unit_test(a_cache_has_its_layout_and_pages),
        cmocka_unit_test(the_longest_sequences_leave_room_for_rows),
        cmocka_unit_test(tokens_are_rounded_to_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
