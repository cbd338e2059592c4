/* test_strips.c: tests that every tile of every strip has one item and every partial one piece,
 * whatever the rows. No step may need more than its bounds, and some steps reach them.
 *
 * For comparison, the test walks over segments, queries and tokens one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/strips.h"
#include "tests/support/random.h"
#include "tests/support/strip_heads.h"

enum {
    RANDOM_STEPS = 4000,
    SEGMENT_LIMIT = 40,
    PLAN_BYTES = 1 << 21,
    PARTIAL_LIMIT = 1 << 18,
    COUNTER_LIMIT = 1 << 12,
    ITEM_LIMIT = PLAN_BYTES / sizeof(fig_strips_item)
};

static struct ground {
    uint64_t seed;
    fig_strips_shape shape;
    int32_t count;
    fig_strips_segment segments[SEGMENT_LIMIT];
    fig_strips_sizes made, size, bound;
    uint8_t taken[PARTIAL_LIMIT]; /* 1: a piece leaves its vector at this place */
    uint8_t counted[COUNTER_LIMIT];
    fig_strips_item items[ITEM_LIMIT];
} ground;
static _Alignas(16) uint8_t folded[PLAN_BYTES]; /* the plan as it is made */
static _Alignas(16) uint8_t plan[PLAN_BYTES];   /* the same with one head per item */

static void expect(const char *what, int64_t index, int64_t seen, int64_t expected) {
    const fig_strips_shape *s = &ground.shape;
    if (seen == expected) return;
    print_error("seed %llu, ratio %d, kv_heads %d, tile %d, window %d, workers %d, whole %d:",
                (unsigned long long)ground.seed, s->ratio, s->kv_heads, s->tile_tokens, s->window,
                s->workers, s->whole);
    for (int32_t i = 0; i < ground.count; i++)
        print_error(" %d of %d to %d%s", ground.segments[i].queries, ground.segments[i].first_token,
                    ground.segments[i].end,
                    ground.segments[i].visible == FIG_STRIPS_ALL ? ", all" : "");
    print_error("\n");
    fail_msg("%s %lld: %lld, expected %lld", what, (long long)index, (long long)seen,
             (long long)expected);
}

static void expect_at_most(const char *what, int64_t seen, int64_t limit) {
    expect(what, limit, seen > limit ? seen : limit, limit);
}

static int sees(const fig_strips_segment *s, int32_t query, int32_t token) {
    const int32_t last = s->end - s->queries + query;
    if (token < s->first_token || token >= s->end) return 0;
    if (s->visible == FIG_STRIPS_ALL) return 1;
    return token <= last && (ground.shape.window == 0 || token > last - ground.shape.window);
}

/* Takes the vectors of a partial. No other piece may have taken them. */
static void take_partial(const fig_strips_item *item) {
    const int32_t vectors = item->queries * ground.shape.ratio;
    for (int32_t v = 0; v < vectors; v++) {
        assert_in_range(item->partial + v, 0, ground.made.partial_vectors - 1);
        expect("vector of partials", item->partial + v, ground.taken[item->partial + v], 0);
        ground.taken[item->partial + v] = 1;
    }
}

static void check_item(const fig_strips_item *item, const fig_strips_segment *segment,
                       int32_t query, int32_t queries, int32_t head) {
    const int is_causal = segment->visible == FIG_STRIPS_CAUSAL;
    expect("query", query, item->query, segment->first_query + query);
    expect("queries", query, item->queries, queries);
    expect("head", head, item->head, head);
    expect("sequence", query, item->sequence, segment->sequence);
    expect("end", query, item->end, segment->end);
    expect("first_token", query, item->first_token, segment->first_token);
    expect("causal", query, (item->flags & FIG_STRIPS_IS_CAUSAL) != 0, is_causal);
    expect("lone", query, (item->flags & FIG_STRIPS_LONE) != 0,
           queries <= fig_strips_half(ground.shape.ratio));
    for (int32_t i = 0; i < queries; i++) {
        const int32_t limit = fig_strips_limit(item, i);
        expect("limit", i, sees(segment, query + i, limit), 1);
        expect("limit + 1", i, sees(segment, query + i, limit + 1), 0);
        expect("floor", i,
               sees(segment, query + i, fig_strips_floor(item, ground.shape.window, limit)), 1);
        expect("floor - 1", i,
               sees(segment, query + i, fig_strips_floor(item, ground.shape.window, limit) - 1), 0);
    }
}

/* Checks the items of one strip, beginning at *next, and moves *next past them. */
static void check_strip(const fig_strips_item **next, const fig_strips_item *end,
                        const fig_strips_segment *segment, int32_t query, int32_t head) {
    const int32_t step = 2 * fig_strips_half(ground.shape.ratio), size = ground.shape.tile_tokens;
    const int32_t queries = fig_size_min(segment->queries - query, step);
    const fig_strips_item *first = *next;
    int32_t low = INT32_MAX, high = -1;
    for (int32_t token = segment->first_token; token < segment->end; token++)
        for (int32_t i = query; i<query + queries; i += queries> 1 ? queries - 1 : 1)
            if (sees(segment, i, token)) {
                low = token < low ? token : low;
                high = token;
            }
    assert_true(first < end);
    int32_t tile = low / size, piece = 0;
    for (; tile <= high / size; piece++, (*next)++) {
        const fig_strips_item *item = *next;
        assert_true(item < end);
        check_item(item, segment, query, queries, head);
        expect("tile", query, item->tile, tile);
        assert_true(item->tiles > 0);
        tile += item->tiles;
        expect("pieces", query, item->pieces, first->pieces);
        expect("counter", query, item->counter, first->counter);
        if (first->pieces == 1) {
            expect("partial", query, item->partial, -1);
            continue;
        }
        expect("first partial", query, item->first_partial, first->partial);
        expect("partial", piece, item->partial,
               first->partial + piece * queries * ground.shape.ratio);
        take_partial(item);
    }
    expect("end of the strip", query, tile, high / size + 1);
    expect("pieces of the strip", query, piece, first->pieces);
    if (first->pieces == 1) return;
    for (int32_t i = 0; i < piece * FIG_STRIPS_ARRIVALS; i++) {
        assert_in_range(first->counter + i, 0, ground.made.counters - 1);
        expect("counter", first->counter + i, ground.counted[first->counter + i], 0);
        ground.counted[first->counter + i] = 1;
    }
}

static fig_strips_cost cost_of(const fig_strips_item *item) {
    return item->flags & FIG_STRIPS_IS_SHARED
               ? fig_strips_shared_cost_of(&ground.shape, item->queries)
               : fig_strips_cost_of(&ground.shape, item->queries);
}

/* No worker has more than an equal share plus what a cut may move. */
static void check_loads(void) {
    const int32_t *ranges = fig_strips_ranges(plan);
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    int64_t once = 0, tile = 0, units = 0;
    for (int32_t i = 0; i < ground.made.items; i++) {
        const fig_strips_cost cost = cost_of(&items[i]);
        units += cost.tile * items[i].tiles +
                 (i == 0 || items[i].partial <= items[i].first_partial ? cost.once : 0);
        once = cost.once > once ? cost.once : once;
        tile = cost.tile > tile ? cost.tile : tile;
    }
    for (int32_t w = 0; w < ground.shape.workers; w++) {
        int64_t load = 0;
        for (int32_t i = ranges[w]; i < ranges[w + 1]; i++) {
            const fig_strips_cost cost = cost_of(&items[i]);
            load += cost.once + cost.tile * items[i].tiles;
        }
        if (ground.made.items == 0 || ground.shape.whole) continue;
        int64_t active = ground.shape.workers;
        if ((units - once) / tile < active) active = (units - once) / tile;
        if (active < 1) active = 1;
        const int64_t most = (units - once + active - 1) / active + 2 * once + 2 * tile;
        if (active == ground.shape.workers || load > most + units / active)
            expect_at_most("load of a worker", load, most);
    }
}

/* Returns the warpgroups that process an item, as bits. */
static int32_t groups_of(const fig_strips_item *item) {
    if (!(item->flags & FIG_STRIPS_LONE)) return 3;
    return item->flags & FIG_STRIPS_SECOND ? 2 : 1;
}

/* The two warpgroups of a worker take turns at its lone items, the first one first. The last items
 * of both are marked. */
static void check_turns(void) {
    const int32_t *ranges = fig_strips_ranges(plan);
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    for (int32_t w = 0; w < ground.shape.workers; w++) {
        int32_t turn = 0, later = 0;
        for (int32_t i = ranges[w + 1] - 1; i >= ranges[w]; i--) {
            expect("last item", i, (items[i].flags & FIG_STRIPS_IS_LAST) != 0,
                   (later & groups_of(&items[i])) == 0);
            later |= groups_of(&items[i]);
        }
        for (int32_t i = ranges[w]; i < ranges[w + 1]; i++) {
            const int32_t is_lone = (items[i].flags & FIG_STRIPS_LONE) != 0;
            expect("warpgroup of item", i, (items[i].flags & FIG_STRIPS_SECOND) != 0,
                   is_lone && turn);
            turn ^= is_lone;
        }
    }
}

/* Sorts items by segment, head, query and tile, the order in which the test walks over them. */
static int by_place(const void *a, const void *b) {
    const fig_strips_item *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    if (x->query != y->query) return x->query < y->query ? -1 : 1;
    return (x->tile > y->tile) - (x->tile < y->tile);
}

static void check_step(void) {
    const fig_strips_shape *shape = &ground.shape;
    int64_t queries = 0;
    ground.size = fig_strip_sizes_of(shape, ground.segments, ground.count);
    assert_true(ground.size.plan_bytes <= PLAN_BYTES);
    memset(folded, 0xa5, (size_t)ground.size.plan_bytes + 64);
    ground.made = fig_strips_make(shape, ground.segments, ground.count, folded);
    for (int32_t i = 0; i < ground.count; i++)
        queries += ground.segments[i].queries;
    ground.bound = fig_strip_sizes_bound(
        shape, &(fig_strips_limits){.segments = ground.count, .queries = queries});
    for (int32_t i = 0; i < 64; i++)
        expect("byte behind the plan", i, folded[ground.size.plan_bytes + i], 0xa5);
    expect_at_most("items of the plan", ground.made.items, ground.size.items);
    ground.made.items = fig_strip_heads_unfold(folded, plan);
    expect_at_most("items", ground.made.items, ground.size.items);
    expect_at_most("partials", ground.made.partial_vectors, ground.size.partial_vectors);
    expect_at_most("counters", ground.made.counters, ground.size.counters);
    expect_at_most("bytes", ground.made.plan_bytes, ground.size.plan_bytes);
    expect_at_most("items of the bound", ground.size.items, ground.bound.items);
    expect_at_most("bytes of the bound", ground.size.plan_bytes, ground.bound.plan_bytes);
    expect("partials of the bound", 0, ground.size.partial_vectors, ground.bound.partial_vectors);
    assert_true(ground.made.partial_vectors <= PARTIAL_LIMIT);
    assert_true(ground.made.counters <= COUNTER_LIMIT);
    memset(ground.counted, 0, sizeof ground.counted);
    memset(ground.taken, 0, (size_t)ground.made.partial_vectors);
    const int32_t *ranges = fig_strips_ranges(plan);
    const fig_strips_item *items = fig_strips_items(plan, shape->workers);
    expect("first range", 0, ranges[0], 0);
    expect("last range", shape->workers, ranges[shape->workers], ground.made.items);
    for (int32_t w = 0; w < shape->workers; w++)
        assert_true(ranges[w] <= ranges[w + 1]);
    memcpy(ground.items, items, (size_t)ground.made.items * sizeof *items);
    qsort(ground.items, (size_t)ground.made.items, sizeof *items, by_place);
    const fig_strips_item *next = ground.items, *end = ground.items + ground.made.items;
    for (int32_t s = 0; s < ground.count; s++)
        for (int32_t head = 0; head < shape->kv_heads; head++)
            for (int32_t q = 0; q < ground.segments[s].queries;
                 q += 2 * fig_strips_half(shape->ratio))
                check_strip(&next, end, &ground.segments[s], q, head);
    expect("items", 0, next - ground.items, ground.made.items);
    for (int64_t v = 0; v < ground.made.partial_vectors; v++)
        expect("vector of partials", v, ground.taken[v], 1);
    check_loads();
    check_turns();
}

static void add(int32_t queries, int32_t first, int32_t end) {
    const int32_t n = ground.count++;
    ground.segments[n] = (fig_strips_segment){
        .first_query =
            n > 0 ? ground.segments[n - 1].first_query + ground.segments[n - 1].queries : 3,
        .queries = queries,
        .sequence = n * 7,
        .first_token = first,
        .end = end};
}

static void draw_step(fig_random *random) {
    const int32_t most = 1 << fig_random_range(random, 0, 9);
    ground.shape = (fig_strips_shape){.ratio = fig_random_range(random, 1, 16),
                                      .kv_heads = fig_random_range(random, 1, 4),
                                      .head_dim = 64 << fig_random_range(random, 0, 2),
                                      .workers = fig_random_range(random, 1, 140),
                                      .whole = fig_random_range(random, 0, 3) == 0};
    ground.shape.tile_tokens = fig_random_range(random, 0, 1) ? 16 : 128;
    if (fig_random_range(random, 0, 2) == 0) ground.shape.window = fig_random_range(random, 1, 300);
    ground.count = 0;
    /* a single row makes tuples */
    const int32_t row_limit = fig_random_range(random, 0, 1) ? 12 : 1;
    for (int32_t rows = fig_random_range(random, 0, row_limit); rows > 0; rows--) {
        const int32_t queries = fig_random_range(random, 0, most);
        const int32_t before = fig_random_range(random, 0, 1 << fig_random_range(random, 0, 10));
        add(queries, 0, queries + before);
        fig_strips_segment *last = &ground.segments[ground.count - 1];
        if (fig_random_range(random, 0, 3) == 0) last->visible = FIG_STRIPS_ALL;
        if (fig_random_range(random, 0, 3) == 0)
            last->first_token = fig_random_range(random, 0, before);
    }
}

static void every_tile_has_one_item_and_every_partial_one_piece(void **state) {
    (void)state;
    for (uint64_t step = 0; step < RANDOM_STEPS; step++) {
        fig_random random = fig_random_seed(step);
        ground.seed = step;
        draw_step(&random);
        check_step();
    }
}

/* There are as many full strips as cuts, and each cut divides a strip of its own into two
 * pieces. */
static void some_steps_need_all_partials_and_counters(void **state) {
    (void)state;
    static const int32_t counts[] = {2, 3, 5, 16, 131, 132};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int32_t workers = counts[i];
        ground.shape = (fig_strips_shape){
            .ratio = 4, .kv_heads = 1, .head_dim = 128, .tile_tokens = 128, .workers = workers};
        ground.count = 0;
        add(32 * (workers - 1), 0, 1 << 17);
        ground.segments[0].visible = FIG_STRIPS_ALL;
        check_step();
        expect("partials", workers, ground.made.partial_vectors, ground.bound.partial_vectors);
        expect("counters", workers, ground.made.counters, ground.bound.counters);
        expect("items", workers, ground.made.items, ground.bound.items);
    }
}

/* All workers of a tuple read the same tiles in step, and nothing is cut if heads divide evenly
 * among the workers. */
static void a_long_chunk_is_read_in_step(void **state) {
    (void)state;
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132};
    ground.count = 0;
    add(512, 0, 8192);
    check_step();
    expect("partials", 0, ground.made.partial_vectors, 0);
    expect("items", 0, ground.made.items, 128);
    const fig_strips_item *items = fig_strips_items(plan, 132);
    for (int32_t w = 0; w < 128; w++) {
        const fig_strips_item *item = &items[fig_strips_ranges(plan)[w]];
        expect("head", w, item->head, w / 16);
        expect("query", w, item->query, 3 + 32 * (item->head % 2 == 0 ? w % 16 : 15 - w % 16));
        expect("tile", w, item->tile, 0);
    }
}

/* 33 tuples of 4 workers could divide 8 heads. 32 do so alike, which leaves a worker a single
 * piece, unless that costs a worker too many tiles. */
static void tuples_divide_heads_alike_where_that_costs_little(void **state) {
    (void)state;
    const struct { int32_t length, most_items; } cases[] = {{8192, 1}, {32768, 1}, {131072, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ground.shape = (fig_strips_shape){
            .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132};
        ground.count = 0;
        add(128, 0, cases[i].length);
        check_step();
        int32_t most = 0;
        for (int32_t w = 0; w < 132; w++) {
            const int32_t items = fig_strips_ranges(plan)[w + 1] - fig_strips_ranges(plan)[w];
            if (items > most) most = items;
        }
        expect("most items of a worker", cases[i].length, most, cases[i].most_items);
    }
}

static void whole_strips_leave_no_partials(void **state) {
    (void)state;
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 2, .head_dim = 128, .tile_tokens = 128, .workers = 132, .whole = 1};
    ground.count = 0;
    add(1, 0, 100000);
    add(200, 0, 300);
    check_step();
    expect("partials", 0, ground.made.partial_vectors, 0);
    expect("bound", 0, ground.bound.partial_vectors, 0);
}

static void a_long_row_is_shared_by_all_workers(void **state) {
    (void)state;
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 1, .head_dim = 128, .tile_tokens = 128, .workers = 132};
    ground.count = 0;
    add(1, 0, 1 << 17);
    check_step();
    for (int32_t w = 0; w < 132; w++)
        assert_true(fig_strips_ranges(plan)[w + 1] > fig_strips_ranges(plan)[w]);
}

/* Llama 3's heads on one H200, for prefixes. */
static const fig_strips_shape sharing = {
    .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132, .shares = 1};

/* Makes the plan of `rows` rows with a token each that share a prefix of 2048 tokens. Row 0 has
 * `longest` tokens of its own, the others have 256. Returns the most pieces of a row's strip. */
static int32_t pieces_of_own(int32_t rows, int32_t longest) {
    ground.shape = sharing;
    ground.count = 0;
    add(rows, 0, 2048);
    ground.segments[0].visible = FIG_STRIPS_OLD;
    const fig_strips_beside beside = {.workers = ground.shape.workers};
    fig_strip_prefixes_cut(&ground.shape, &beside, ground.segments, 1);
    for (int32_t row = 0; row < rows; row++)
        add(1, 2048, 2048 + (row == 0 ? longest : 256));
    for (int32_t i = 0; i < ground.count; i++) {
        ground.segments[i].is_shared = 1;
        ground.segments[i].first_member = i == 0 ? 0 : rows + i - 1;
    }
    fig_strips_make(&ground.shape, ground.segments, ground.count, folded);
    fig_strip_heads_unfold(folded, plan);
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    int32_t pieces = 0;
    for (int32_t i = 0; i < ((const fig_strips_head *)(const void *)plan)->items; i++)
        if (items[i].first_token > 0 && items[i].pieces > pieces) pieces = items[i].pieces;
    return pieces;
}

static void few_tokens_behind_a_shared_prefix_stay_whole(void **state) {
    (void)state;
    for (int32_t rows = 12; rows < SEGMENT_LIMIT; rows++)
        assert_int_equal(pieces_of_own(rows, 256), 1);
    assert_in_range(pieces_of_own(16, 32768), 2, 132);
}

/* Returns the pieces of a strip of a prefix that 64 rows share on an H200, if `workers` workers
 * have strips, and `rows` rows with one query token have tiles of their own. */
static int32_t pieces_beside(int32_t workers, int32_t rows, int64_t own_tiles) {
    const fig_strips_shape shape = {
        .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 132};
    const fig_strips_beside beside = {
        .line_units = rows * fig_strips_row_units(&shape, 1, own_tiles), .workers = workers};
    fig_strips_segment prefix = {.queries = 64, .end = 8192, .visible = FIG_STRIPS_OLD};
    fig_strip_prefixes_cut(&shape, &beside, &prefix, 1);
    return prefix.pieces;
}

/* 16 strips could have 8 pieces each, one for nearly every worker. */
static void the_longer_the_line_the_fewer_pieces_have_prefixes(void **state) {
    (void)state;
    assert_int_equal(pieces_beside(132, 0, 0), 8);
    assert_int_equal(pieces_beside(132, 64, 2), 5);
    assert_int_equal(pieces_beside(132, 64, 2000), 1);
}

/* 64 strips of 64 tiles on 96 workers: 64 have a piece of 44 tiles, and the others two ends of 20,
 * which take about as long. Without these ends a third of the workers would be idle. */
static void workers_without_a_piece_get_ends_of_strips(void **state) {
    (void)state;
    const fig_strips_beside beside = {.workers = 96};
    ground.shape = sharing;
    ground.count = 0;
    add(256, 0, 8192);
    ground.segments[0].visible = FIG_STRIPS_OLD;
    ground.segments[0].is_shared = 1;
    fig_strip_prefixes_cut(&ground.shape, &beside, ground.segments, 1);
    assert_int_equal(ground.segments[0].pieces, 2);
    assert_int_equal(ground.segments[0].rests, 1);
    assert_int_equal(ground.segments[0].rest, 20);
    fig_strips_make_within(&ground.shape, ground.segments, 1, beside.workers, folded);
    fig_strip_heads_unfold(folded, plan);
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    const int32_t *ranges = fig_strips_ranges(plan);
    for (int32_t worker = 0; worker < ground.shape.workers; worker++) {
        const int32_t is_full = worker < 64, first = ranges[worker];
        const int32_t due = is_full ? 1 : worker < beside.workers ? 2 : 0;
        assert_int_equal(ranges[worker + 1] - first, due);
        for (int32_t i = first; i < first + due; i++) {
            assert_int_equal(items[i].tile, is_full ? 0 : 44);
            assert_int_equal(items[i].tiles, is_full ? 44 : 20);
            assert_int_equal(items[i].slot, !is_full);
        }
    }
}

static void fewer_workers_have_fewer_pieces_of_prefixes(void **state) {
    (void)state;
    assert_int_equal(pieces_beside(111, 0, 0), 6);
    assert_int_equal(pieces_beside(95, 0, 0), 6); /* five, and an end for 15 other workers */
    assert_int_equal(pieces_beside(85, 0, 0), 5);
    assert_int_equal(pieces_beside(16, 0, 0), 1);
    assert_int_equal(pieces_beside(1, 0, 0), 1);
}

/* A worker that has several heads of a row has them as one item, so the plan of many rows with few
 * tokens each has about one item per row. */
static void heads_of_a_row_are_one_item(void **state) {
    (void)state;
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = 7, .whole = 1};
    ground.count = 0;
    for (int32_t row = 0; row < SEGMENT_LIMIT; row++)
        add(1 + row % 16, 0, 256);
    check_step();
    expect("items with one head each", 0, ground.made.items, 8 * SEGMENT_LIMIT);
    expect_at_most("items of the plan", ((const fig_strips_head *)(const void *)folded)->items,
                   SEGMENT_LIMIT + ground.shape.workers - 1);
}

/* The items are those of a machine that has no other workers. */
static void workers_beyond_a_limit_get_no_items(void **state) {
    (void)state;
    fig_random random = fig_random_seed(12);
    for (int32_t i = 0; i < 300; i++) {
        draw_step(&random);
        const int32_t limit = fig_random_range(&random, 1, ground.shape.workers);
        fig_strips_shape small = ground.shape;
        small.workers = limit;
        const fig_strips_sizes whole =
            fig_strips_make_within(&ground.shape, ground.segments, ground.count, limit, folded);
        const fig_strips_sizes made = fig_strips_make(&small, ground.segments, ground.count, plan);
        const int32_t *ranges = fig_strips_ranges(folded);
        expect("items", limit, whole.items, made.items);
        expect("partials", limit, whole.partial_vectors, made.partial_vectors);
        expect("counters", limit, whole.counters, made.counters);
        assert_memory_equal(fig_strips_items(folded, ground.shape.workers),
                            fig_strips_items(plan, limit),
                            (size_t)made.items * sizeof(fig_strips_item));
        assert_memory_equal(ranges, fig_strips_ranges(plan), (size_t)(limit + 1) * sizeof *ranges);
        for (int32_t worker = limit; worker <= ground.shape.workers; worker++)
            expect("range", worker, ranges[worker], whole.items);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_tokens_behind_a_shared_prefix_stay_whole),
        cmocka_unit_test(heads_of_a_row_are_one_item),
        cmocka_unit_test(the_longer_the_line_the_fewer_pieces_have_prefixes),
        cmocka_unit_test(fewer_workers_have_fewer_pieces_of_prefixes),
        cmocka_unit_test(workers_without_a_piece_get_ends_of_strips),
        cmocka_unit_test(every_tile_has_one_item_and_every_partial_one_piece),
        cmocka_unit_test(some_steps_need_all_partials_and_counters),
        cmocka_unit_test(a_long_chunk_is_read_in_step),
        cmocka_unit_test(tuples_divide_heads_alike_where_that_costs_little),
        cmocka_unit_test(whole_strips_leave_no_partials),
        cmocka_unit_test(a_long_row_is_shared_by_all_workers),
        cmocka_unit_test(workers_beyond_a_limit_get_no_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
