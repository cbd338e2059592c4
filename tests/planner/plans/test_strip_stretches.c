/* test_strip_stretches.c: tests that the stretches of workers, each found alone, are those that
 * strips.c finds by walking along the line.
 *
 * The workers take their turns here one by one; on a device they take them side by side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/strip_stretches.h"
#include "tests/support/random.h"

enum { CASES = 6000, ROWS = 40, WORKERS = 160, PLAN_BYTES = 1 << 22 };

static _Alignas(16) uint8_t plan[PLAN_BYTES], own[PLAN_BYTES];

typedef struct ground {
    uint64_t seed;
    fig_strips_shape shape;
    int32_t count;
    fig_strips_segment chunks[ROWS];
    int32_t rows[ROWS], starts[ROWS + 1], lengths[ROWS], sequences[ROWS];
    int64_t units[ROWS + 1];
    fig_strip_place places[WORKERS + 1];
    fig_strip_stretch before[WORKERS];
    fig_strip_stretches line;
} ground;

static ground g;

static int32_t draw(fig_random *random, int32_t low, int32_t high) {
    return fig_random_range(random, low, high);
}

static void draw_shape(fig_random *random) {
    g.shape = (fig_strips_shape){.ratio = draw(random, 1, 16),
                                 .kv_heads = draw(random, 1, 8),
                                 .head_dim = 64 << draw(random, 0, 2),
                                 .tile_tokens = 1 << draw(random, 4, 7),
                                 .workers = draw(random, 1, WORKERS),
                                 .whole = draw(random, 0, 6) == 0};
    if (draw(random, 0, 2) == 0) g.shape.window = draw(random, 1, 700);
    g.shape.visible = draw(random, 0, 3) == 0 ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL;
}

/* Draws rows of all sizes, of which some are no chunks, and lists the chunks. */
static void draw_rows(fig_random *random, int32_t rows) {
    const int32_t most = draw(random, 9, draw(random, 0, 3) ? 400 : 4096);
    g.count = 0;
    for (int32_t row = 0; row < rows; row++) {
        const int32_t queries = draw(random, 0, 3) ? draw(random, 9, most) : draw(random, 0, 8);
        const int32_t past = draw(random, 0, draw(random, 0, 3) ? 900 : 20000);
        g.starts[row + 1] = g.starts[row] + queries;
        g.lengths[row] = queries + past;
        g.sequences[row] = draw(random, 0, 99);
        if (queries < 9) continue;
        g.rows[g.count] = row;
        g.chunks[g.count++] = (fig_strips_segment){.first_query = g.starts[row],
                                                   .queries = queries,
                                                   .sequence = g.sequences[row],
                                                   .end = g.lengths[row],
                                                   .visible = g.shape.visible};
    }
}

static void draw_ground(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    memset(&g, 0, sizeof g);
    g.seed = seed;
    draw_shape(&random);
    draw_rows(&random, seed % 3 == 0 ? 1 : draw(&random, 0, seed % 3 == 1 ? 4 : ROWS));
    g.line = (fig_strip_stretches){.visible = g.shape.visible,
                                   .rows = g.rows,
                                   .starts = g.starts,
                                   .lengths = g.lengths,
                                   .sequences = g.sequences,
                                   .units = g.units,
                                   .places = g.places,
                                   .before = g.before};
    fig_strip_cutter_prepare(&g.line.cut, &g.shape);
    g.line.cut.count = g.count;
}

/* ---- The four turns -------------------------------------------------------------------------- */

static void measure_chunks(void) {
    int64_t tiles = 0;
    int32_t has_pair = 0;
    for (int32_t i = 0; i < g.count; i++) {
        const fig_strip_measure own_measure = fig_strip_stretches_measure(&g.line, i);
        g.units[i + 1] = g.units[i] + own_measure.units * g.shape.kv_heads;
        tiles += own_measure.tiles * g.shape.kv_heads;
        has_pair |= own_measure.has_pair;
    }
    fig_strip_stretches_share(&g.line, tiles, has_pair);
}

static void find_tuples(void) {
    if (g.count != 1) return;
    const fig_strips_segment chunk = fig_strip_stretches_chunk(&g.line, 0);
    g.line.set = fig_strip_tuples_of(&g.line.cut, &chunk);
    for (int32_t w = 0; w < g.line.set.tuples * g.line.set.strips; w++)
        if (!fig_strip_tuples_pay(&g.line.cut,
                                  fig_strip_tuples_units(&g.line.cut, &g.line.set, &chunk, w)))
            g.line.set.tuples = 0;
}

static fig_strip_stretch count_all(void) {
    fig_strip_stretch sum = {0, 0, 0};
    for (int32_t w = 0; w <= g.shape.workers; w++)
        g.places[w] = fig_strip_stretches_place(&g.line, w);
    for (int32_t w = 0; w < g.shape.workers; w++) {
        const fig_strip_stretch count = fig_strip_stretches_count(&g.line, w);
        g.before[w] = sum;
        sum.items += count.items;
        sum.pieces += count.pieces;
        sum.vectors += count.vectors;
    }
    return sum;
}

static void write_items(const fig_strip_stretch *sum) {
    fig_strips_head *head = (fig_strips_head *)(void *)own;
    const int32_t last = g.count > 0 ? g.rows[g.count - 1] + 1 : 0;
    memset(own, 0, sizeof *head + fig_size_align((uint64_t)(g.shape.workers + 1) * 4, 16));
    *head = (fig_strips_head){.workers = g.shape.workers,
                              .items = sum->items,
                              .partial_vectors = sum->vectors,
                              .counters = sum->pieces * FIG_STRIPS_ARRIVALS,
                              .tile_tokens = g.shape.tile_tokens,
                              .ratio = g.shape.ratio,
                              .kv_heads = g.shape.kv_heads,
                              .window = g.shape.window,
                              .queries = g.starts[last]};
    int32_t *ranges = (int32_t *)(uintptr_t)fig_strips_ranges(own);
    fig_strips_item *items = (fig_strips_item *)(uintptr_t)fig_strips_items(own, g.shape.workers);
    for (int32_t w = 0; w < g.shape.workers; w++) {
        fig_strip_walk walk = fig_strip_stretches_begin(&g.line, w);
        fig_strip_piece piece;
        int32_t end = ranges[w];
        while (fig_strip_stretches_next(&g.line, &walk, &piece))
            items[end++] = fig_strip_stretches_item(&g.line, &walk, &piece, w);
        fig_strip_cutter_mark_last(items + ranges[w], items + end);
        ranges[w + 1] = end;
    }
}

static void expect_same(int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if (plan[i] != own[i])
            fail_msg("seed %llu: byte %lld is %u, expected %u", (unsigned long long)g.seed,
                     (long long)i, own[i], plan[i]);
}

static void stretches_found_alone_are_those_found_in_order(void **state) {
    (void)state;
    int tuples = 0, cuts = 0, wholes = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draw_ground(seed);
        const fig_strips_sizes made = fig_strips_make(&g.shape, g.chunks, g.count, plan);
        assert_true(made.plan_bytes <= PLAN_BYTES);
        measure_chunks();
        find_tuples();
        const fig_strip_stretch sum = count_all();
        write_items(&sum);
        expect_same(made.plan_bytes);
        tuples += g.line.set.tuples > 0;
        cuts += sum.pieces > 0 && g.line.set.tuples == 0;
        wholes += g.shape.whole;
    }
    assert_true(tuples > CASES / 50 && cuts > CASES / 5 && wholes > CASES / 20);
}

/* Adds up the same terms one by one. */
static void a_sum_of_quotients_is_that_of_its_terms(void **state) {
    (void)state;
    fig_random random = fig_random_seed(7);
    for (int32_t n = 0; n < 20000; n++) {
        const uint32_t count = (uint32_t)draw(&random, 0, 300);
        const uint32_t step = (uint32_t)draw(&random, 0, 200);
        const uint32_t start = (uint32_t)draw(&random, 0, n % 2 ? 100 : 1 << 20);
        const int32_t bits = draw(&random, 0, 8);
        int64_t sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum += (start + step * i) >> bits;
        assert_true(fig_strip_stretches_sum(count, step, start, bits) == sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stretches_found_alone_are_those_found_in_order),
        cmocka_unit_test(a_sum_of_quotients_is_that_of_its_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
