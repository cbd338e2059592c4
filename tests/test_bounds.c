/* test_bounds.c: a bound is the maximum itself, found here by trying every step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "planner/bounds.h"
#include "tests/support/random.h"

enum { ROWS_MOST = 4, KV_MOST = 7, TOKENS_MOST = ROWS_MOST * KV_MOST };

static int32_t count_tiles(int32_t length, int32_t tile_tokens) {
    int32_t tiles = 0;
    for (int32_t token = 0; token < length; token += tile_tokens)
        tiles++;
    return tiles;
}

/* most[tokens]: the most tiles of a step with so many rows and exactly so many tokens; -1: there is
 * no such step. */
static void try_every_step(int32_t rows, int32_t kv_limit, int32_t tile_tokens,
                           int32_t most[TOKENS_MOST + 1]) {
    int32_t lengths[ROWS_MOST] = {0};
    for (int32_t i = 0; i <= TOKENS_MOST; i++)
        most[i] = -1;
    for (;;) {
        int32_t tokens = 0, tiles = 0, row = 0;
        for (int32_t i = 0; i < rows; i++) {
            tokens += lengths[i];
            tiles += count_tiles(lengths[i], tile_tokens);
        }
        if (tiles > most[tokens]) most[tokens] = tiles;
        while (row < rows && lengths[row] == kv_limit)
            lengths[row++] = 0;
        if (row == rows) return;
        lengths[row]++;
    }
}

static void no_step_of_a_small_shape_has_more_tiles_and_one_has_as_many(void **state) {
    (void)state;
    int32_t most[TOKENS_MOST + 1];
    for (int32_t rows = 1; rows <= ROWS_MOST; rows++) {
        for (int32_t kv_limit = 1; kv_limit <= KV_MOST; kv_limit++) {
            for (int32_t tile = 1; tile <= KV_MOST + 1; tile++) {
                try_every_step(rows, kv_limit, tile, most);
                int32_t expected = 0;
                for (int32_t tokens = 0; tokens <= TOKENS_MOST; tokens++) {
                    if (most[tokens] > expected) expected = most[tokens];
                    int64_t bound = fig_bounds_tiles(rows, tokens, kv_limit, tile);
                    if (bound != expected)
                        fail_msg("%d rows, %d tokens, kv_limit %d, tile %d: bound %lld, most %d",
                                 rows, tokens, kv_limit, tile, (long long)bound, expected);
                }
            }
        }
    }
}

static void nothing_needs_no_tiles(void **state) {
    (void)state;
    assert_int_equal(fig_bounds_tiles(0, 10, 10, 4), 0);
    assert_int_equal(fig_bounds_tiles(10, 0, 10, 4), 0);
    assert_int_equal(fig_bounds_tiles(10, 10, 0, 4), 0);
}

/* 1024 rows of 2^20 tokens, and the same tokens with a row at its limit. */
static void the_largest_bucket_does_not_overflow(void **state) {
    (void)state;
    assert_true(fig_bounds_tiles(1024, INT64_C(1) << 30, 1 << 20, 16) == INT64_C(1) << 26);
    assert_true(fig_bounds_tiles(1024, INT64_C(1) << 30, 1 << 20, 1) == INT64_C(1) << 30);
    assert_true(fig_bounds_tiles(1024, INT64_MAX, 1 << 20, 64) == INT64_C(1) << 24);
}

/* Shapes too large to try every step of. */
static void random_steps_stay_within_the_tiles_of_their_bucket(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    for (int step = 0; step < 20000; step++) {
        int32_t rows = fig_random_range(&random, 1, 64);
        int32_t kv_limit = fig_random_range(&random, 1, 5000);
        int32_t tile = fig_random_range(&random, 1, 256);
        int64_t tokens = 0, tiles = 0;
        for (int32_t row = 0; row < rows; row++) {
            int32_t length = fig_random_range(&random, 0, kv_limit);
            tokens += length;
            tiles += length / tile + (length % tile > 0);
        }
        assert_true(tiles <= fig_bounds_tiles(rows, tokens, kv_limit, tile));
    }
}

/* Llama 3.1 8B, 256 rows, 132 workers, one kv head and its 4 q heads at a time. */
static void a_class_needs_what_its_partials_and_segments_need(void **state) {
    (void)state;
    const fig_split_shape shape = {256, 8, 64, 132};
    fig_bounds_class bounds = fig_bounds_class_of(&shape, 4, 128);
    assert_int_equal(bounds.partial_limit, 262);
    assert_int_equal(bounds.partials_bytes, 262 * 4 * 128 * 4);
    assert_int_equal(bounds.sums_bytes, 262 * 4 * 2 * 4);
    assert_int_equal(bounds.counters_bytes, 256 * 8 * 4);
}

static void partials_do_not_grow_with_the_batch_beyond_the_workers(void **state) {
    (void)state;
    const fig_split_shape one = {1, 1, 16, 132}, many = {132, 1, 16, 132},
                          most = {1024, 1, 16, 132};
    assert_int_equal(fig_bounds_class_of(&one, 32, 128).partial_limit, 132);
    assert_int_equal(fig_bounds_class_of(&many, 32, 128).partial_limit, 262);
    assert_int_equal(fig_bounds_class_of(&most, 32, 128).partial_limit, 262);
}

static void one_worker_leaves_no_partial(void **state) {
    (void)state;
    const fig_split_shape shape = {16, 4, 16, 1};
    fig_bounds_class bounds = fig_bounds_class_of(&shape, 4, 64);
    assert_int_equal(bounds.partial_limit, 0);
    assert_int_equal(bounds.partials_bytes, 0);
    assert_int_equal(bounds.sums_bytes, 0);
    assert_int_equal(bounds.counters_bytes, 16 * 4 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_of_a_small_shape_has_more_tiles_and_one_has_as_many),
        cmocka_unit_test(nothing_needs_no_tiles),
        cmocka_unit_test(the_largest_bucket_does_not_overflow),
        cmocka_unit_test(random_steps_stay_within_the_tiles_of_their_bucket),
        cmocka_unit_test(a_class_needs_what_its_partials_and_segments_need),
        cmocka_unit_test(partials_do_not_grow_with_the_batch_beyond_the_workers),
        cmocka_unit_test(one_worker_leaves_no_partial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
