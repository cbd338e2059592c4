/* test_strip_groups.c: tests, for any rows and groups, that each query token sees each kv token of
 * its row in exactly one segment, and that each of its results has a slot of its own. No step may
 * exceed its bounds, and some steps must reach them.
 *
 * For comparison, the test walks over the query tokens and kv tokens one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/strip_groups.h"
#include "tests/support/random.h"
#include "tests/support/strip_heads.h"

enum {
    ROWS = 12,
    GROUPS = 3 * (ROWS / 2),
    QUERIES = 20,
    TOKENS = ROWS * QUERIES,
    KV = 400,
    MEMBERS = 8 * TOKENS,
    SLOTS = 3 * FIG_STRIPS_PIECE_LIMIT + 1, /* of a query token */
    PLAN_BYTES = 1 << 20,
    RANDOM_STEPS = 3000
};

static struct ground {
    fig_random random;
    int32_t starts[ROWS + 1], lengths[ROWS], sequences[ROWS], order[ROWS];
    fig_strip_group groups[GROUPS];
    fig_strips_shape shape;
    fig_strip_groups step;
    fig_strip_groups_row rows[ROWS];
    fig_strips_segment segments[ROWS + GROUPS];
    fig_strips_member members[MEMBERS];
    fig_strip_groups_work work;
    uint8_t seen[TOKENS][KV]; /* how often a query token sees a kv token of its row */
    uint8_t slots[TOKENS][SLOTS];
    uint8_t taken[SLOTS * TOKENS];
} ground;
static _Alignas(16) uint8_t folded[PLAN_BYTES]; /* the plan as it is made */
static _Alignas(16) uint8_t plan[PLAN_BYTES];   /* the same with one head per item */

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&ground.random, low, high);
}

/* ---- Steps --------------------------------------------------------------------------------- */

static void draw_rows(void) {
    int32_t token = draw(0, 3);
    memset(&ground.step, 0, sizeof ground.step);
    ground.step.rows = draw(2, ROWS);
    for (int32_t r = 0; r < ground.step.rows; r++) {
        const int32_t queries = draw(0, 2) == 0 ? draw(0, QUERIES) : draw(0, 2);
        ground.starts[r] = token;
        token += queries;
        ground.lengths[r] = queries + draw(200, KV - QUERIES);
        ground.sequences[r] = 100 + r;
        ground.order[r] = r;
    }
    ground.starts[ground.step.rows] = token;
    for (int32_t r = ground.step.rows - 1; r > 0; r--) {
        const int32_t other = draw(0, r), swap = ground.order[r];
        ground.order[r] = ground.order[other];
        ground.order[other] = swap;
    }
}

/* Adds a group of entries [first, end) behind `from`, and others inside it. */
static void draw_groups(int32_t first, int32_t end, int32_t from, int32_t levels) {
    struct {
        int32_t first, end, from, levels;
    } open[64];
    int32_t count = 0;
    open[count].first = first, open[count].end = end;
    open[count].from = from, open[count++].levels = levels;
    while (count > 0) {
        count--;
        const int32_t begin = open[count].first, stop = open[count].end, after = open[count].from;
        const int32_t left = open[count].levels, to = after + draw(1, 60);
        const int32_t middle = draw(begin, stop);
        if (stop - begin < 2 || left == 0 || ground.step.count == GROUPS) continue;
        ground.groups[ground.step.count++] =
            (fig_strip_group){.first = begin, .rows = stop - begin, .from = after, .to = to};
        open[count].first = begin, open[count].end = middle;
        open[count].from = to, open[count++].levels = left - 1;
        open[count].first = middle, open[count].end = stop;
        open[count].from = to, open[count++].levels = left - 1;
    }
}

static void draw_step(uint64_t seed) {
    ground.random = fig_random_seed(seed);
    ground.shape = (fig_strips_shape){.ratio = draw(1, 16),
                                      .kv_heads = draw(1, 4),
                                      .head_dim = 128,
                                      .tile_tokens = draw(0, 1) ? 4 : 128,
                                      .workers = draw(1, 140)};
    draw_rows();
    int32_t first = 0;
    while (first < ground.step.rows) {
        const int32_t end = draw(first + 1, ground.step.rows);
        draw_groups(first, end, 0, draw(0, 3));
        first = end;
    }
    ground.step.shape = &ground.shape;
    ground.step.starts = ground.starts;
    ground.step.lengths = ground.lengths;
    ground.step.sequences = draw(0, 1) ? ground.sequences : NULL;
    ground.step.order = draw(0, 1) ? ground.order : NULL;
    ground.step.groups = ground.groups;
    ground.step.visible = draw(0, 3) == 0 ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL;
}

/* ---- Segments ------------------------------------------------------------------------------ */

static int32_t row_of(int32_t query) {
    int32_t row = 0;
    while (ground.starts[row + 1] <= query)
        row++;
    return row;
}

/* Notes which kv tokens query i of a segment sees. */
static void see(const fig_strips_segment *segment, int32_t i) {
    const fig_strips_member *member =
        segment->is_shared ? &ground.members[segment->first_member + i] : NULL;
    const int32_t query = member != NULL ? member->query : segment->first_query + i;
    const int32_t row = row_of(query), token = query - ground.starts[0];
    assert_in_range(query, ground.starts[0], ground.starts[ground.step.rows] - 1);
    const int32_t end = segment->visible == FIG_STRIPS_CAUSAL
                            ? segment->end - segment->queries + i + 1
                            : segment->end;
    for (int32_t kv = segment->first_token; kv < end; kv++)
        ground.seen[token][kv]++;
    if (segment->visible == FIG_STRIPS_OLD)
        assert_true(segment->end <=
                    ground.lengths[row] - (ground.starts[row + 1] - ground.starts[row]));
    if (member == NULL) return;
    assert_in_range(member->slots, 2, SLOTS);
    assert_int_equal(segment->pieces > 0, segment->visible == FIG_STRIPS_OLD);
    for (int32_t piece = 0; piece < (segment->pieces > 0 ? segment->pieces : 1); piece++) {
        const int32_t slot = member->slot + piece;
        assert_in_range(slot, 0, member->slots - 1);
        assert_int_equal(ground.slots[token][slot]++, 0);
        assert_int_equal(ground.taken[member->first_slot + slot]++, 0);
    }
}

/* The row that reads the pages of a group has queries, and is one of its rows. */
static void check_reader(int32_t g) {
    const fig_strip_group *group = &ground.groups[g];
    int32_t found = 0;
    if (ground.segments[g].queries == 0) return;
    for (int32_t n = 0; n < group->rows; n++) {
        const int32_t row =
            ground.step.order != NULL ? ground.order[group->first + n] : group->first + n;
        const int32_t sequence = ground.step.sequences != NULL ? ground.sequences[row] : row;
        found +=
            ground.segments[g].sequence == sequence && ground.starts[row + 1] > ground.starts[row];
    }
    assert_int_equal(found, 1);
}

static void list(void) {
    ground.work = (fig_strip_groups_work){
        .rows = ground.rows, .segments = ground.segments, .members = ground.members};
    assert_in_range(fig_strip_groups_members(&ground.step), 0, MEMBERS);
    fig_strip_groups_list(&ground.step, &ground.work);
    assert_in_range(ground.work.shared.count, 0, fig_strip_groups_members(&ground.step));
}

static void check_segments(void) {
    const int32_t rows = ground.step.rows, first = ground.starts[0];
    memset(ground.seen, 0, sizeof ground.seen);
    memset(ground.slots, 0, sizeof ground.slots);
    memset(ground.taken, 0, sizeof ground.taken);
    for (int32_t s = 0; s < rows + ground.step.count; s++)
        for (int32_t i = 0; i < ground.segments[s].queries; i++)
            see(&ground.segments[s], i);
    for (int32_t g = 0; g < ground.step.count; g++)
        check_reader(g);
    for (int32_t query = first; query < ground.starts[rows]; query++) {
        const int32_t row = row_of(query), behind = ground.starts[row + 1] - 1 - query;
        const int32_t end =
            ground.lengths[row] - (ground.step.visible == FIG_STRIPS_CAUSAL ? behind : 0);
        for (int32_t kv = 0; kv < KV; kv++)
            assert_int_equal(ground.seen[query - first][kv], kv < end);
    }
    for (int32_t slot = 0; slot < ground.work.shared.slots; slot++)
        assert_int_equal(ground.taken[slot], 1);
}

static int32_t segment_of_member(int32_t member) {
    int32_t s = 0;
    while (!ground.segments[s].is_shared || member < ground.segments[s].first_member ||
           member >= ground.segments[s].first_member + ground.segments[s].queries)
        s++;
    return s;
}

/* ---- Plans --------------------------------------------------------------------------------- */

/* Checks that each slot has vectors and counters that no other slot and no piece uses. */
static void check_slots(const fig_strips_sizes *sizes) {
    static uint8_t vectors[1 << 20], counters[1 << 17];
    const fig_strips_shape *shape = &ground.shape;
    const fig_strips_head *head = (const fig_strips_head *)(const void *)plan;
    const fig_strips_member *members = fig_strips_members(plan);
    const int32_t q_heads = shape->ratio * shape->kv_heads;
    assert_true(sizes->partial_vectors <= (int64_t)sizeof vectors);
    memset(vectors, 0, sizeof vectors);
    memset(counters, 0, sizeof counters);
    assert_int_equal(head->members, ground.work.shared.count);
    for (int32_t m = 0; m < head->members; m++) {
        for (int32_t q_head = 0; q_head < q_heads; q_head++) {
            const int64_t at = fig_strips_slot(head, &members[m], members[m].slot, q_head);
            const int32_t counter = fig_strips_slot_counter(head, &members[m], q_head);
            assert_in_range(at, head->partial_vectors, sizes->partial_vectors - 1);
            assert_in_range(counter, head->counters, sizes->counters - 1);
            assert_int_equal(vectors[at]++, 0);
            assert_true(++counters[counter] <= members[m].slots);
        }
    }
}

/* Each slot of a member belongs to one strip or one piece of each kv head. */
static void check_members(int64_t count) {
    static uint8_t strips[MEMBERS][8][FIG_STRIPS_PIECE_LIMIT];
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    memset(strips, 0, sizeof strips);
    for (int64_t i = 0; i < count; i++) {
        if (!(items[i].flags & FIG_STRIPS_IS_SHARED)) continue;
        assert_in_range(items[i].query, 0, ground.work.shared.count - items[i].queries);
        for (int32_t n = 0; n < items[i].queries; n++)
            if (items[i].partial <= items[i].first_partial)
                strips[items[i].query + n][items[i].head][items[i].slot]++;
    }
    for (int32_t s = 0; s < ground.step.rows + ground.step.count; s++) {
        const fig_strips_segment *segment = &ground.segments[s];
        const int32_t pieces = segment->pieces > 0 ? segment->pieces : 1;
        for (int32_t i = 0; segment->is_shared && i < segment->queries; i++)
            for (int32_t head = 0; head < ground.shape.kv_heads; head++)
                for (int32_t piece = 0; piece < FIG_STRIPS_PIECE_LIMIT; piece++)
                    assert_int_equal(strips[segment->first_member + i][head][piece],
                                     piece < pieces);
    }
}

/* The pieces of a strip cover its tiles one after the other, and differ by at most one tile. A
 * worker has its pieces of prefixes before all other items or behind them. */
static void check_pieces(void) {
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    const int32_t *ranges = fig_strips_ranges(plan);
    for (int32_t w = 0; w < ground.shape.workers; w++) {
        for (int32_t i = ranges[w]; i < ranges[w + 1]; i++) {
            const fig_strips_item *item = &items[i];
            if (!(item->flags & FIG_STRIPS_IS_PREFIX)) continue;
            const int32_t begins = i == ranges[w] || items[i - 1].flags & FIG_STRIPS_IS_PREFIX;
            const int32_t ends =
                i + 1 == ranges[w + 1] || items[i + 1].flags & FIG_STRIPS_IS_PREFIX;
            assert_true(begins || ends);
            const int32_t size = ground.shape.tile_tokens, begin = item->first_token / size;
            const int64_t tiles = (item->end - 1) / size + 1 - begin;
            const int32_t s = segment_of_member(item->query);
            const int64_t pieces = ground.segments[s].pieces;
            assert_int_equal(item->tile, begin + tiles * item->slot / pieces);
            assert_int_equal(item->tile + item->tiles, begin + tiles * (item->slot + 1) / pieces);
            assert_int_equal(item->pieces, 1);
        }
    }
}

/* No worker has more than an even share of all units, a piece of a prefix, and what a cut may
 * move. */
static void check_loads(void) {
    const fig_strips_item *items = fig_strips_items(plan, ground.shape.workers);
    const int32_t *ranges = fig_strips_ranges(plan);
    int64_t units = 0, largest = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t w = 0; w < ground.shape.workers; w++) {
            int64_t load = 0;
            for (int32_t i = ranges[w]; i < ranges[w + 1]; i++) {
                const fig_strips_cost cost =
                    items[i].flags & FIG_STRIPS_IS_SHARED
                        ? fig_strips_shared_cost_of(&ground.shape, items[i].queries)
                        : fig_strips_cost_of(&ground.shape, items[i].queries);
                const int64_t own = cost.once + cost.tile * items[i].tiles;
                const int is_whole = items[i].pieces == 1;
                load += own;
                if (pass == 0) units += own;
                if (pass == 0 && is_whole && own > largest) largest = own;
                if (pass == 0 && !is_whole && cost.once + 2 * cost.tile > largest)
                    largest = cost.once + 2 * cost.tile;
            }
            if (pass == 1) assert_true(load <= units / ground.shape.workers + 1 + 2 * largest);
        }
    }
}

static void check_plan(void) {
    const fig_strips_shape *shape = &ground.shape;
    const int32_t count = ground.step.rows + ground.step.count;
    int64_t queries = 0;
    for (int32_t s = 0; s < count; s++)
        queries += ground.segments[s].queries;
    const fig_strips_limits limits = {
        .segments = count, .queries = queries, .shared = ground.work.shared.tokens};
    const fig_strips_sizes bound = fig_strip_sizes_bound(shape, &limits);
    const fig_strips_sizes size = fig_strip_sizes_of(shape, ground.segments, count);
    const fig_strips_sizes made = fig_strips_make(shape, ground.segments, count, folded);
    const fig_strips_sizes sizes = fig_strips_share(&ground.work.shared, folded);
    const int32_t items = fig_strip_heads_unfold(folded, plan);
    assert_true(made.items <= size.items && size.items <= bound.items);
    assert_true(made.plan_bytes <= size.plan_bytes && size.plan_bytes <= bound.plan_bytes);
    assert_true(sizes.partial_vectors <= bound.partial_vectors);
    assert_true(sizes.counters <= bound.counters);
    assert_true(sizes.plan_bytes <= bound.plan_bytes && bound.plan_bytes <= PLAN_BYTES);
    assert_true(items <= size.items);
    check_members(items);
    check_pieces();
    check_loads();
    check_slots(&sizes);
}

static void each_token_is_seen_once_and_each_result_has_a_slot(void **state) {
    (void)state;
    int32_t with_three = 0, in_pieces = 0;
    for (uint64_t seed = 0; seed < RANDOM_STEPS; seed++) {
        draw_step(seed);
        list();
        check_segments();
        check_plan();
        for (int32_t m = 0; m < ground.work.shared.count; m++)
            with_three += ground.members[m].slots > 3;
        for (int32_t g = 0; g < ground.step.count; g++)
            in_pieces += ground.segments[g].pieces > 1;
    }
    assert_true(with_three > RANDOM_STEPS);
    assert_true(in_pieces > RANDOM_STEPS / 4);
}

/* A step of `rows` rows of one token, in one group over [0, prefix). Each has 256 tokens behind
 * it. */
static void list_alike(int32_t rows, int32_t prefix, int32_t workers) {
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 8, .head_dim = 128, .tile_tokens = 128, .workers = workers};
    ground.step = (fig_strip_groups){.shape = &ground.shape,
                                     .rows = rows,
                                     .count = 1,
                                     .starts = ground.starts,
                                     .lengths = ground.lengths,
                                     .groups = ground.groups};
    for (int32_t r = 0; r <= rows; r++) {
        ground.starts[r] = r;
        ground.lengths[r % rows] = prefix + 256;
    }
    ground.groups[0] = (fig_strip_group){.rows = rows, .to = prefix};
    list();
}

/* One group makes about as many pieces as there are workers, and each worker has one of them. Rows
 * are dealt evenly, even to workers without a piece. */
static void a_prefix_is_read_by_all_workers(void **state) {
    (void)state;
    list_alike(ROWS, 8192, 132);
    check_plan();
    assert_int_equal(ground.segments[0].pieces, 16);
    const fig_strips_item *items = fig_strips_items(plan, 132);
    int32_t with = 0, own = 0;
    for (int32_t w = 0; w < 132; w++) {
        const int32_t first = fig_strips_ranges(plan)[w], end = fig_strips_ranges(plan)[w + 1];
        int32_t pieces = 0;
        for (int32_t i = first; i < end; i++)
            pieces += (items[i].flags & FIG_STRIPS_IS_PREFIX) != 0;
        own += end - first - pieces;
        assert_in_range(pieces, 0, 1);
        assert_in_range(end - first - pieces, 0, 1);
        with += pieces;
    }
    assert_int_equal(with, 128);
    assert_int_equal(own, ROWS * 8);
}

/* All rows are in three groups, and there are as many full strips as cuts. */
static void some_steps_need_all_slots(void **state) {
    (void)state;
    memset(&ground.step, 0, sizeof ground.step);
    ground.shape = (fig_strips_shape){
        .ratio = 4, .kv_heads = 1, .head_dim = 128, .tile_tokens = 128, .workers = 1};
    ground.step = (fig_strip_groups){.shape = &ground.shape,
                                     .rows = 2,
                                     .count = 3,
                                     .starts = ground.starts,
                                     .lengths = ground.lengths,
                                     .groups = ground.groups};
    for (int32_t r = 0; r < 3; r++) {
        ground.starts[r] = r * QUERIES;
        ground.lengths[r] = KV;
        ground.groups[r] = (fig_strip_group){.rows = 2, .from = r * 100, .to = r * 100 + 100};
    }
    list();
    check_segments();
    check_plan();
    const fig_strips_limits limits = {.segments = 5, .queries = 8 * QUERIES, .shared = 2 * QUERIES};
    const fig_strips_limits alone = {.segments = 5, .queries = 8 * QUERIES};
    const int64_t slots = fig_strip_sizes_bound(&ground.shape, &limits).partial_vectors -
                          fig_strip_sizes_bound(&ground.shape, &alone).partial_vectors;
    assert_int_equal(((const fig_strips_head *)(const void *)plan)->slot_vectors, slots);
    assert_int_equal(fig_strips_share(&ground.work.shared, folded).counters,
                     fig_strip_sizes_bound(&ground.shape, &limits).counters);
    assert_int_equal(ground.work.shared.count * (int64_t)sizeof(fig_strips_member),
                     fig_strip_sizes_bound(&ground.shape, &limits).plan_bytes -
                         fig_strip_sizes_bound(&ground.shape, &alone).plan_bytes);
}

/* A long prefix of one full strip has a piece for each worker, if rows have few tokens of their
 * own. Its tiles are so large that what a piece costs beside them matters little. */
static void some_steps_need_all_pieces(void **state) {
    (void)state;
    const int32_t workers = 7;
    memset(&ground.step, 0, sizeof ground.step);
    ground.shape = (fig_strips_shape){
        .ratio = 16, .kv_heads = 1, .head_dim = 4096, .tile_tokens = 4, .workers = workers};
    ground.step = (fig_strip_groups){.shape = &ground.shape,
                                     .rows = 8,
                                     .count = 1,
                                     .starts = ground.starts,
                                     .lengths = ground.lengths,
                                     .groups = ground.groups};
    for (int32_t r = 0; r <= 8; r++) {
        ground.starts[r] = r;
        ground.lengths[r % 8] = 385;
    }
    ground.groups[0] = (fig_strip_group){.rows = 8, .to = 384};
    list();
    check_plan();
    assert_int_equal(ground.segments[0].pieces, workers);
    const fig_strips_limits limits = {.segments = 9, .queries = 16, .shared = 8};
    const fig_strips_limits alone = {.segments = 9, .queries = 16};
    const int64_t all = fig_strip_sizes_bound(&ground.shape, &limits).partial_vectors -
                        fig_strip_sizes_bound(&ground.shape, &alone).partial_vectors;
    const int32_t vectors = 8 * 16; /* two levels of groups are missing */
    assert_int_equal(((const fig_strips_head *)(const void *)plan)->slot_vectors + 2 * vectors,
                     all);
}

/* A token more changes nothing but the ends of segments. Rows of several times as many tokens of
 * their own leave fewer workers to the prefix. */
static void prefixes_are_cut_again_when_rows_have_grown(void **state) {
    (void)state;
    memset(&ground.step, 0, sizeof ground.step);
    ground.shape = (fig_strips_shape){
        .ratio = 8, .kv_heads = 1, .head_dim = 128, .tile_tokens = 128, .workers = 132};
    ground.step = (fig_strip_groups){.shape = &ground.shape,
                                     .rows = 9,
                                     .count = 1,
                                     .starts = ground.starts,
                                     .lengths = ground.lengths,
                                     .groups = ground.groups};
    for (int32_t r = 0; r <= 9; r++) {
        ground.starts[r] = r;
        ground.lengths[r % 9] = 8192 + 256 - 2;
    }
    ground.groups[0] = (fig_strip_group){.rows = 9, .to = 8192};
    list();
    for (int32_t r = 0; r < 9; r++)
        ground.lengths[r]++;
    assert_int_equal(fig_strip_groups_lengthen(&ground.step, &ground.work), 1);
    for (int32_t r = 0; r < 9; r++)
        ground.lengths[r] += 4096;
    assert_int_equal(fig_strip_groups_lengthen(&ground.step, &ground.work), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_is_seen_once_and_each_result_has_a_slot),
        cmocka_unit_test(a_prefix_is_read_by_all_workers),
        cmocka_unit_test(some_steps_need_all_slots),
        cmocka_unit_test(some_steps_need_all_pieces),
        cmocka_unit_test(prefixes_are_cut_again_when_rows_have_grown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
