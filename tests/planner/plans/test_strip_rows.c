/* test_strip_rows.c: compares strips that are made again and again, while rows grow, with those
 * that strips.c makes of the same segments.
 *
 * Invariant: no byte may differ, whatever segments were taken before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/strip_rows.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum {
    PREFIXES = 4,
    ROWS = 60,
    SEGMENTS = PREFIXES + ROWS,
    PIECES = 4000,
    CASES = 1500,
    STEPS = 12, /* of a case */
    PLAN_CAPACITY = 1 << 22,
    UNTOUCHED = 0xa5
};

static _Alignas(16) uint8_t made[PLAN_CAPACITY], expected[PLAN_CAPACITY];

static struct ground {
    fig_random random;
    fig_strips_shape shape;
    fig_strips_segment segments[SEGMENTS];
    int32_t prefixes, count;
    int32_t workers; /* that get items */
    int32_t most_queries, longest; /* of a row */
} g;

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&g.random, low, high);
}

static void draw_shape(void) {
    g.shape = (fig_strips_shape){.ratio = draw(1, 16),
                                 .kv_heads = draw(1, 9),
                                 .head_dim = draw(0, 1) ? 128 : 64,
                                 .tile_tokens = draw(0, 1) ? 128 : 64,
                                 .workers = draw(1, 150),
                                 .whole = draw(0, 9) == 0,
                                 .window = draw(0, 7) == 0 ? draw(1, 900) : 0,
                                 .shares = 1};
}

/* Draws prefixes and rows. Some segments have no queries. Most rows are those of groups. */
static void draw_segments(void) {
    int32_t member = 0, query = 0;
    memset(g.segments, 0, sizeof g.segments);
    g.prefixes = draw(0, 5) == 0 ? 0 : draw(1, PREFIXES);
    g.count = g.prefixes + (draw(0, 9) == 0 ? 0 : draw(1, draw(0, 1) ? ROWS : 4));
    g.most_queries = draw(0, 2) == 0 ? 70 : draw(1, 3);
    g.longest = draw(0, 1) == 0 ? 1500 : 40000;
    for (int32_t i = 0; i < g.prefixes; i++) {
        const int32_t from = draw(0, 3000);
        g.segments[i] = (fig_strips_segment){.queries = draw(0, 9) == 0 ? 0 : draw(1, 200),
                                             .sequence = draw(0, 5),
                                             .first_token = from,
                                             .end = from + draw(1, 9000),
                                             .visible = FIG_STRIPS_OLD,
                                             .is_shared = 1,
                                             .first_member = member};
        member += g.segments[i].queries;
    }
    g.workers = draw(0, 1) ? g.shape.workers : draw(1, g.shape.workers);
    const fig_strips_beside beside = {.line_units = draw(0, 1) ? 0 : draw(1, 200000),
                                      .workers = g.workers};
    fig_strip_prefixes_cut(&g.shape, &beside, g.segments, g.prefixes);
    for (int32_t i = g.prefixes; i < g.count; i++) {
        const int32_t queries = draw(0, 9) == 0 ? 0 : draw(1, g.most_queries);
        const int32_t from = draw(0, 2) == 0 ? 0 : draw(0, 3000);
        g.segments[i] =
            (fig_strips_segment){.first_query = query,
                                 .queries = queries,
                                 .sequence = draw(0, 100),
                                 .first_token = from,
                                 .end = from + queries + draw(1, g.longest),
                                 .visible = draw(0, 19) == 0 ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL,
                                 .is_shared = draw(0, 9) > 0,
                                 .first_member = member};
        query += queries;
        member += g.segments[i].is_shared ? queries : 0;
    }
}

/* Every row grows by a token, or every row gets another length. */
static void grow(void) {
    const int32_t is_new = draw(0, 3) == 0;
    for (int32_t i = g.prefixes; i < g.count; i++) {
        fig_strips_segment *row = &g.segments[i];
        row->end = is_new ? row->first_token + row->queries + draw(1, g.longest) : row->end + 1;
    }
}

static void expect_same(fig_strip_rows *rows) {
    memset(expected, UNTOUCHED, sizeof expected / 8);
    const fig_strips_sizes of =
        fig_strips_make_within(&g.shape, g.segments, g.count, g.workers, expected);
    memset(made, UNTOUCHED, sizeof made / 8);
    const fig_strips_sizes sizes = fig_strip_rows_make(rows, g.segments, g.count, made);
    assert_true(of.plan_bytes < PLAN_CAPACITY / 8);
    assert_int_equal(sizes.plan_bytes, of.plan_bytes);
    assert_memory_equal(made, expected, (size_t)of.plan_bytes + 1);
    assert_int_equal(sizes.items, of.items);
    assert_int_equal(sizes.partial_vectors, of.partial_vectors);
    assert_int_equal(sizes.counters, of.counters);
}

static void open_rows(fig_strip_rows *rows, int64_t pieces) {
    const fig_strip_rows_limits limits = {.pieces = pieces, .rows = ROWS};
    assert_int_equal(fig_strip_rows_init(rows, &g.shape, &limits), FIG_OK);
}

/* Segments are taken several times, and not all of them in steps that can be kept. */
static void strips_made_again_are_those_of_a_fresh_step(void **state) {
    (void)state;
    int32_t kept = 0, others = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_strip_rows rows;
        g.random = fig_random_seed(seed);
        draw_shape();
        open_rows(&rows, PIECES);
        for (int32_t n = 0; n < STEPS; n++) {
            if (n % 4 == 0) {
                draw_segments();
                fig_strip_rows_take(&rows, g.segments, g.count, g.workers);
            }
            expect_same(&rows);
            *(rows.is_kept ? &kept : &others) += 1;
            grow();
        }
        fig_strip_rows_finish(&rows);
    }
    assert_true(kept > CASES * STEPS / 2 && others > CASES);
}

/* Rows are so long that twice their units exceed 32 bits. */
static void rows_may_be_as_long_as_any(void **state) {
    (void)state;
    fig_strip_rows rows;
    memset(&g, 0, sizeof g);
    g.random = fig_random_seed(1);
    g.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 9, .head_dim = 64, .tile_tokens = 64, .workers = 132, .shares = 1};
    g.prefixes = 1;
    g.count = SEGMENTS - PREFIXES;
    g.segments[0] = (fig_strips_segment){
        .queries = g.count - 1, .end = 1000, .visible = FIG_STRIPS_OLD, .is_shared = 1};
    g.workers = g.shape.workers;
    fig_strip_prefixes_cut(&g.shape, &(fig_strips_beside){.workers = g.workers}, g.segments, 1);
    for (int32_t i = 1; i < g.count; i++)
        g.segments[i] = (fig_strips_segment){.first_query = i - 1,
                                             .queries = 1,
                                             .first_token = 1000,
                                             .end = INT32_MAX - draw(0, 100000000),
                                             .is_shared = 1,
                                             .first_member = g.count - 2 + i};
    open_rows(&rows, PIECES);
    fig_strip_rows_take(&rows, g.segments, g.count, g.workers);
    assert_true(rows.is_kept);
    expect_same(&rows);
    fig_strip_rows_finish(&rows);
}

/* There is memory for exactly the pieces of the step, or for one less. */
static void pieces_beyond_the_limit_are_not_kept(void **state) {
    (void)state;
    fig_strip_rows rows;
    g.random = fig_random_seed(3);
    do {
        draw_shape();
        draw_segments();
        open_rows(&rows, PIECES);
        fig_strip_rows_take(&rows, g.segments, g.count, g.workers);
        if (!rows.is_kept) fig_strip_rows_finish(&rows);
    } while (!rows.is_kept);
    int64_t pieces = 0; /* before those of successive heads become one item */
    for (int32_t i = 0; i < g.prefixes; i++) {
        const int32_t full = 2 * fig_strips_half(g.shape.ratio), queries = g.segments[i].queries;
        pieces += (int64_t)(queries + full - 1) / full * g.segments[i].pieces * g.shape.kv_heads;
    }
    fig_strip_rows_finish(&rows);
    for (int32_t less = 0; less < 2; less++) {
        open_rows(&rows, pieces - less);
        fig_strip_rows_take(&rows, g.segments, g.count, g.workers);
        assert_int_equal(rows.is_kept, !less);
        expect_same(&rows);
        fig_strip_rows_finish(&rows);
    }
}

static void without_memory_nothing_is_kept(void **state) {
    (void)state;
    const fig_strip_rows_limits limits = {.pieces = PIECES, .rows = ROWS};
    g.random = fig_random_seed(5);
    draw_shape();
    for (int64_t n = 1;; n++) {
        fig_strip_rows rows;
        fig_fault_arm(n);
        const fig_status status = fig_strip_rows_init(&rows, &g.shape, &limits);
        if (fig_fault_disarm() < n) {
            assert_int_equal(status, FIG_OK);
            fig_strip_rows_finish(&rows);
            assert_true(n > 5);
            return;
        }
        assert_int_equal(status, FIG_NOMEM);
        assert_null(rows.items);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_made_again_are_those_of_a_fresh_step),
        cmocka_unit_test(rows_may_be_as_long_as_any),
        cmocka_unit_test(pieces_beyond_the_limit_are_not_kept),
        cmocka_unit_test(without_memory_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
