/* test_mask_line.c: tests which tiles of a row are on its line if its mask hides some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "include/figraph_scores.h"
#include "planner/scores/mask_lines.h"
#include "planner/scores/score.h"
#include "planner/split/units.h"
#include "tests/support/random.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { ROWS = 64, TILES = 4096, HEADS = 8, RATIO = 4 };
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it; they are slow */
enum { CASES = 100, STEPS = 12 };
#else
enum { CASES = 400, STEPS = 60 };
#endif

/* Masks whose tiles are never more than two stretches. */
static const char *const exact[] = {
    "see 0:q_pos + 1; score",
    "see q_pos - 29:q_pos + 1; score",
    "see q_pos // 40 * 40:q_pos + 1; score",
    "see 0:4, q_pos - 29:q_pos + 1; score",
    "see q_pos - 29:q_pos + 1, 0:4; score",
    "see 0:max(q_pos + 1, 30 * row); score",
    "see 0:kv_length; score",
    "see kv_length // 2:kv_length; score",
    "see 0:kv_length // 3, kv_length // 2:kv_length; score",
    "see 50:90, 20:70; score",
    "i32 sees[64]; see 0:4, q_pos - 29:q_pos + 1; bits sees[q_pos], head; score",
    "see 7:7; score",
    "see kv_length:kv_length + 9, 5:-5; score",
};
/* Masks whose tiles may be any. */
static const char *const any[] = {
    "see head * 3 - kv_head - 5:kv_length // 2 + row, q_pos - 2 * head:0x7fffffff; score",
    "see head * 40:head * 40 + 9; score",
    "see kv_head * 100:kv_head * 100 + 20, head * 7:head * 7 + 1; score",
    "see q_pos * 37 % 200:q_pos * 37 % 200 + 3, q_pos * 11 % 90:q_pos * 11 % 90 + 2; score",
};

static fig_score *parse(const char *text) {
    fig_score *score;
    if (fig_score_parse(&score, text) != FIG_OK) fail_msg("%s: %s", text, fig_message());
    return score;
}

static fig_score_code ranges_of(const char *text) {
    fig_score *score = parse(text);
    fig_score_code ranges;
    fig_mask_lines_ranges(&score->code, &ranges);
    fig_score_destroy(score);
    return ranges;
}

/* ---- Visible tokens, one by one */

/* Marks the tiles of a row that some query and head sees in some launch. */
static void see(const fig_score_code *code, const fig_split_shape *shape, const fig_mask_row *row,
                uint8_t *seen) {
    memset(seen, 0, TILES);
    for (int32_t launch = 0; launch < row->launches; launch++) {
        const int32_t length = row->length + launch * row->growth;
        for (int32_t n = 0; n < row->queries * row->heads; n++) {
            const int32_t position = length - row->queries + n / row->heads;
            const int32_t low = shape->window == 0 ? 0 : position + 1 - shape->window;
            fig_score_inputs inputs = {.arrays = NULL};
            inputs.terms[FIG_SCORE_Q_POS] = (uint32_t)position;
            inputs.terms[FIG_SCORE_KV_LENGTH] = (uint32_t)length;
            inputs.terms[FIG_SCORE_HEAD] = (uint32_t)(n % row->heads);
            inputs.terms[FIG_SCORE_KV_HEAD] = (uint32_t)(n % row->heads / row->ratio);
            inputs.terms[FIG_SCORE_ROW] = (uint32_t)row->row;
            const fig_mask_sight sight = fig_mask_value_of(code, &inputs, low > 0 ? low : 0);
            for (int32_t token = 0; token < length; token++)
                seen[token / shape->tile_tokens] |= (uint8_t)fig_mask_value_sees(&sight, token);
        }
    }
}

static int32_t sum_of(const uint8_t *seen) {
    int32_t sum = 0;
    for (int32_t tile = 0; tile < TILES; tile++)
        sum += seen[tile];
    return sum;
}

typedef struct drawn {
    fig_split_shape shape;
    fig_mask_row row;
} drawn;

static drawn draw(fig_random *random) {
    static const int32_t tiles[] = {1, 4, 16, 7, 64};
    drawn d = {.shape = {.tile_tokens = tiles[fig_random_range(random, 0, 4)],
                         .row_tokens = fig_random_range(random, 1, 5)}};
    if (fig_random_range(random, 0, 2) == 0) d.shape.window = fig_random_range(random, 1, 100);
    d.row.row = fig_random_range(random, 0, 9);
    d.row.queries = fig_random_range(random, 1, d.shape.row_tokens);
    d.row.length = fig_random_range(random, d.row.queries, 400);
    d.row.launches = fig_random_range(random, 0, 2) == 0 ? fig_random_range(random, 2, 6) : 1;
    d.row.growth = d.row.launches > 1 ? d.row.queries : 0;
    d.row.heads = HEADS;
    d.row.ratio = RATIO;
    return d;
}

/* Fails unless the numbers of the tiles on the line name distinct tiles of the row, and all those
 * that are seen. */
static void check_covers(const char *text, const drawn *d, const fig_mask_tiles *tiles,
                         const uint8_t *seen) {
    uint8_t named[TILES] = {0};
    const fig_mask_tiles whole = fig_mask_line_whole(&d->shape, &d->row);
    int32_t last = -1;
    assert_true(fig_mask_line_count(tiles) >= 1);
    for (int32_t n = 0; n < fig_mask_line_count(tiles); n++) {
        const int32_t tile = fig_mask_line_tile(tiles, n);
        assert_true(tile > last && tile >= whole.first && tile < whole.end);
        named[tile] = 1;
        last = tile;
    }
    for (int32_t tile = 0; tile < TILES; tile++)
        if (seen[tile] && !named[tile]) fail_msg("%s: tile %d is not on the line", text, tile);
}

static void the_line_has_every_tile_that_is_seen_and_no_other(void **state) {
    fig_random random = fig_random_seed(1);
    uint8_t seen[TILES];
    int32_t saved = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(exact); i++) {
        const fig_score_code code = ranges_of(exact[i]);
        assert_true(code.line & FIG_MASK_LINE_KNOWN);
        for (int32_t n = 0; n < CASES; n++) {
            const drawn d = draw(&random);
            const fig_mask_tiles tiles = fig_mask_line_of(&code, &d.shape, &d.row);
            see(&code, &d.shape, &d.row, seen);
            check_covers(exact[i], &d, &tiles, seen);
            const int32_t sum = sum_of(seen) > 0 ? sum_of(seen) : 1;
            if (fig_mask_line_count(&tiles) != sum)
                fail_msg("%s: %d tiles, %d are seen", exact[i], fig_mask_line_count(&tiles), sum);
            saved += tiles.hole_end > tiles.hole;
        }
    }
    assert_true(saved > CASES / 4);
}

static void the_line_covers_what_heads_see_apart(void **state) {
    fig_random random = fig_random_seed(2);
    uint8_t seen[TILES];
    (void)state;
    for (size_t i = 0; i < COUNT(any); i++) {
        const fig_score_code code = ranges_of(any[i]);
        for (int32_t n = 0; n < CASES; n++) {
            const drawn d = draw(&random);
            const fig_mask_tiles tiles = fig_mask_line_of(&code, &d.shape, &d.row);
            see(&code, &d.shape, &d.row, seen);
            check_covers(any[i], &d, &tiles, seen);
            if (sum_of(seen) == 0 || fig_mask_line_places(&code, &d.row) == 0) continue;
            assert_true(seen[tiles.first] && seen[tiles.end - 1]);
        }
    }
}

/* ---- Joins */

static fig_mask_tiles random_tiles(fig_random *random, uint32_t *bits) {
    fig_mask_tiles tiles = {0, 0, 0, 0};
    *bits = 0;
    if (fig_random_range(random, 0, 5) == 0) return tiles;
    tiles.first = fig_random_range(random, 0, 12);
    tiles.end = fig_random_range(random, tiles.first + 1, 16);
    if (tiles.end - tiles.first > 2 && fig_random_range(random, 0, 2) > 0) {
        tiles.hole = fig_random_range(random, tiles.first + 1, tiles.end - 2);
        tiles.hole_end = fig_random_range(random, tiles.hole + 1, tiles.end - 1);
    }
    for (int32_t tile = tiles.first; tile < tiles.end; tile++)
        if (tile < tiles.hole || tile >= tiles.hole_end) *bits |= 1u << tile;
    return tiles;
}

static void a_join_keeps_the_widest_hole_of_both(void **state) {
    fig_random random = fig_random_seed(3);
    (void)state;
    for (int32_t i = 0; i < 200000; i++) {
        uint32_t a_bits, b_bits;
        const fig_mask_tiles a = random_tiles(&random, &a_bits), b = random_tiles(&random, &b_bits);
        const fig_mask_tiles both = fig_mask_line_join(a, b), swapped = fig_mask_line_join(b, a);
        const uint32_t bits = a_bits | b_bits;
        int32_t first = 0, end = 0, hole = 0, hole_end = 0;
        for (int32_t tile = 0, begin = -1; tile < 16; tile++) {
            if ((bits >> tile & 1) == 0) continue;
            if (begin < 0) first = tile;
            if (begin >= 0 && tile - begin > hole_end - hole) {
                hole = begin;
                hole_end = tile;
            }
            begin = end = tile + 1;
        }
        if (hole_end - hole == 0) hole = hole_end = 0;
        assert_int_equal(both.first, first);
        assert_int_equal(both.end, end);
        assert_int_equal(both.hole_end - both.hole, hole_end - hole);
        if (hole < hole_end) assert_int_equal(both.hole, hole);
        assert_memory_equal(&both, &swapped, sizeof both);
    }
}

/* ---- Masks that the planner knows */

static void a_range_that_reads_an_array_is_not_known(void **state) {
    static const struct {
        const char *text;
        uint32_t line;
    } cases[] = {
        {"score * 2.0", 0},
        {"i32 start[64]; see start[q_pos]:q_pos + 1; score", 0},
        {"i32 prefix[64]; see 0:4, 5:max(9, prefix[row]); score", 0},
        {"i32 sees[64]; see 0:4; bits sees[0], sees[1]; score", FIG_MASK_LINE_KNOWN},
        {"f32 bias[64]; see 0:kv_length // 2; score + bias[kv_pos]", FIG_MASK_LINE_KNOWN},
        {"see 0:4; bits q_pos, head; score", FIG_MASK_LINE_KNOWN},
        {"see 0:q_pos; score", FIG_MASK_LINE_KNOWN | FIG_MASK_LINE_BY_QUERY},
        {"see 0:head + row; score", FIG_MASK_LINE_KNOWN | FIG_MASK_LINE_BY_HEAD},
        {"see 0:kv_head, 7:q_pos; score",
         FIG_MASK_LINE_KNOWN | FIG_MASK_LINE_BY_HEAD | FIG_MASK_LINE_BY_QUERY},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const fig_score_code ranges = ranges_of(cases[i].text);
        assert_int_equal(ranges.line, cases[i].line);
        assert_int_equal(ranges.mask_node_count > 0, cases[i].line != 0);
        for (uint32_t n = 0; n < ranges.mask_node_count; n++) {
            assert_int_not_equal(ranges.nodes[n].op, FIG_SCORE_ELEMENT);
            assert_int_not_equal(ranges.nodes[n].op, FIG_SCORE_BITS);
        }
    }
}

static void a_row_with_too_many_places_keeps_all_tiles(void **state) {
    const fig_score_code by_head = ranges_of("see head:head + 1; score");
    const fig_score_code by_query = ranges_of("see 0:1, q_pos:q_pos + 1; score");
    const fig_split_shape shape = {.tile_tokens = 16, .row_tokens = 16};
    fig_mask_row row = {
        .queries = 16, .length = 500, .launches = 1, .heads = FIG_MASK_LINE_PLACES, .ratio = 1};
    (void)state;
    fig_mask_tiles tiles = fig_mask_line_of(&by_head, &shape, &row);
    assert_int_equal(fig_mask_line_count(&tiles), FIG_MASK_LINE_PLACES / 16);
    row.heads++;
    tiles = fig_mask_line_of(&by_head, &shape, &row);
    assert_int_equal(fig_mask_line_count(&tiles), 32);
    row.launches = FIG_MASK_LINE_PLACES / 16;
    row.growth = 16;
    tiles = fig_mask_line_of(&by_query, &shape, &row);
    assert_true(tiles.hole_end > tiles.hole);
    row.launches++;
    tiles = fig_mask_line_of(&by_query, &shape, &row);
    assert_true(tiles.hole_end == tiles.hole);
    row.launches = INT32_MAX; /* the product of all three exceeds 32 bits */
    row.growth = 0;
    tiles = fig_mask_line_of(&by_query, &shape, &row);
    assert_int_equal(fig_mask_line_count(&tiles), 32);
}

/* ---- Steps */

/* A step of one class with a mask, behind a class without one. */
typedef struct ground {
    fig_plan_shape shape;
    fig_mask_lines lines;
    fig_plan_step step;
    int32_t lengths[ROWS], queries[ROWS], prefix[ROWS + 1];
    fig_split_start starts[FIG_WORKER_LIMIT];
} ground;

static void open_ground(ground *g, const char *text) {
    memset(g, 0, sizeof *g);
    g->shape.class_count = 2;
    g->shape.row_limit = ROWS;
    g->shape.row_tokens = 1;
    assert_int_equal(fig_mask_lines_init(&g->lines, 1, ROWS), FIG_OK);
    g->lines.of[0].ranges = ranges_of(text);
    g->lines.of[0].split_class = 1;
    g->lines.of[0].heads = HEADS;
    g->lines.of[0].ratio = RATIO;
    for (int32_t i = 0; i < 2; i++)
        g->shape.splits[i] = (fig_split_shape){
            .row_limit = ROWS, .groups = 1, .tile_tokens = 16, .workers = 1, .row_tokens = 1};
    g->step = (fig_plan_step){.lengths = g->lengths, .horizon = 1, .row_tokens = 1};
}

static void draw_step(ground *g, fig_random *random) {
    fig_split_shape *split = &g->shape.splits[1];
    g->step.rows = fig_random_range(random, 1, ROWS);
    g->step.queries = fig_random_range(random, 0, 1) ? g->queries : NULL;
    g->shape.query_limit = g->step.queries != NULL ? 4 * ROWS : 0;
    g->shape.row_tokens = split->row_tokens = g->step.queries != NULL ? 4 : 1;
    split->workers = fig_random_range(random, 0, 3) == 0 ? 1 : fig_random_range(random, 1, 200);
    split->groups = fig_random_range(random, 1, 3);
    split->window = fig_random_range(random, 0, 3) == 0 ? fig_random_range(random, 1, 300) : 0;
    for (int32_t r = 0; r < g->step.rows; r++) {
        g->queries[r] = fig_random_range(random, 0, 4);
        g->lengths[r] = fig_random_range(random, 0, 5) == 0 ? 0 : fig_random_range(random, 4, 600);
    }
}

/* Returns the tiles of one head group of the step that are seen; a row without any counts as 1. */
static int32_t visible_of(const ground *g) {
    uint8_t seen[TILES];
    int32_t sum = 0;
    for (int32_t r = 0; r < g->step.rows; r++) {
        const fig_mask_row row = {.row = r,
                                  .queries = g->step.queries != NULL ? g->queries[r] : 1,
                                  .length = g->lengths[r],
                                  .launches = 1,
                                  .heads = HEADS,
                                  .ratio = RATIO};
        if (row.length == 0 || row.queries == 0) continue;
        see(&g->lines.of[0].ranges, &g->shape.splits[1], &row, seen);
        sum += sum_of(seen) > 0 ? sum_of(seen) : 1;
    }
    return sum;
}

/* Splits the step's class 1 by units that cost `once`. Returns 1 if the line is cut by units. */
static int split_step(ground *g, int32_t once) {
    const fig_split_rows rows = {g->lengths, g->step.rows, 0, g->step.queries,
                                 g->step.hidden != NULL ? g->step.hidden[1] : NULL};
    fig_split_prefix(&g->shape.splits[1], &rows, g->prefix);
    return fig_split_starts(&g->shape.splits[1], once, g->prefix, g->step.rows, g->starts);
}

/* Returns the units of a worker. */
static int32_t units_of(const ground *g, int32_t once, int32_t worker) {
    const fig_split_shape *split = &g->shape.splits[1];
    fig_split_line line = fig_split_line_of(split, g->prefix, g->step.rows);
    fig_split_start start = g->starts[worker];
    int32_t units = 0;
    line.starts = g->starts;
    while (start.count > 0) {
        const fig_split_piece piece = fig_split_take(split, &line, &start);
        units += once + FIG_UNITS_OF_TILE * (piece.tile_end - piece.tile);
    }
    return units;
}

static void workers_share_the_visible_tiles_evenly(void **state) {
    fig_random random = fig_random_seed(4);
    int32_t by_units = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(exact); i++) {
        ground g;
        open_ground(&g, exact[i]);
        for (int32_t n = 0; n < STEPS; n++) {
            const int32_t once = n % 2 * 41;
            draw_step(&g, &random);
            g.step.hidden = fig_mask_lines_find(&g.lines, &g.shape, &g.step);
            assert_null(g.step.hidden[0]);
            const int is_by_units = split_step(&g, once);
            const fig_split_shape *split = &g.shape.splits[1];
            const int32_t tiles = visible_of(&g) * split->groups;
            int32_t sum = 0, most = 0, most_units = 0, all_units = 0;
            for (int32_t worker = 0; worker < split->workers; worker++) {
                const int32_t count = g.starts[worker].count;
                const int32_t units = is_by_units ? units_of(&g, once, worker) : 0;
                sum += count;
                most = count > most ? count : most;
                most_units = units > most_units ? units : most_units;
                all_units += units;
            }
            assert_int_equal(sum, tiles);
            assert_int_equal(g.prefix[g.step.rows] * split->groups, tiles);
            if (!is_by_units) assert_int_equal(most, fig_size_ceil_div(tiles, split->workers));
            if (is_by_units)
                assert_true(most_units <= all_units / split->workers + once + FIG_UNITS_OF_TILE);
            by_units += is_by_units;
        }
        fig_mask_lines_finish(&g.lines);
    }
    assert_true(by_units > 0);
}

/* Half of a step's time is that of half of the fullest worker's tiles. */
static void a_mask_that_hides_half_saves_half(void **state) {
    static const char *const halves[] = {
        "see 0:kv_length // 2; score", "see kv_length // 2:kv_length; score",
        "see 0:kv_length // 4, kv_length * 3 // 4:kv_length; score"};
    (void)state;
    for (size_t i = 0; i < COUNT(halves); i++) {
        ground g;
        open_ground(&g, halves[i]);
        g.shape.splits[1].workers = 132;
        g.step.rows = 3;
        for (int32_t r = 0; r < 3; r++)
            g.lengths[r] = 65536;
        split_step(&g, 0);
        const int32_t all = g.starts[0].count;
        g.step.hidden = fig_mask_lines_find(&g.lines, &g.shape, &g.step);
        split_step(&g, 0);
        assert_true(10 * (all - g.starts[0].count) >= 9 * (all / 2));
        fig_mask_lines_finish(&g.lines);
    }
}

static void a_plan_says_that_tiles_are_hidden(void **state) {
    fig_plan_held held;
    ground g;
    (void)state;
    open_ground(&g, "see 0:4; score");
    fig_plan_lay_out(&g.shape);
    g.step.rows = 2;
    g.lengths[0] = 100;
    g.lengths[1] = 7;
    assert_int_equal(fig_plan_held_init(&held, &(fig_plan_held_limits){.row_limit = ROWS}), FIG_OK);
    assert_int_equal(fig_plan_settle(&g.shape, &g.step, &held) & FIG_PLAN_BY_MASKS, 0);
    assert_int_equal(held.prefix[1][2], 8);
    g.step.hidden = fig_mask_lines_find(&g.lines, &g.shape, &g.step);
    const uint32_t sections = fig_plan_settle(&g.shape, &g.step, &held);
    assert_int_equal(sections & FIG_PLAN_BY_MASKS, FIG_PLAN_BY_MASKS);
    assert_int_equal(sections & FIG_PLAN_HAS_SPLITS, FIG_PLAN_HAS_SPLITS);
    assert_int_equal(held.prefix[0][2], 8);
    assert_int_equal(held.prefix[1][2], 2);
    assert_int_equal(fig_plan_settle(&g.shape, &g.step, &held) & FIG_PLAN_HAS_SPLITS, 0);
    g.step.lengths = NULL;
    assert_null(fig_mask_lines_find(&g.lines, &g.shape, &g.step));
    fig_plan_held_finish(&held);
    fig_mask_lines_finish(&g.lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_has_every_tile_that_is_seen_and_no_other),
        cmocka_unit_test(the_line_covers_what_heads_see_apart),
        cmocka_unit_test(a_join_keeps_the_widest_hole_of_both),
        cmocka_unit_test(a_range_that_reads_an_array_is_not_known),
        cmocka_unit_test(a_row_with_too_many_places_keeps_all_tiles),
        cmocka_unit_test(workers_share_the_visible_tiles_evenly),
        cmocka_unit_test(a_mask_that_hides_half_saves_half),
        cmocka_unit_test(a_plan_says_that_tiles_are_hidden),
    };
    return cmocka_run_group_tests_name("mask lines", tests, NULL, NULL);
}
