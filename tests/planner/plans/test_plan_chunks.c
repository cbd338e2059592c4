/* test_plan_chunks.c: tests plans of steps with chunks, which are rows with more query tokens than
 * a split takes.
 *
 * For comparison, the test lists the chunks by hand, and makes the plan of each class's strips
 * separately. It tries all ways to divide a few query tokens among rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/plan.h"
#include "tests/support/random.h"

enum { ROWS = 24, PLAN_CAPACITY = 1 << 20, NARROW = 8, CASES = 1500, UNTOUCHED = 0xa5 };

static _Alignas(16) uint8_t slot[PLAN_CAPACITY], plan[PLAN_CAPACITY], own[PLAN_CAPACITY];
static int32_t lengths[ROWS], sequences[ROWS], queries[ROWS];

typedef struct ground {
    fig_plan_shape shape;
    fig_strips_shape strips[FIG_CLASS_LIMIT];
    fig_plan_held held;
} ground;

static void open_held(ground *g) {
    const fig_plan_held_limits limits = {.row_limit = ROWS,
                                         .chunk_classes = g->shape.class_count,
                                         .chunk_least = NARROW + 1,
                                         .chunk_shapes = g->strips,
                                         .strips_bytes = fig_plan_strips_room(&g->shape)};
    assert_int_equal(fig_plan_held_init(&g->held, &limits), FIG_OK);
}

static void draw_ground(fig_random *random, ground *g) {
    memset(g, 0, sizeof *g);
    fig_plan_shape *shape = &g->shape;
    shape->row_limit = fig_random_range(random, 1, ROWS);
    shape->class_count = fig_random_range(random, 1, 3);
    shape->row_tokens = fig_random_range(random, NARROW + 1, 300);
    shape->query_limit = fig_random_range(random, 1, shape->row_limit * shape->row_tokens);
    for (int32_t i = 0; i < shape->class_count; i++) {
        const int32_t kv_heads = fig_random_range(random, 1, 4);
        shape->splits[i] = (fig_split_shape){.row_limit = shape->row_limit,
                                             .groups = kv_heads,
                                             .tile_tokens = 16,
                                             .workers = fig_random_range(random, 1, 140),
                                             .row_tokens = NARROW};
        if (i == 1) shape->splits[i].window = fig_random_range(random, 1, 100);
        g->strips[i] = (fig_strips_shape){.ratio = fig_random_range(random, 1, 16),
                                          .kv_heads = kv_heads,
                                          .head_dim = 64,
                                          .tile_tokens = 128,
                                          .window = shape->splits[i].window,
                                          .workers = fig_random_range(random, 1, 140)};
        g->strips[i].visible = fig_random_range(random, 0, 1) ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL;
    }
    fig_plan_lay_out(shape);
    assert_int_equal(fig_plan_add_strips(shape, g->strips, NARROW + 1), FIG_OK);
    open_held(g);
}

static fig_plan_step draw_step(fig_random *random, const ground *g) {
    fig_plan_step step = {.rows = fig_random_range(random, 0, g->shape.row_limit),
                          .lengths = lengths,
                          .sequences = sequences,
                          .queries = queries,
                          .horizon = 1};
    int32_t left = g->shape.query_limit;
    for (int32_t row = 0; row < step.rows; row++) {
        const int32_t most = fig_size_min(left, g->shape.row_tokens);
        const int32_t narrow = fig_size_min(most, NARROW + 1);
        queries[row] = fig_random_range(random, 0, fig_random_range(random, 0, 1) ? most : narrow);
        lengths[row] = queries[row] + fig_random_range(random, 0, 500);
        if (fig_random_range(random, 0, 6) == 0) lengths[row] = 0;
        sequences[row] = (row * 5 + 2) % ROWS;
        left -= queries[row];
    }
    return step;
}

static uint32_t write_whole(ground *g, const fig_plan_step *step) {
    g->held.exec = -1;
    const uint32_t sections = fig_plan_settle(&g->shape, step, &g->held);
    memset(slot, UNTOUCHED, sizeof slot);
    return fig_plan_write(&g->shape, step, sections, &g->held, slot);
}

/* ---- The section ----------------------------------------------------------------------------- */

static int32_t list_chunks(const fig_plan_step *step, int32_t visible, fig_strips_segment *chunks) {
    int32_t count = 0, first = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        if (step->queries[row] > NARROW && step->lengths[row] > 0)
            chunks[count++] = (fig_strips_segment){.first_query = first,
                                                   .queries = step->queries[row],
                                                   .sequence = step->sequences[row],
                                                   .end = step->lengths[row],
                                                   .visible = visible};
        first += step->queries[row];
    }
    return count;
}

static void expect_strips(const ground *g, const fig_plan_step *step) {
    fig_strips_segment chunks[ROWS];
    const uint32_t place = fig_plan_strips_place(&g->shape);
    for (int32_t i = 0; i < g->shape.class_count; i++) {
        const int32_t count = list_chunks(step, g->strips[i].visible, chunks);
        const fig_strips_sizes made = fig_strips_make(&g->strips[i], chunks, count, own);
        assert_memory_equal(fig_plan_strips_of(plan, place, i), own, (size_t)made.plan_bytes);
    }
}

/* Chunks are on no line; all other rows are, as if there were no chunks. */
static void expect_lines(const ground *g, const fig_plan_step *step) {
    for (int32_t i = 0; i < g->shape.class_count; i++) {
        const int32_t *prefix = (const void *)(plan + g->shape.layout.prefix[i]);
        for (int32_t row = 0; row < step->rows; row++) {
            const int32_t tiles = prefix[row + 1] - prefix[row];
            const int is_on = step->lengths[row] > 0 && step->queries[row] > 0;
            if (!is_on || step->queries[row] > NARROW) assert_int_equal(tiles, 0);
            if (is_on && step->queries[row] <= NARROW) assert_true(tiles > 0);
        }
    }
}

static void a_plan_has_the_strips_of_its_chunks(void **state) {
    (void)state;
    static ground g;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        draw_ground(&random, &g);
        for (int32_t n = 0; n < 3; n++) {
            const fig_plan_step step = draw_step(&random, &g);
            const uint32_t bytes = write_whole(&g, &step);
            assert_true(bytes <= g.shape.layout.bytes && bytes % 16 == 0);
            assert_int_equal(((const fig_plan_head *)(const void *)slot)->bytes, bytes);
            assert_int_equal(slot[bytes], UNTOUCHED);
            memset(plan, UNTOUCHED, g.shape.layout.bytes + 16);
            fig_plan_unpack(&g.shape, slot, plan);
            assert_int_equal(plan[g.shape.layout.bytes], UNTOUCHED);
            expect_strips(&g, &step);
            expect_lines(&g, &step);
        }
        fig_plan_held_finish(&g.held);
    }
}

static void pages_lie_behind_the_strips(void **state) {
    (void)state;
    static ground g;
    const fig_plan_page pages[] = {{.address = 64, .page = 7}, {.address = 128, .page = 9}};
    fig_random random = fig_random_seed(3);
    draw_ground(&random, &g);
    const fig_plan_step step = draw_step(&random, &g);
    const uint32_t bytes = write_whole(&g, &step);
    assert_int_equal(fig_plan_add_pages(slot, pages, 2), bytes + 32);
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    const fig_plan_places places = fig_plan_places_of(&g.shape, head);
    assert_int_equal(places.pages, bytes);
    assert_int_equal(places.bytes, head->bytes);
    assert_memory_equal(slot + places.pages, pages, sizeof pages);
    memset(plan, UNTOUCHED, g.shape.layout.bytes + 16);
    fig_plan_unpack(&g.shape, slot, plan);
    assert_int_equal(plan[g.shape.layout.bytes], UNTOUCHED);
    expect_strips(&g, &step);
    fig_plan_held_finish(&g.held);
}

/* A head that claims more strips than the plan has room for is unsound: its bytes do not add up. */
static void strips_that_do_not_fit_are_unsound(void **state) {
    (void)state;
    static ground g;
    fig_random random = fig_random_seed(4);
    draw_ground(&random, &g);
    fig_plan_head head = {.rows = 0, .sections = FIG_PLAN_HAS_STRIPS, .bytes = sizeof head};
    const uint32_t room = fig_plan_strips_room(&g.shape), most = (uint32_t)sizeof head + room;
    head.bytes = most;
    assert_int_equal(fig_plan_places_of(&g.shape, &head).bytes, most);
    head.bytes = most + 16;
    assert_int_not_equal(fig_plan_places_of(&g.shape, &head).bytes, head.bytes);
    head.bytes = most - 8;
    assert_int_not_equal(fig_plan_places_of(&g.shape, &head).bytes, head.bytes);
    head.bytes = 32;
    assert_int_not_equal(fig_plan_places_of(&g.shape, &head).bytes, head.bytes);
    head.bytes = most;
    head.page_count = UINT32_MAX / 16;
    assert_int_not_equal(fig_plan_places_of(&g.shape, &head).bytes, head.bytes);
    fig_plan_held_finish(&g.held);
}

static void a_shape_without_chunks_has_no_place_for_strips(void **state) {
    (void)state;
    static ground g;
    const fig_plan_head head = {.sections = FIG_PLAN_HAS_STRIPS};
    const fig_plan_head known = {.sections = FIG_PLAN_HAS_LENGTHS};
    fig_random random = fig_random_seed(5);
    draw_ground(&random, &g);
    assert_int_equal(fig_plan_has_places(&g.shape, &head), 1);
    assert_true(fig_plan_all_sections(&g.shape, &known) & FIG_PLAN_HAS_STRIPS);
    fig_plan_lay_out(&g.shape);
    assert_int_equal(fig_plan_has_places(&g.shape, &head), 0);
    assert_false(fig_plan_all_sections(&g.shape, &known) & FIG_PLAN_HAS_STRIPS);
    fig_plan_held_finish(&g.held);
}

/* ---- Sent only if they changed --------------------------------------------------------------- */

static uint32_t settle(ground *g, int32_t a, int32_t b) {
    const fig_plan_step step = {.rows = 2, .lengths = lengths, .queries = queries, .horizon = 1};
    queries[0] = a;
    queries[1] = b;
    return fig_plan_settle(&g->shape, &step, &g->held) & FIG_PLAN_HAS_STRIPS;
}

static void check_travel(int32_t visible) {
    static ground g;
    memset(&g, 0, sizeof g);
    g.shape =
        (fig_plan_shape){.row_limit = 2, .class_count = 1, .row_tokens = 64, .query_limit = 128};
    g.shape.splits[0] = (fig_split_shape){
        .row_limit = 2, .groups = 2, .tile_tokens = 16, .workers = 5, .row_tokens = NARROW};
    g.strips[0] = (fig_strips_shape){
        .ratio = 4, .kv_heads = 2, .head_dim = 64, .tile_tokens = 128, .workers = 9};
    g.strips[0].visible = visible;
    fig_plan_lay_out(&g.shape);
    assert_int_equal(fig_plan_add_strips(&g.shape, g.strips, NARROW + 1), FIG_OK);
    open_held(&g);
    lengths[0] = 300;
    lengths[1] = 200;
    assert_true(settle(&g, 1, 2));  /* the device holds nothing */
    assert_false(settle(&g, 1, 8)); /* no chunk before and none here */
    assert_true(settle(&g, 1, 9));
    assert_false(settle(&g, 1, 9));
    lengths[0]++; /* not the chunk */
    assert_false(settle(&g, 1, 9));
    lengths[1]++;
    assert_true(settle(&g, 1, 9));
    assert_true(settle(&g, 2, 9)); /* the chunk's tokens lie elsewhere */
    assert_true(settle(&g, 9, 9));
    assert_true(settle(&g, 1, 9));
    assert_true(settle(&g, 1, 1));
    assert_false(settle(&g, 1, 1));
    lengths[1] = 0;
    assert_false(settle(&g, 1, 30)); /* idle, whatever its count */
    fig_plan_held_finish(&g.held);
}

static void strips_that_the_device_holds_do_not_travel(void **state) {
    (void)state;
    check_travel(FIG_STRIPS_CAUSAL);
    check_travel(FIG_STRIPS_ALL);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* The most strips of up to `rows` segments of at least `least` query tokens. */
static int32_t most_strips(int32_t rows, int32_t left, int32_t step, int32_t least) {
    static int32_t best[8][128];
    memset(best, 0, sizeof best);
    for (int32_t row = 1; row <= rows; row++)
        for (int32_t n = 0; n <= left; n++) {
            best[row][n] = best[row - 1][n];
            for (int32_t own_queries = least; own_queries <= n; own_queries++) {
                const int32_t all =
                    best[row - 1][n - own_queries] + (own_queries + step - 1) / step;
                if (all > best[row][n]) best[row][n] = all;
            }
        }
    return best[rows][left];
}

static void the_bound_of_items_is_that_of_the_worst_division(void **state) {
    (void)state;
    static const int32_t leasts[] = {1, 2, 5, 9, 17};
    for (int32_t ratio = 1; ratio <= 16; ratio = ratio < 4 ? ratio + 1 : ratio * 2)
        for (size_t l = 0; l < sizeof leasts / sizeof leasts[0]; l++)
            for (int32_t rows = 1; rows < 6; rows++)
                for (int32_t tokens = 0; tokens < 100; tokens += 3) {
                    const fig_strips_shape shape = {.ratio = ratio,
                                                    .kv_heads = 3,
                                                    .head_dim = 64,
                                                    .tile_tokens = 128,
                                                    .workers = 7};
                    const int32_t step = 2 * fig_strips_half(ratio);
                    const fig_strips_sizes bound = fig_strip_sizes_bound(
                        &shape, &(fig_strips_limits){
                                    .segments = rows, .queries = tokens, .least = leasts[l]});
                    assert_int_equal(bound.items,
                                     3 * most_strips(rows, tokens, step, leasts[l]) + 6);
                }
}

/* Of random steps some fill the plan to its last byte but the cuts' items, which few need. */
static void no_step_exceeds_the_bounds_and_some_reach_them(void **state) {
    (void)state;
    static ground g;
    int32_t reached = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed + 50000);
        fig_strips_segment chunks[ROWS];
        draw_ground(&random, &g);
        const fig_strips_limits limits = {
            .segments = g.shape.row_limit, .queries = g.shape.query_limit, .least = NARROW + 1};
        for (int32_t n = 0; n < 4; n++) {
            const fig_plan_step step = draw_step(&random, &g);
            const int32_t count = list_chunks(&step, g.strips[0].visible, chunks);
            for (int32_t i = 0; i < g.shape.class_count; i++) {
                const fig_strips_sizes bound = fig_strip_sizes_bound(&g.strips[i], &limits);
                const fig_strips_sizes size = fig_strip_sizes_of(&g.strips[i], chunks, count);
                const fig_strips_sizes made = fig_strips_make(&g.strips[i], chunks, count, own);
                assert_true(size.plan_bytes <= bound.plan_bytes);
                assert_true(size.partial_vectors <= bound.partial_vectors);
                assert_true(size.counters <= bound.counters);
                assert_true(made.items <= size.items && made.plan_bytes <= size.plan_bytes);
                assert_true(made.partial_vectors <= size.partial_vectors);
                assert_true(made.counters <= size.counters);
                reached += size.plan_bytes == bound.plan_bytes;
            }
        }
        fig_plan_held_finish(&g.held);
    }
    assert_true(reached > CASES / 20);
}

static void a_plan_that_is_too_large_is_refused(void **state) {
    (void)state;
    static ground g;
    memset(&g, 0, sizeof g);
    g.shape = (fig_plan_shape){
        .row_limit = 1024, .class_count = 1, .row_tokens = 4096, .query_limit = 1 << 20};
    g.shape.splits[0] = (fig_split_shape){
        .row_limit = 1024, .groups = 8, .tile_tokens = 16, .workers = 5, .row_tokens = NARROW};
    g.strips[0] = (fig_strips_shape){
        .ratio = 16, .kv_heads = 16, .head_dim = 64, .tile_tokens = 128, .workers = 132};
    fig_plan_lay_out(&g.shape);
    assert_int_equal(fig_plan_add_strips(&g.shape, g.strips, NARROW + 1), FIG_TOO_LARGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_has_the_strips_of_its_chunks),
        cmocka_unit_test(pages_lie_behind_the_strips),
        cmocka_unit_test(strips_that_do_not_fit_are_unsound),
        cmocka_unit_test(a_shape_without_chunks_has_no_place_for_strips),
        cmocka_unit_test(strips_that_the_device_holds_do_not_travel),
        cmocka_unit_test(the_bound_of_items_is_that_of_the_worst_division),
        cmocka_unit_test(no_step_exceeds_the_bounds_and_some_reach_them),
        cmocka_unit_test(a_plan_that_is_too_large_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
