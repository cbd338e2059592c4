/* test_share.c: tests the spec of one rank out of several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_parallel.h"
#include "planner/spec/spec.h"
#include "tests/support/files/sample.h"

static fig_spec preset(const char *name) {
    fig_spec spec = {.size = sizeof spec};
    if (fig_spec_preset(&spec, name) != FIG_OK) fail_msg("%s", fig_message());
    return spec;
}

static fig_spec share_of(const fig_spec *model, int32_t ranks) {
    fig_spec share = {.size = sizeof share};
    if (fig_spec_rank(&share, model, ranks) != FIG_OK) fail_msg("%s", fig_message());
    return share;
}

static void heads_and_columns_are_divided_and_nothing_else(void **state) {
    (void)state;
    const fig_spec model = preset("llama-3.1-70b");
    fig_spec whole;
    assert_int_equal(fig_spec_resolve(&model, &whole), FIG_OK);
    for (int32_t ranks = 1; ranks <= 8; ranks *= 2) {
        fig_spec share = share_of(&model, ranks);
        assert_int_equal(share.q_heads * ranks, whole.q_heads);
        assert_int_equal(share.kv_heads * ranks, whole.kv_heads);
        assert_int_equal(share.ffn_width * ranks, whole.ffn_width);
        share.q_heads = whole.q_heads;
        share.kv_heads = whole.kv_heads;
        share.ffn_width = whole.ffn_width;
        assert_memory_equal(&share, &whole, sizeof whole);
    }
}

static void fewer_kv_heads_than_ranks_are_each_on_several(void **state) {
    (void)state;
    const fig_spec model = preset("llama-3.1-70b"); /* 64 q heads and 8 kv heads */
    const fig_spec share = share_of(&model, 32);
    assert_int_equal(share.q_heads, 2);
    assert_int_equal(share.kv_heads, 1);
    assert_int_equal(share.ffn_width, 28672 / 32);
}

static void a_spec_without_heads_or_without_columns_is_divided_too(void **state) {
    (void)state;
    const fig_spec columns = {.size = sizeof columns, .dtype = FIG_F16, .ffn_width = 64};
    assert_int_equal(share_of(&columns, 4).ffn_width, 16);
    fig_spec heads = fig_sample_spec();
    heads.ffn_width = 0;
    assert_int_equal(share_of(&heads, 4).q_heads, 2);
    assert_int_equal(share_of(&heads, 4).ffn_width, 0);
}

#define REFUSES(spec, ranks, part)                                                                 \
    FIG_SAMPLE_REFUSES(fig_spec_rank(&share, spec, ranks), FIG_INVALID, part)

static void an_indivisible_field_is_refused_by_name_value_and_limit(void **state) {
    (void)state;
    /* The sample has 8 q heads, 2 kv heads and width 32. */
    fig_spec share = {.size = sizeof share}, model = fig_sample_spec();
    REFUSES(&model, 3, "q_heads is 8, it must be a multiple of ranks, 3");
    model.q_heads = model.kv_heads = 6;
    REFUSES(&model, 4, "q_heads is 6, it must be a multiple of ranks, 4");
    model.q_heads = 12;
    model.kv_heads = 6;
    REFUSES(&model, 4, "kv_heads is 6, it must be a multiple of ranks, 4");
    model.q_heads = 24;
    REFUSES(&model, 8, "kv_heads is 6, and ranks, 8, must be a multiple of it");
    model = fig_sample_spec();
    model.ffn_width = 40;
    REFUSES(&model, 2, "of one of 2 ranks: spec: ffn_width is 20, it must be a multiple of 8");
    model.ffn_width = 72;
    model.q_heads = model.kv_heads = 16;
    REFUSES(&model, 16, "ffn_width is 72, it must be a multiple of ranks, 16");
    REFUSES(&model, 0, "ranks is 0, limits 1 to 256");
    REFUSES(&model, 257, "ranks is 257, limits 1 to 256");
    REFUSES(&model, -1, "ranks is -1");
    model.head_dim = 65;
    REFUSES(&model, 2, "head_dim is 65");
}

static void a_refusal_leaves_no_share(void **state) {
    (void)state;
    fig_spec share, zero = {.size = sizeof zero}, model = fig_sample_spec();
    memset(&share, 0xee, sizeof share);
    share.size = sizeof share;
    REFUSES(&model, 3, "q_heads");
    zero.size = share.size;
    assert_memory_equal(&share, &zero, sizeof share);
}

/* Every rank has the whole cache. */
static void a_rank_has_its_heads_of_a_latent_and_its_part_of_dense_layers(void **state) {
    (void)state;
    const fig_spec model = preset("deepseek-v3");
    const fig_spec share = share_of(&model, 8);
    fig_spec refused = {.size = sizeof refused};
    assert_int_equal(share.q_heads, 16);
    assert_int_equal(share.kv_heads, 1);
    assert_int_equal(share.latent_dim, 512);
    assert_int_equal(share.dense_width, 18432 / 8);
    assert_int_equal(fig_spec_rank(&refused, &model, 32), FIG_INVALID);
    assert_non_null(strstr(fig_message(), "q_heads is 4, it must be a multiple of 8"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_and_columns_are_divided_and_nothing_else),
        cmocka_unit_test(fewer_kv_heads_than_ranks_are_each_on_several),
        cmocka_unit_test(a_spec_without_heads_or_without_columns_is_divided_too),
        cmocka_unit_test(an_indivisible_field_is_refused_by_name_value_and_limit),
        cmocka_unit_test(a_refusal_leaves_no_share),
        cmocka_unit_test(a_rank_has_its_heads_of_a_latent_and_its_part_of_dense_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
