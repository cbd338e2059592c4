/* test_bounds.c: compares each bound with the true maximum, which the test finds by trying every
 * step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "planner/split/bounds.h"
#include "tests/support/random.h"

enum { ROWS_MOST = 5, KV_MOST = 13, TOKENS_MOST = ROWS_MOST * KV_MOST };
/* Sanitizers look for wrong accesses, and try an even and an odd number of rows. The release build
 * compares the bounds of all. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { ROWS_TRIED = 2, RANDOM_STEPS = 2000 };
#else
enum { ROWS_TRIED = ROWS_MOST, RANDOM_STEPS = 20000 };
#endif

static fig_split_shape shape_of(int32_t rows, int32_t tile_tokens, int32_t window,
                                int32_t row_tokens) {
    return (fig_split_shape){.row_limit = rows,
                             .groups = 1,
                             .tile_tokens = tile_tokens,
                             .workers = 1,
                             .window = window,
                             .row_tokens = row_tokens};
}

/* Counts, token by token, the tiles in which one of the row's queries sees a token while the row
 * grows by `ahead` to this length. */
static int32_t count_tiles(const fig_split_shape *shape, int32_t length, int32_t ahead) {
    int32_t tiles = 0;
    for (int32_t tile = 0; tile < length; tile += shape->tile_tokens) {
        int seen = 0;
        for (int32_t token = tile; token < tile + shape->tile_tokens; token++) {
            for (int32_t query = length - ahead - shape->row_tokens; query < length; query++)
                seen |= token <= query && (shape->window == 0 || token > query - shape->window);
        }
        tiles += seen;
    }
    return tiles;
}

/* Returns the most tiles of a row that ends with this length, however much it has grown. */
static int32_t most_tiles(const fig_split_shape *shape, int32_t length) {
    int32_t most = 0, limit = shape->fixed ? shape->tile_tokens : 0;
    for (int32_t ahead = 0; ahead <= limit && length - ahead >= shape->row_tokens; ahead++) {
        const int32_t tiles = count_tiles(shape, length, ahead);
        if (tiles > most) most = tiles;
    }
    return most;
}

/* Does the same for a packed program. A row may have any number of queries up to row_tokens, and
 * grows only if it has all of them. */
static int32_t most_packed_tiles(const fig_split_shape *shape, int32_t length) {
    int32_t most = length >= shape->row_tokens ? most_tiles(shape, length) : 0;
    fig_split_shape own = *shape;
    for (own.row_tokens = 1; own.row_tokens <= shape->row_tokens; own.row_tokens++) {
        const int32_t tiles = own.row_tokens <= length ? count_tiles(&own, length, 0) : 0;
        if (tiles > most) most = tiles;
    }
    return most;
}

typedef enum program_kind { EQUAL_ROWS, PACKED } program_kind;

/* most[tokens]: the most tiles of a step with at most this many tokens. Every step is tried: each
 * length of the last row is added to the best result of the rows before it. */
static void try_every_step(const fig_split_shape *shape, int32_t kv_limit, program_kind kind,
                           int32_t most[TOKENS_MOST + 1]) {
    const int32_t least = kind == PACKED ? 1 : shape->row_tokens;
    int32_t tiles[KV_MOST + 1] = {0}, before[TOKENS_MOST + 1];
    for (int32_t length = least; length <= kv_limit; length++)
        tiles[length] =
            kind == PACKED ? most_packed_tiles(shape, length) : most_tiles(shape, length);
    memset(most, 0, sizeof before);
    for (int32_t row = 0; row < shape->row_limit; row++) {
        memcpy(before, most, sizeof before);
        for (int32_t tokens = 0; tokens <= TOKENS_MOST; tokens++) {
            for (int32_t length = least; length <= kv_limit && length <= tokens; length++) {
                int32_t sum = before[tokens - length] + tiles[length];
                if (sum > most[tokens]) most[tokens] = sum;
            }
        }
    }
}

static void expect_bounds(const fig_split_shape *shape, int32_t kv_limit, program_kind kind) {
    int32_t most[TOKENS_MOST + 1];
    try_every_step(shape, kv_limit, kind, most);
    for (int32_t tokens = 0; tokens <= TOKENS_MOST; tokens++) {
        int64_t bound = kind == PACKED ? fig_bounds_packed_tiles(shape, tokens, kv_limit)
                                       : fig_bounds_tiles(shape, tokens, kv_limit);
        if (bound != most[tokens])
            fail_msg("%d rows of %d queries, %d tokens, kv_limit %d, tile %d, window %d, fixed "
                     "%d: bound %lld, most %d",
                     shape->row_limit, shape->row_tokens, tokens, kv_limit, shape->tile_tokens,
                     shape->window, shape->fixed, (long long)bound, most[tokens]);
    }
}

static void no_step_of_a_small_shape_has_more_tiles_and_one_has_as_many(void **state) {
    (void)state;
    for (int32_t rows = 1; rows <= ROWS_TRIED; rows++) {
        for (int32_t kv_limit = 1; kv_limit <= KV_MOST; kv_limit++) {
            for (int32_t tile = 1; tile <= KV_MOST + 1; tile++) {
                for (int32_t row_tokens = 1; row_tokens <= 16; row_tokens++) {
                    for (int32_t window = 0; window <= KV_MOST + 1; window++) {
                        fig_split_shape shape = shape_of(rows, tile, window, row_tokens);
                        expect_bounds(&shape, kv_limit, EQUAL_ROWS);
                        if (rows % 2 == 1) expect_bounds(&shape, kv_limit, PACKED);
                        shape.fixed = 1;
                        if (rows % 2 == 1) expect_bounds(&shape, kv_limit, EQUAL_ROWS);
                        if (rows % 2 == 0) expect_bounds(&shape, kv_limit, PACKED);
                    }
                }
            }
        }
    }
}

/* However long a row is, it reads its window and at most two more tiles. */
static void a_windowed_row_reads_no_more_however_long_it_is(void **state) {
    (void)state;
    const fig_split_shape mistral = shape_of(1, 64, 4096, 1), drafts = shape_of(1, 64, 4096, 8);
    const fig_split_shape own = shape_of(1, 64, 1, 1), whole = shape_of(1, 64, 4097, 1);
    for (int32_t kv_limit = 8192; kv_limit <= 1 << 20; kv_limit *= 2) {
        assert_int_equal(fig_bounds_tiles(&mistral, kv_limit, kv_limit), 65);
        assert_int_equal(fig_bounds_tiles(&drafts, kv_limit, kv_limit), 66);
        assert_int_equal(fig_bounds_tiles(&own, kv_limit, kv_limit), 1);
        assert_int_equal(fig_bounds_tiles(&whole, kv_limit, kv_limit), 65);
    }
    assert_int_equal(fig_bounds_tiles(&mistral, 4096, 4096), 64);
}

static void a_step_without_rows_needs_no_tiles(void **state) {
    (void)state;
    const fig_split_shape none = shape_of(0, 4, 0, 1), ten = shape_of(10, 4, 0, 1);
    const fig_split_shape drafts = shape_of(10, 4, 0, 3);
    assert_int_equal(fig_bounds_tiles(&none, 10, 10), 0);
    assert_int_equal(fig_bounds_tiles(&ten, 0, 10), 0);
    assert_int_equal(fig_bounds_tiles(&ten, 10, 0), 0);
    assert_int_equal(fig_bounds_tiles(&drafts, 2, 10), 0);
    assert_int_equal(fig_bounds_tiles(&drafts, 10, 2), 0);
}

/* 1024 rows of 2^20 tokens, and as many tokens with one row at its limit. */
static void the_largest_bucket_does_not_overflow(void **state) {
    (void)state;
    const fig_split_shape pages = shape_of(1024, 16, 0, 1), tokens = shape_of(1024, 1, 0, 1);
    const fig_split_shape heads = shape_of(1024, 64, 0, 8), all = shape_of(1024, 64, INT32_MAX, 8);
    assert_true(fig_bounds_tiles(&pages, INT64_C(1) << 30, 1 << 20) == INT64_C(1) << 26);
    assert_true(fig_bounds_tiles(&tokens, INT64_C(1) << 30, 1 << 20) == INT64_C(1) << 30);
    assert_true(fig_bounds_tiles(&heads, INT64_MAX, 1 << 20) == INT64_C(1) << 24);
    assert_true(fig_bounds_tiles(&all, INT64_MAX, 1 << 20) == INT64_C(1) << 24);
}

/* These shapes have too many steps to try them all. */
static void random_steps_stay_within_the_tiles_of_their_bucket(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    for (int step = 0; step < RANDOM_STEPS; step++) {
        const int32_t row_tokens = fig_random_range(&random, 1, 16);
        const int32_t window =
            fig_random_range(&random, 0, 1) ? fig_random_range(&random, 1, 3000) : 0;
        fig_split_shape shape = shape_of(fig_random_range(&random, 1, 64),
                                         fig_random_range(&random, 1, 256), window, row_tokens);
        shape.fixed = fig_random_range(&random, 0, 1);
        const int32_t kv_limit = fig_random_range(&random, row_tokens, 5000);
        int64_t tokens = 0, tiles = 0;
        const int32_t most = fig_size_min(shape.tile_tokens, kv_limit - row_tokens);
        const int32_t ahead = shape.fixed ? fig_random_range(&random, 0, most) : 0;
        for (int32_t row = 0; row < shape.row_limit; row++) {
            const int idle = fig_random_range(&random, 0, 7) == 0;
            const int32_t length =
                idle ? 0 : fig_random_range(&random, row_tokens, kv_limit - ahead);
            tokens += idle ? 0 : length + ahead;
            tiles += fig_split_tiles_ahead(&shape, length, ahead);
        }
        assert_true(tiles <= fig_bounds_tiles(&shape, tokens, kv_limit));
    }
}

/* Llama 3.1 8B, 256 rows, 132 workers, one kv head and its 4 q heads at a time. */
static void a_class_needs_what_its_partials_and_segments_need(void **state) {
    (void)state;
    fig_split_shape shape = shape_of(256, 64, 0, 1);
    shape.groups = 8;
    shape.workers = 132;
    fig_bounds_class bounds = fig_bounds_class_of(&shape, 4, 128);
    assert_int_equal(bounds.partial_limit, 262);
    assert_int_equal(bounds.partials_bytes, 262 * 4 * 128 * 4);
    assert_int_equal(bounds.sums_bytes, 262 * 4 * 2 * 4);
    assert_int_equal(bounds.counters_bytes, 256 * 8 * 4);

    shape.row_tokens = 3;
    bounds = fig_bounds_class_of(&shape, 4, 128);
    assert_int_equal(bounds.partial_limit, 262);
    assert_int_equal(bounds.partials_bytes, 262 * 12 * 128 * 4);
    assert_int_equal(bounds.sums_bytes, 262 * 12 * 2 * 4);
    /* A vector of 80 is padded to 96. */
    assert_int_equal(fig_bounds_class_of(&shape, 4, 80).partials_bytes, 262 * 12 * 96 * 4);
    assert_int_equal(bounds.counters_bytes, 256 * 8 * 4);
}

/* Each tile has a partial. 32 rows with 32 * 8192 tokens in all have at most 543 tiles of 512
 * tokens in each head group. */
static void a_fixed_split_needs_a_partial_for_each_tile(void **state) {
    (void)state;
    fig_split_shape shape = shape_of(32, FIG_FIXED_TILE_TOKENS, 0, 1);
    shape.groups = 8;
    shape.workers = 132;
    shape.fixed = 1;
    shape.tile_limit = (int32_t)fig_bounds_tiles(&shape, 32 * 8192, 131072) * shape.groups;
    assert_int_equal(shape.tile_limit, (32 + (32 * 8192 - 32) / 512) * 8);
    fig_bounds_class bounds = fig_bounds_class_of(&shape, 4, 128);
    assert_int_equal(bounds.partial_limit, shape.tile_limit);
    assert_int_equal(bounds.partials_bytes, shape.tile_limit * 4 * 128 * 4);
    assert_int_equal(bounds.counters_bytes, 32 * 8 * 4);
}

static void partials_do_not_grow_with_the_batch_beyond_the_workers(void **state) {
    (void)state;
    static const int32_t rows[] = {1, 132, 1024}, limits[] = {132, 262, 262};
    for (int i = 0; i < 3; i++) {
        fig_split_shape shape = shape_of(rows[i], 16, 0, 1);
        shape.workers = 132;
        assert_int_equal(fig_bounds_class_of(&shape, 32, 128).partial_limit, limits[i]);
    }
}

static void one_worker_leaves_no_partial(void **state) {
    (void)state;
    fig_split_shape shape = shape_of(16, 16, 0, 1);
    shape.groups = 4;
    fig_bounds_class bounds = fig_bounds_class_of(&shape, 4, 64);
    assert_int_equal(bounds.partial_limit, 0);
    assert_int_equal(bounds.partials_bytes, 0);
    assert_int_equal(bounds.sums_bytes, 0);
    assert_int_equal(bounds.counters_bytes, 16 * 4 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_of_a_small_shape_has_more_tiles_and_one_has_as_many),
        cmocka_unit_test(a_windowed_row_reads_no_more_however_long_it_is),
        cmocka_unit_test(a_step_without_rows_needs_no_tiles),
        cmocka_unit_test(the_largest_bucket_does_not_overflow),
        cmocka_unit_test(random_steps_stay_within_the_tiles_of_their_bucket),
        cmocka_unit_test(a_class_needs_what_its_partials_and_segments_need),
        cmocka_unit_test(a_fixed_split_needs_a_partial_for_each_tile),
        cmocka_unit_test(partials_do_not_grow_with_the_batch_beyond_the_workers),
        cmocka_unit_test(one_worker_leaves_no_partial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
