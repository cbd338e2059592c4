/* test_places.c: tests how much of a tensor fits memory that is smaller than its dims. The answer
 * must be exact: one more token or column would lie past the end or in the next sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/bind/places.h"
#include "tests/support/random.h"

enum { TOKENS = 64, CASES = 20000, DIM = 8 };

static fig_tensor_record cache_record(int64_t heads, uint8_t layout) {
    return (fig_tensor_record){.dtype = FIG_F16,
                               .rank = 4,
                               .symbol = FIG_SYMBOL_PAGES,
                               .layout = layout,
                               .dims = {1, TOKENS, heads, DIM}};
}

/* Returns 1 if a cache with this many tokens per row fits. */
static int fits(fig_tensor_record record, const fig_binding *binding, int64_t rows,
                int64_t tokens) {
    fig_bound_place place;
    record.dims[1] = tokens;
    const fig_places_wish wish = {
        .record = &record, .name = "k", .binding = binding, .rows = rows, .pages_least = rows};
    return fig_places_measure(&wish, &place) == FIG_OK;
}

static int64_t tokens_of(const fig_tensor_record *record, const fig_binding *binding,
                         int64_t rows) {
    const fig_places_wish wish = {.record = record, .name = "k", .binding = binding, .rows = rows};
    return fig_places_dense_tokens(&wish);
}

/* Tries every count to show that no larger count fits. The strides are those of a longer cache. */
static void a_dense_cache_holds_as_many_tokens_as_fit(void **state) {
    (void)state;
    for (uint64_t n = 0; n < CASES; n++) {
        fig_random random = fig_random_seed(n);
        const int64_t rows = fig_random_range(&random, 1, 4);
        const int64_t heads = fig_random_range(&random, 1, 3);
        const int64_t there = fig_random_range(&random, 1, TOKENS);
        const int32_t order = fig_random_range(&random, 0, 2);
        const fig_tensor_record record = cache_record(heads, FIG_NHD);
        static uint16_t memory[1];
        fig_binding binding = {.size = sizeof binding, .address = memory};
        binding.bytes = 2 * (uint64_t)fig_random_range(&random, 0, 6000);
        const int64_t gap = fig_random_range(&random, 0, 3);
        /* [tokens][heads] or [heads][tokens], within each sequence */
        const int64_t inner = DIM + gap;
        binding.strides[3] = 1;
        binding.strides[2] = order == 0 ? inner : order == 1 ? there * inner : inner;
        binding.strides[1] = order == 0 ? heads * inner : order == 1 ? inner : rows * heads * inner;
        binding.strides[0] = order == 2 ? heads * inner : there * heads * inner;
        if (rows == 1) binding.strides[0] = 1 << 20; /* there is no next sequence */
        const int64_t tokens = tokens_of(&record, &binding, rows);
        int64_t most = 0;
        for (int64_t count = 1; count <= TOKENS; count++)
            if (fits(record, &binding, rows, count)) most = count;
        if (tokens != most)
            fail_msg("case %llu: %lld tokens, %lld fit", (unsigned long long)n, (long long)tokens,
                     (long long)most);
    }
}

static void back_to_back_sequences_share_the_bytes(void **state) {
    (void)state;
    const fig_tensor_record record = cache_record(2, FIG_HND);
    fig_binding binding = {.size = sizeof binding, .bytes = 2 * 3 * 2 * DIM * 10};
    assert_int_equal(tokens_of(&record, &binding, 3), 10);
    assert_int_equal(tokens_of(&record, &binding, 1), 30);
    binding.bytes--;
    assert_int_equal(tokens_of(&record, &binding, 3), 9);
    binding.bytes = UINT64_MAX;
    assert_int_equal(tokens_of(&record, &binding, 3), TOKENS);
    binding.bytes = 0;
    assert_int_equal(tokens_of(&record, &binding, 3), 0);
}

static void strides_that_no_memory_has_hold_nothing(void **state) {
    (void)state;
    const fig_tensor_record record = cache_record(2, FIG_NHD);
    fig_binding binding = {.size = sizeof binding, .bytes = 1 << 20};
    memcpy(binding.strides, (int64_t[4]){INT64_MAX, 16, 8, 1}, sizeof binding.strides);
    assert_int_equal(tokens_of(&record, &binding, 2), 0);
    assert_int_equal(tokens_of(&record, &binding, 1), TOKENS);
    memcpy(binding.strides, (int64_t[4]){INT64_MIN, 16, -8, 1}, sizeof binding.strides);
    assert_int_equal(tokens_of(&record, &binding, 2), 0);
}

static int64_t columns_of(int64_t rows, uint64_t bytes, int64_t stride) {
    const fig_tensor_record record = {.dtype = FIG_I32, .rank = 2, .dims = {9, 20}};
    const fig_binding binding = {
        .size = sizeof binding, .bytes = bytes, .strides = {stride, stride != 0}};
    const fig_places_wish wish = {.record = &record, .binding = &binding, .rows = rows};
    return fig_places_table_columns(&wish);
}

static void a_table_has_as_many_columns_as_fit(void **state) {
    (void)state;
    assert_int_equal(columns_of(3, 4 * 3 * 7, 0), 7);
    assert_int_equal(columns_of(3, 4 * 3 * 7 - 1, 0), 6);
    assert_int_equal(columns_of(3, 4 * 9 * 20, 0), 20);
    assert_int_equal(columns_of(3, 4 * (2 * 11 + 5), 11), 5);
    assert_int_equal(columns_of(3, 4 * 100, 11), 11);
    assert_int_equal(columns_of(1, 4 * 100, 11), 20);
    assert_int_equal(columns_of(3, 4 * 22, 11), 0);
    assert_int_equal(columns_of(2, 4 * 100, INT64_MAX), 0);
}

/* Views of numpy and torch have such strides: cache[:, :, None], rows[None]. */
static void the_stride_of_a_single_index_may_be_any(void **state) {
    (void)state;
    static const int64_t any[] = {0, 1, 3, -5, INT64_MAX};
    const fig_tensor_record rows = {
        .dtype = FIG_F16, .rank = 3, .symbol = FIG_SYMBOL_BATCH, .dims = {1, 1, DIM, 1}};
    const fig_tensor_record caches[] = {cache_record(1, FIG_NHD), cache_record(1, FIG_HND)};
    static uint16_t memory[3 * TOKENS * DIM];
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        fig_binding binding = {.size = sizeof binding, .address = memory, .bytes = sizeof memory};
        fig_places_wish wish = {.record = &rows, .name = "q", .binding = &binding, .rows = 1};
        fig_bound_place place;
        memcpy(binding.strides, (int64_t[4]){any[i], any[i], 1}, sizeof binding.strides);
        assert_int_equal(fig_places_measure(&wish, &place), FIG_OK);
        assert_memory_equal(place.strides, ((int64_t[3]){DIM, DIM, 1}), 3 * sizeof(int64_t));
        for (int c = 0; c < 2; c++) {
            wish.record = &caches[c];
            memcpy(binding.strides, (int64_t[4]){TOKENS * DIM, DIM, any[i], 1},
                   sizeof binding.strides);
            assert_int_equal(fig_places_measure(&wish, &place), FIG_OK);
            assert_int_equal(place.extent, 3);
            assert_int_equal(place.strides[2], c == 0 ? DIM : TOKENS * DIM);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stride_of_a_single_index_may_be_any),
        cmocka_unit_test(a_dense_cache_holds_as_many_tokens_as_fit),
        cmocka_unit_test(back_to_back_sequences_share_the_bytes),
        cmocka_unit_test(strides_that_no_memory_has_hold_nothing),
        cmocka_unit_test(a_table_has_as_many_columns_as_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
