/* test_division.c: tests when and how a machine is divided between the rows and the chunks of a
 * step, and that a plan keeps to the division. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/plan.h"
#include "tests/support/random.h"

enum { ROWS = 200, NARROW = 8, PLAN_CAPACITY = 1 << 22, CASES = 400 };

/* 32/8 heads of 128 in bf16 on an H200, where workers read all kv heads */
static const fig_strips_shape h200 = {
    .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132};
static const fig_division_pace pace = {.tile_bytes = 16 * 4096,
                                       .readers = 132,
                                       .of_worker = 85000,
                                       .of_all = 4120000,
                                       .of_all_apart = 4349000};

typedef struct cell {
    int32_t queries, length, rows, row_length;
} cell;

static int32_t readers_of(const cell *c) {
    const fig_strips_segment chunk = {.queries = c->queries, .end = c->length};
    const fig_division_work work = {.tiles = (int64_t)c->rows * ((c->row_length + 15) / 16),
                                    .segments = &chunk,
                                    .count = c->queries > 0};
    return fig_division_readers(&pace, &h200, &work);
}

/* ---- Choice ---------------------------------------------------------------------------------- */

/* The numbers of workers around which these steps took least time on one H200. */
static void measured_steps_have_the_readers_that_were_best(void **state) {
    (void)state;
    static const struct {
        cell of;
        int32_t least, most;
    } cases[] = {{{2048, 8192, 64, 2048}, 12, 16},
                 {{512, 8192, 128, 1024}, 32, 36},
                 {{256, 4096, 64, 4096}, 66, 66},
                 {{512, 2048, 32, 8192}, 66, 66}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_in_range(readers_of(&cases[i].of), cases[i].least, cases[i].most);
}

static void a_step_of_one_kind_is_not_divided(void **state) {
    (void)state;
    const fig_division_pace none = {0};
    const fig_strips_segment chunk = {.queries = 512, .end = 8192};
    const fig_division_work both = {.tiles = 8192, .segments = &chunk, .count = 1};
    assert_int_equal(readers_of(&(cell){0, 0, 64, 2048}), 0);
    assert_int_equal(readers_of(&(cell){2048, 8192, 0, 0}), 0);
    assert_true(fig_division_readers(&pace, &h200, &both) > 0);
    assert_int_equal(fig_division_readers(&none, &h200, &both), 0);
}

static void small_work_of_one_kind_is_not_worth_a_division(void **state) {
    (void)state;
    assert_int_equal(readers_of(&(cell){16, 4096, 64, 2048}), 0);
    assert_int_equal(readers_of(&(cell){1024, 32768, 1, 64}), 0);
}

/* Returns the readers of a step of `rows` rows with 256 tokens each behind a prefix. */
static int32_t tail_readers_of(int32_t rows, int32_t prefix) {
    const fig_strip_group group = {.rows = rows, .to = prefix};
    fig_division_prefixes prefixes = {.tails = rows};
    fig_division_add_prefix(&h200, &group, rows, &prefixes);
    return fig_division_tail_readers(&pace, &h200, &prefixes, (int64_t)rows * 16);
}

/* The numbers of workers around which these steps took least time on one H200. */
static void measured_steps_with_tails_have_the_readers_that_were_best(void **state) {
    (void)state;
    assert_int_equal(tail_readers_of(256, 2048), 66);
    assert_in_range(tail_readers_of(256, 8192), 36, 40);
    assert_in_range(tail_readers_of(256, 32768), 20, 28);
    assert_in_range(tail_readers_of(128, 8192), 33, 44);
}

static void without_tails_or_prefixes_nobody_reads_apart(void **state) {
    (void)state;
    const fig_strip_group group = {.rows = 64, .to = 8192};
    fig_division_prefixes prefixes = {.tails = 64};
    assert_int_equal(fig_division_tail_readers(&pace, &h200, &prefixes, 1024), 0);
    fig_division_add_prefix(&h200, &group, 64, &prefixes);
    assert_int_equal(prefixes.strips, 16);
    assert_true(fig_division_tail_readers(&pace, &h200, &prefixes, 1024) > 0);
    assert_int_equal(fig_division_tail_readers(&pace, &h200, &prefixes, 0), 0);
}

/* At most a third or exactly half of the workers read; the others process chunks. */
static void every_division_leaves_workers_for_both(void **state) {
    (void)state;
    fig_random random = fig_random_seed(3);
    int32_t divided = 0, halved = 0;
    for (int32_t i = 0; i < 20000; i++) {
        fig_strips_shape strips = h200;
        fig_division_pace own = pace;
        strips.workers = fig_random_range(&random, 1, 140);
        own.readers = fig_random_range(&random, 1, 140);
        const fig_strips_segment chunks[2] = {
            {.queries = fig_random_range(&random, 0, 600), .end = 3000},
            {.queries = fig_random_range(&random, 1, 40), .end = 700}};
        const fig_division_work work = {.tiles = fig_random_range(&random, 0, 3000),
                                        .segments = chunks,
                                        .count = fig_random_range(&random, 0, 2)};
        const int32_t readers = fig_division_readers(&own, &strips, &work);
        assert_true(readers >= 0 && readers <= own.readers && readers <= work.tiles);
        assert_true(readers <= strips.workers / 3 || readers == strips.workers / 2);
        divided += readers > 0;
        halved += readers > strips.workers / 3;
    }
    assert_true(divided > 1000 && halved > 100);
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static _Alignas(16) uint8_t slot[PLAN_CAPACITY], plan[PLAN_CAPACITY], own[PLAN_CAPACITY];
static int32_t lengths[ROWS], queries[ROWS];

typedef struct ground {
    fig_plan_shape shape;
    fig_strips_shape strips[2];
    fig_division_pace paces[2];
    fig_plan_held held;
} ground;

/* Opens a shape of two classes, of which the second has a window and is not divided. */
static void open_ground(ground *g) {
    memset(g, 0, sizeof *g);
    g->shape = (fig_plan_shape){
        .row_limit = ROWS, .class_count = 2, .row_tokens = 600, .query_limit = 1200};
    for (int32_t i = 0; i < 2; i++) {
        g->shape.splits[i] = (fig_split_shape){.row_limit = ROWS,
                                               .groups = 1,
                                               .tile_tokens = 16,
                                               .workers = 132,
                                               .window = i * 300,
                                               .row_tokens = NARROW};
        g->shape.once[i] = 14;
        g->strips[i] = h200;
        g->strips[i].window = i * 300;
    }
    g->paces[0] = pace;
    fig_plan_lay_out(&g->shape);
    assert_int_equal(fig_plan_add_strips(&g->shape, g->strips, NARROW + 1), FIG_OK);
    const fig_plan_held_limits limits = {.row_limit = ROWS,
                                         .chunk_classes = 2,
                                         .chunk_least = NARROW + 1,
                                         .chunk_shapes = g->strips,
                                         .strips_bytes = fig_plan_strips_room(&g->shape)};
    assert_int_equal(fig_plan_held_init(&g->held, &limits), FIG_OK);
}

static uint32_t write_plan(ground *g, const fig_plan_step *step) {
    const uint32_t sections = fig_plan_settle(&g->shape, step, &g->held);
    memset(slot, 0, sizeof slot);
    fig_plan_write(&g->shape, step, sections, &g->held, slot);
    fig_plan_unpack(&g->shape, slot, plan);
    return sections;
}

static fig_plan_step step_of(const ground *g, int32_t rows) {
    return (fig_plan_step){
        .rows = rows, .lengths = lengths, .queries = queries, .horizon = 1, .paces = g->paces};
}

/* Every tile of the line is in one piece, and each piece knows the ends of its segment. */
static void expect_line(const ground *g, int32_t rows) {
    const int32_t *prefix = (const void *)(plan + g->shape.layout.prefix[0]);
    const fig_split_start *starts = (const void *)(plan + g->shape.layout.starts[0]);
    const fig_split_shape *split = &g->shape.splits[0];
    fig_split_line line = fig_split_line_of(split, prefix, rows);
    int32_t tiles = 0;
    line.starts = starts;
    for (int32_t worker = 0; worker < split->workers; worker++) {
        fig_split_start start = starts[worker];
        if (worker >= g->held.readers[0]) assert_int_equal(start.count, 0);
        for (int32_t end; start.count > 0; tiles = end) {
            const fig_split_piece piece = fig_split_take(split, &line, &start);
            assert_int_equal(prefix[piece.row] + piece.tile, tiles);
            end = prefix[piece.row] + piece.tile_end;
            assert_in_range(worker, piece.first, piece.last);
            assert_true((piece.first < worker) == (piece.tile > 0));
            assert_true((piece.last > worker) == (end < prefix[piece.row + 1]));
            assert_in_range(fig_split_partial(split, &piece, piece.number), 0,
                            fig_split_partial_limit(split) - 1);
        }
    }
    assert_int_equal(tiles, line.tiles);
}

static void expect_strips(const ground *g, int32_t split_class) {
    const fig_strips_shape *shape = &g->strips[split_class];
    const int32_t workers = shape->workers - g->held.readers[split_class];
    const uint8_t *strips = fig_plan_strips_of(plan, fig_plan_strips_place(&g->shape), split_class);
    const int32_t *ranges = fig_strips_ranges(strips);
    const fig_strips_sizes made =
        fig_strips_make_within(shape, g->held.chunks, g->held.chunk_count, workers, own);
    assert_memory_equal(strips, own, (size_t)made.plan_bytes);
    for (int32_t worker = workers; worker < shape->workers; worker++)
        assert_int_equal(ranges[worker], ranges[worker + 1]);
}

static void a_divided_plan_has_rows_and_chunks_on_workers_of_their_own(void **state) {
    (void)state;
    static ground g;
    fig_random random = fig_random_seed(8);
    int32_t divided = 0;
    open_ground(&g);
    for (int32_t i = 0; i < CASES; i++) {
        const int32_t rows = fig_random_range(&random, 1, ROWS);
        const int32_t chunks = fig_random_range(&random, 0, 2);
        for (int32_t row = 0; row < rows; row++) {
            const int32_t is_chunk = row < chunks;
            queries[row] = is_chunk ? fig_random_range(&random, 9, 500) : 1;
            lengths[row] = queries[row] + fig_random_range(&random, 0, 3000);
        }
        const fig_plan_step step = step_of(&g, rows);
        const uint32_t sections = write_plan(&g, &step);
        assert_int_equal(g.held.readers[1], 0);
        expect_strips(&g, 0);
        expect_strips(&g, 1);
        if (g.held.readers[0] == 0) continue;
        divided++;
        assert_true(sections & FIG_PLAN_BY_UNITS);
        expect_line(&g, rows);
    }
    assert_true(divided > CASES / 4);
    fig_plan_held_finish(&g.held);
}

/* Without paces, the same steps have the plans that they had before. */
static void without_paces_no_plan_is_divided(void **state) {
    (void)state;
    static ground g;
    open_ground(&g);
    for (int32_t row = 0; row < 64; row++) {
        queries[row] = row == 0 ? 512 : 1;
        lengths[row] = 2048;
    }
    fig_plan_step step = step_of(&g, 64);
    write_plan(&g, &step);
    assert_true(g.held.readers[0] > 0);
    step.paces = NULL;
    g.held.exec = -1;
    write_plan(&g, &step);
    assert_int_equal(g.held.readers[0], 0);
    expect_strips(&g, 0);
    const fig_split_start *starts = (const void *)(plan + g.shape.layout.starts[0]);
    assert_true(starts[100].count > 0);
    fig_plan_held_finish(&g.held);
}

/* The rows' tiles stay, but the chunk comes and goes, so their cuts change. Then the chunk stays,
 * but the rows change. */
static void a_division_that_changes_is_sent(void **state) {
    (void)state;
    static ground g;
    open_ground(&g);
    for (int32_t row = 0; row < 64; row++) {
        queries[row] = 1;
        lengths[row] = 2048;
    }
    queries[0] = 0;
    const fig_plan_step step = step_of(&g, 64);
    write_plan(&g, &step);
    const uint32_t splits = FIG_PLAN_HAS_SPLITS, strips = FIG_PLAN_HAS_STRIPS;
    assert_int_equal(write_plan(&g, &step) & (splits | strips | FIG_PLAN_BY_UNITS), 0);
    queries[0] = 512;
    assert_int_equal(write_plan(&g, &step) & (splits | strips), splits | strips);
    expect_line(&g, 64);
    assert_int_equal(write_plan(&g, &step) & (splits | strips), 0);
    const int32_t readers = g.held.readers[0];
    for (int32_t row = 1; row < 64; row++)
        lengths[row] = 500;
    assert_int_equal(write_plan(&g, &step) & (splits | strips), splits | strips);
    assert_true(g.held.readers[0] < readers);
    expect_strips(&g, 0);
    queries[0] = 0;
    assert_int_equal(write_plan(&g, &step) & (splits | strips), splits | strips);
    assert_int_equal(g.held.by_units, 0);
    fig_plan_held_finish(&g.held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_steps_have_the_readers_that_were_best),
        cmocka_unit_test(a_step_of_one_kind_is_not_divided),
        cmocka_unit_test(small_work_of_one_kind_is_not_worth_a_division),
        cmocka_unit_test(measured_steps_with_tails_have_the_readers_that_were_best),
        cmocka_unit_test(without_tails_or_prefixes_nobody_reads_apart),
        cmocka_unit_test(every_division_leaves_workers_for_both),
        cmocka_unit_test(a_divided_plan_has_rows_and_chunks_on_workers_of_their_own),
        cmocka_unit_test(without_paces_no_plan_is_divided),
        cmocka_unit_test(a_division_that_changes_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
