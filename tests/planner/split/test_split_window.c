/* test_split_window.c: tests that a row's tiles are exactly those with a token that one of its
 * queries sees, or will see as the row grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "planner/split/split.h"
#include "tests/support/random.h"

enum { LENGTH_MOST = 26, WINDOW_MOST = 28, TILE_MOST = 9, QUERIES_MOST = 16, AHEAD_MOST = 20 };

/* Collects, one by one, all tokens that the row's queries see. */
typedef struct seen {
    int32_t first, last;
} seen;

static seen look(const fig_split_shape *shape, int32_t length) {
    seen tokens = {length, -1};
    for (int32_t query = length - shape->row_tokens; query < length; query++) {
        for (int32_t token = 0; token <= query; token++) {
            if (shape->window > 0 && query - token >= shape->window) continue;
            if (token < tokens.first) tokens.first = token;
            if (token > tokens.last) tokens.last = token;
        }
    }
    return tokens;
}

static void expect_row(const fig_split_shape *shape, int32_t length) {
    const seen tokens = look(shape, length);
    const int32_t tile = shape->tile_tokens;
    const int32_t expected[] = {tokens.first, tokens.first / tile * tile,
                                tokens.last / tile - tokens.first / tile + 1};
    const int32_t found[] = {fig_split_first_token(shape, length),
                             fig_split_first_tile_token(shape, length),
                             fig_split_tiles(shape, length)};
    static const char *const names[] = {"first token", "first token of tile 0", "tiles"};
    for (int i = 0; i < 3; i++) {
        if (found[i] != expected[i])
            fail_msg("length %d, window %d, row_tokens %d, tile_tokens %d: %s %d, expected %d",
                     length, shape->window, shape->row_tokens, tile, names[i], found[i],
                     expected[i]);
    }
}

static void the_tiles_of_a_row_are_those_that_its_queries_see(void **state) {
    (void)state;
    fig_split_shape shape = {.row_limit = 1, .groups = 1, .workers = 1};
    for (shape.tile_tokens = 1; shape.tile_tokens <= TILE_MOST; shape.tile_tokens++) {
        for (shape.window = 0; shape.window <= WINDOW_MOST; shape.window++) {
            for (shape.row_tokens = 1; shape.row_tokens <= QUERIES_MOST; shape.row_tokens++) {
                for (int32_t length = shape.row_tokens; length <= LENGTH_MOST; length++)
                    expect_row(&shape, length);
            }
        }
    }
}

/* Marks, one by one, the tiles that the row reads at any length from this one to `ahead` more.
 * Returns their number, and fails if there is a gap or a tile before the first one. */
static int32_t mark_tiles(const fig_split_shape *shape, int32_t length, int32_t ahead) {
    uint8_t marked[LENGTH_MOST + AHEAD_MOST + 1] = {0};
    const int32_t origin = look(shape, length).first / shape->tile_tokens;
    int32_t tiles = 0, last = -1;
    for (int32_t grown = length; grown <= length + ahead; grown++) {
        const seen tokens = look(shape, grown);
        for (int32_t token = tokens.first; token <= tokens.last; token++)
            marked[token / shape->tile_tokens] = 1;
    }
    for (int32_t tile = 0; tile <= LENGTH_MOST + AHEAD_MOST; tile++) {
        if (!marked[tile]) continue;
        if (tile < origin) fail_msg("tile %d is read and before the first, %d", tile, origin);
        tiles++;
        last = tile;
    }
    if (last - origin + 1 != tiles) fail_msg("a gap before tile %d", last);
    return tiles;
}

static void a_row_that_grows_has_the_tiles_that_it_reads_on_the_way(void **state) {
    (void)state;
    fig_split_shape shape = {.row_limit = 1, .groups = 1, .workers = 1};
    for (shape.tile_tokens = 1; shape.tile_tokens <= TILE_MOST; shape.tile_tokens += 2) {
        for (shape.window = 0; shape.window <= WINDOW_MOST; shape.window += 3) {
            for (shape.row_tokens = 1; shape.row_tokens <= QUERIES_MOST; shape.row_tokens += 2) {
                for (int32_t length = shape.row_tokens; length <= LENGTH_MOST; length++) {
                    for (int32_t ahead = 0; ahead <= AHEAD_MOST; ahead++)
                        assert_int_equal(fig_split_tiles_ahead(&shape, length, ahead),
                                         mark_tiles(&shape, length, ahead));
                }
            }
        }
    }
}

static void an_idle_row_has_no_tile(void **state) {
    (void)state;
    for (int32_t window = 0; window <= WINDOW_MOST; window++) {
        const fig_split_shape shape = {
            .row_limit = 1, .groups = 1, .tile_tokens = 4, .window = window, .row_tokens = 1};
        assert_int_equal(fig_split_tiles(&shape, 0), 0);
        for (int32_t ahead = 0; ahead <= AHEAD_MOST; ahead++)
            assert_int_equal(fig_split_tiles_ahead(&shape, 0, ahead), 0);
    }
}

/* The window may be any that an int32_t can hold, also for the longest row. */
static void a_window_wider_than_the_row_shows_all_of_it(void **state) {
    (void)state;
    static const int32_t lengths[] = {QUERIES_MOST, 4096, 1 << 20};
    fig_split_shape shape = {.row_limit = 1, .groups = 1, .tile_tokens = 64, .workers = 1};
    for (shape.row_tokens = 1; shape.row_tokens <= QUERIES_MOST; shape.row_tokens++) {
        for (int i = 0; i < 3; i++) {
            for (int32_t wider = 0; wider <= QUERIES_MOST + 1; wider++) {
                const int32_t windows[] = {lengths[i] + wider, INT32_MAX - wider};
                for (int j = 0; j < 2; j++) {
                    shape.window = windows[j];
                    assert_int_equal(fig_split_first_token(&shape, lengths[i]), 0);
                    assert_int_equal(fig_split_tiles(&shape, lengths[i]), (lengths[i] + 63) / 64);
                }
            }
        }
    }
}

/* Rows of unequal numbers of queries, some of them idle, and some chunks, which are on no line. */
static void packed_rows_have_the_tiles_of_each_row(void **state) {
    (void)state;
    enum { ROWS = 300 };
    static const int32_t tile_sizes[] = {1, 3, 16, 64, 100, 256};
    static int32_t lengths[ROWS], queries[ROWS], prefix[ROWS + 1], plain[ROWS + 1];
    fig_random random = fig_random_seed(9);
    for (int32_t n = 0; n < 3000; n++) {
        const int32_t tile = tile_sizes[fig_random_range(&random, 0, 5)];
        const fig_split_shape shape = {.row_limit = ROWS,
                                       .groups = 2,
                                       .tile_tokens = tile,
                                       .workers = 7,
                                       .window =
                                           n % 3 == 0 ? fig_random_range(&random, 1, 6 * tile) : 0,
                                       .row_tokens = fig_random_range(&random, 1, 8)};
        const fig_split_rows rows = {lengths, fig_random_range(&random, 0, ROWS), 0, queries, NULL};
        for (int32_t row = 0; row < rows.count; row++) {
            queries[row] = fig_random_range(&random, 0, shape.row_tokens + 1);
            lengths[row] = queries[row] + fig_random_range(&random, 0, 9 * tile);
            if (fig_random_range(&random, 0, 9) == 0) lengths[row] = 0;
        }
        fig_split_prefix(&shape, &rows, prefix);
        fig_split_prefix_plain(&shape, &rows, plain);
        const fig_split_totals totals = fig_split_count(&shape, &rows);
        int32_t sum = 0, longest = 0, busy = 0;
        for (int32_t row = 0; row < rows.count; row++) {
            const int32_t tiles = fig_split_tiles_of(&shape, lengths[row], queries[row]);
            assert_int_equal(prefix[row], sum);
            assert_int_equal(plain[row], sum);
            sum += tiles;
            busy += tiles > 0;
            if (tiles > longest) longest = tiles;
        }
        assert_int_equal(prefix[rows.count], sum);
        assert_int_equal(totals.tiles, sum);
        assert_int_equal(totals.longest, longest);
        assert_int_equal(totals.busy, busy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tiles_of_a_row_are_those_that_its_queries_see),
        cmocka_unit_test(packed_rows_have_the_tiles_of_each_row),
        cmocka_unit_test(a_row_that_grows_has_the_tiles_that_it_reads_on_the_way),
        cmocka_unit_test(an_idle_row_has_no_tile),
        cmocka_unit_test(a_window_wider_than_the_row_shows_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
