/* test_service.c: tests the functions that return sizes, files and counters to a language's
 * package. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ffi/recipe.h"
#include "include/figraph_ffi.h"

static const fig_ffi_attention shape = {.size = sizeof shape,
                                        .dtype = FIG_BF16,
                                        .q_heads = 32,
                                        .kv_heads = 8,
                                        .head_dim = 128,
                                        .page_size = 16,
                                        .rows = 8,
                                        .kv_length = 2000};

static fig_ffi_scratch read_scratch(const fig_ffi_attention *of) {
    fig_ffi_scratch scratch = {.size = sizeof scratch};
    if (fig_ffi_read_scratch(of, &scratch) != FIG_OK) fail_msg("%s", fig_ffi_message());
    return scratch;
}

static void scratch_suffices_on_every_chip(void **state) {
    (void)state;
    const fig_ffi_scratch all = read_scratch(&shape);
    uint64_t most = 0;
    assert_true(all.least_bytes > 0 && all.least_bytes <= all.best_bytes);
    for (int32_t i = 0; fig_traits_name(i) != NULL; i++) {
        fig_traits traits = {.size = sizeof traits};
        fig_ffi_attention on = shape;
        on.traits = &traits;
        assert_int_equal(fig_traits_named(&traits, fig_traits_name(i)), FIG_OK);
        const fig_ffi_scratch one = read_scratch(&on);
        assert_true(one.best_bytes <= all.best_bytes);
        assert_true(one.least_bytes <= all.least_bytes);
        assert_true(one.plan_bytes <= all.plan_bytes);
        if (one.best_bytes > most) most = one.best_bytes;
    }
    assert_int_equal(most, all.best_bytes);
}

static void tokens_of_a_row_take_memory_and_an_append_takes_little(void **state) {
    (void)state;
    const fig_ffi_scratch one = read_scratch(&shape);
    fig_ffi_attention of = shape;
    of.row_tokens = 1;
    assert_int_equal(read_scratch(&of).best_bytes, one.best_bytes);
    of.row_tokens = 4;
    assert_true(read_scratch(&of).best_bytes > one.best_bytes);
    of = shape;
    of.deterministic = 1;
    assert_true(read_scratch(&of).best_bytes != one.best_bytes);
    of = shape;
    of.q_heads = 0;
    assert_true(read_scratch(&of).best_bytes < one.best_bytes / 16);
    of.rows = 100000; /* an append's plan has no split; a split would limit the number of rows */
    assert_true(read_scratch(&of).best_bytes >= 100000 * sizeof(int32_t));
}

/* Together, the rows of a call have at most 2^20 query tokens: fewer than 1024 rows of 4096. */
static void packed_rows_may_have_4096_query_tokens(void **state) {
    (void)state;
    fig_ffi_attention of = shape;
    of.packed = 1;
    of.rows = 4;
    of.kv_length = 4096;
    of.row_tokens = 16;
    const fig_ffi_scratch few = read_scratch(&of);
    of.row_tokens = 4096;
    assert_true(read_scratch(&of).plan_bytes > few.plan_bytes);
}

static void an_impossible_shape_is_refused(void **state) {
    (void)state;
    fig_ffi_scratch scratch = {.size = sizeof scratch, .best_bytes = 7};
    fig_ffi_attention wrong = shape;
    wrong.head_dim = 100;
    assert_int_equal(fig_ffi_read_scratch(&wrong, &scratch), FIG_INVALID);
    assert_int_equal(scratch.best_bytes, 0);
    wrong = shape;
    wrong.kv_heads = 0;
    assert_int_equal(fig_ffi_read_scratch(&wrong, &scratch), FIG_INVALID);
    wrong = shape;
    wrong.row_tokens = 17;
    assert_int_equal(fig_ffi_read_scratch(&wrong, &scratch), FIG_INVALID);
    wrong.packed = 1; /* packed rows may have more */
    wrong.row_tokens = 4097;
    assert_int_equal(fig_ffi_read_scratch(&wrong, &scratch), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "row_tokens is 4097, limits 0 to 4096"));
    wrong = shape;
    wrong.kv_length = -1;
    assert_int_equal(fig_ffi_read_scratch(&wrong, &scratch), FIG_INVALID);
}

/* Attention over a latent cache has one KV head, whose vectors are cut for groups of q heads. */
static void a_latent_cache_has_its_own_sizes(void **state) {
    (void)state;
    fig_ffi_scratch scratch = {.size = sizeof scratch};
    fig_ffi_attention of = shape;
    of.q_heads = 128;
    of.kv_heads = 1;
    of.head_dim = 576;
    of.latent_dim = 512;
    const fig_ffi_scratch all = read_scratch(&of);
    assert_true(all.plan_bytes > 0 && all.least_bytes <= all.best_bytes);
    of.kv_dtype = FIG_E4M3;
    read_scratch(&of);
    of.packed = 1;
    of.row_tokens = 4;
    assert_true(read_scratch(&of).best_bytes > all.best_bytes);
    of.latent_dim = 256;
    assert_int_equal(fig_ffi_read_scratch(&of, &scratch), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "latent_dim is 256, it must be 0 or 512"));
    of.latent_dim = 512;
    of.q_heads = 0;
    assert_int_equal(fig_ffi_read_scratch(&of, &scratch), FIG_UNSUPPORTED);
    assert_non_null(strstr(fig_ffi_message(), "q_heads is 0, it must be a multiple of 8"));
}

static void a_file_is_named_by_what_is_in_it(void **state) {
    (void)state;
    char path[] = "/tmp/test_service.XXXXXX", first[65], second[65];
    fig_ffi_scratch scratch = {.size = sizeof scratch};
    fig_graphs *graphs;
    const fig_recipe recipe = {.kind = FIG_RECIPE_ATTENTION,
                               .dtype = FIG_F16,
                               .kv_dtype = FIG_F16,
                               .q_heads = 8,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .kv_limit = 128,
                               .slots = 1u << FIG_SLOT_Q | 1u << FIG_SLOT_K_CACHE |
                                        1u << FIG_SLOT_V_CACHE | 1u << FIG_SLOT_OUT};
    assert_int_equal(fig_recipe_make(&recipe, &graphs), FIG_OK);
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(fig_graphs_save(graphs, path), FIG_OK);
    fig_graphs_destroy(graphs);
    assert_int_equal(fig_ffi_load(path, first), FIG_OK);
    assert_int_equal(fig_ffi_load(path, second), FIG_OK);
    assert_int_equal(strlen(first), 64);
    assert_string_equal(first, second);
    assert_int_equal(fig_ffi_read_program_scratch(first, 4, 100, &scratch), FIG_OK);
    assert_true(scratch.best_bytes > 0);
    unlink(path);
    assert_int_equal(fig_ffi_load(path, second), FIG_IO);
    assert_string_equal(second, "");
    first[0] = first[0] == '0' ? '1' : '0';
    assert_int_equal(fig_ffi_read_program_scratch(first, 4, 100, &scratch), FIG_ORDER);
    assert_int_equal(scratch.best_bytes, 0);
}

static void rope_is_looked_at_before_it_is_used(void **state) {
    (void)state;
    fig_rope_spec rope = {.rotary_dim = 64, .theta = 7};
    assert_int_equal(fig_ffi_check_rope(&rope, 64), FIG_OK);
    rope.rotary_dim = 65;
    assert_int_equal(fig_ffi_check_rope(&rope, 64), FIG_INVALID);
    assert_non_null(strstr(fig_ffi_message(), "rope: rotary_dim is 65"));
}

static void counts_fit_an_older_callers_struct(void **state) {
    (void)state;
    fig_ffi_counts counts = {.size = offsetof(fig_ffi_counts, missed), .missed = 77};
    assert_int_equal(fig_ffi_read_counts(&counts), FIG_OK);
    assert_int_equal(counts.missed, 77);
    counts.size = 0;
    assert_int_equal(fig_ffi_read_counts(&counts), FIG_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_suffices_on_every_chip),
        cmocka_unit_test(tokens_of_a_row_take_memory_and_an_append_takes_little),
        cmocka_unit_test(packed_rows_may_have_4096_query_tokens),
        cmocka_unit_test(an_impossible_shape_is_refused),
        cmocka_unit_test(a_latent_cache_has_its_own_sizes),
        cmocka_unit_test(a_file_is_named_by_what_is_in_it),
        cmocka_unit_test(rope_is_looked_at_before_it_is_used),
        cmocka_unit_test(counts_fit_an_older_callers_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
