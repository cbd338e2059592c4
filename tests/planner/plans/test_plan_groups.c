/* test_plan_groups.c: tests plans of steps in which rows share tokens. For any rows and groups,
 * each query token must see each of its kv tokens once: in the split, in a strip, or those of its
 * groups in strips and its tail in the split. No plan may exceed its bounds, and some plans must
 * reach them.
 *
 * For comparison, the test marks the kv tokens of each query token one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/plan.h"
#include "tests/support/random.h"
#include "tests/support/strip_heads.h"

enum {
    ROWS = 20,
    TOKENS = 160,
    KV = 700,
    PLAN_CAPACITY = 1 << 20,
    NARROW = 8,
    CASES = 800,
    SLOTS = 3 * FIG_STRIPS_PIECE_LIMIT + 1, /* of a query token */
    UNTOUCHED = 0xa5
};

static _Alignas(16) uint8_t slot[PLAN_CAPACITY], plan[PLAN_CAPACITY], unfolded[PLAN_CAPACITY];

static struct ground {
    fig_random random;
    fig_plan_shape shape;
    fig_strips_shape strips[FIG_CLASS_LIMIT];
    fig_plan_held held;
    int32_t sharer;
    int32_t lengths[ROWS], sequences[ROWS], queries[ROWS], order[ROWS];
    int32_t busy; /* entries of order */
    fig_strip_group groups[3 * ROWS];
    fig_plan_groups all;
    uint8_t is_grouped[ROWS];
    int32_t ends[ROWS]; /* of the innermost group of each row */
    int32_t has_tails;
    fig_division_pace paces[FIG_CLASS_LIMIT];
    uint8_t seen[TOKENS][KV];
    uint8_t taken[SLOTS * TOKENS]; /* [slot] 1: some strip writes a result there */
} g;

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&g.random, low, high);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static void open_held(void) {
    const fig_plan_held_limits limits = {.row_limit = g.shape.row_limit,
                                         .chunk_classes = g.shape.class_count,
                                         .chunk_least = NARROW + 1,
                                         .chunk_shapes = g.strips,
                                         .strips_bytes = fig_plan_strips_room(&g.shape),
                                         .shared_limit = fig_plan_shared_limit(&g.shape)};
    fig_plan_lay_out(&g.shape);
    assert_int_equal(fig_plan_add_strips(&g.shape, g.strips, NARROW + 1), FIG_OK);
    fig_plan_held_limits own = limits;
    own.strips_bytes = fig_plan_strips_room(&g.shape);
    assert_int_equal(fig_plan_held_init(&g.held, &own), FIG_OK);
}

static void open_ground(uint64_t seed) {
    memset(&g, 0, sizeof g);
    g.random = fig_random_seed(seed);
    fig_plan_shape *shape = &g.shape;
    shape->row_limit = draw(2, ROWS);
    shape->class_count = draw(1, 3);
    shape->row_tokens = draw(NARROW + 1, 40);
    shape->query_limit = draw(2, fig_size_min(TOKENS, shape->row_limit * shape->row_tokens));
    g.sharer = draw(0, shape->class_count - 1);
    g.has_tails = draw(0, 1);
    for (int32_t i = 0; i < shape->class_count; i++) {
        const int32_t kv_heads = draw(1, 3);
        shape->splits[i] = (fig_split_shape){.row_limit = shape->row_limit,
                                             .groups = kv_heads,
                                             .tile_tokens = 16,
                                             .workers = draw(1, 30),
                                             .row_tokens = NARROW};
        if (i != g.sharer) shape->splits[i].window = draw(0, 100);
        g.paces[i] = (fig_division_pace){.tile_bytes = 1 << draw(8, 20),
                                         .readers = shape->splits[i].workers,
                                         .of_worker = draw(1, 100000),
                                         .of_all = draw(100000, 4000000),
                                         .of_all_apart = 4000000,
                                         .serves_tails = g.has_tails};
        g.strips[i] = (fig_strips_shape){.ratio = draw(1, 16),
                                         .kv_heads = kv_heads,
                                         .head_dim = 64,
                                         .tile_tokens = 128,
                                         .window = shape->splits[i].window,
                                         .workers = draw(1, 30),
                                         .shares = i == g.sharer};
    }
    open_held();
}

/* Returns the number of tokens that each of `rows` rows has in front of its queries, at least. */
static int32_t common_of(int32_t first, int32_t rows) {
    int32_t common = KV;
    for (int32_t n = first; n < first + rows; n++) {
        const int32_t row = g.order[n];
        common = fig_size_min(common, g.lengths[row] - g.queries[row]);
    }
    return common;
}

static void add_group(int32_t first, int32_t rows, int32_t from) {
    const int32_t common = common_of(first, rows);
    int32_t level = 0;
    for (; level < FIG_STRIP_GROUPS_LEVEL_LIMIT && rows > 1 && from < common; level++) {
        const int32_t to = draw(from + 1, common);
        g.groups[g.all.count++] =
            (fig_strip_group){.first = first, .rows = rows, .from = from, .to = to};
        for (int32_t n = first; n < first + rows; n++)
            g.ends[g.order[n]] = to;
        if (draw(0, 2) == 0) return;
        from = to;
        first += draw(0, rows / 3);
        rows -= rows / 3;
    }
}

static void draw_groups(void) {
    int32_t left = fig_plan_shared_limit(&g.shape);
    g.all = (fig_plan_groups){.of = g.groups, .order = g.order};
    memset(g.is_grouped, 0, sizeof g.is_grouped);
    for (int32_t first = 0; first < g.busy;) {
        const int32_t rows = draw(1, g.busy - first);
        int32_t tokens = 0;
        for (int32_t n = first; n < first + rows; n++)
            tokens += g.queries[g.order[n]];
        if (tokens <= left && draw(0, 4) > 0) {
            const int32_t before = g.all.count;
            add_group(first, rows, 0);
            for (int32_t n = first; n < first + rows && g.all.count > before; n++)
                g.is_grouped[g.order[n]] = 1;
            left -= tokens;
        }
        first += rows;
    }
}

static fig_plan_step draw_step(void) {
    fig_plan_step step = {.rows = draw(0, g.shape.row_limit),
                          .lengths = g.lengths,
                          .sequences = g.sequences,
                          .queries = g.queries,
                          .horizon = 1,
                          .paces = g.has_tails ? g.paces : NULL,
                          .serves_tails = draw(0, 3) > 0};
    int32_t left = g.shape.query_limit;
    g.busy = 0;
    for (int32_t row = 0; row < step.rows; row++) {
        const int32_t most = fig_size_min(left, g.shape.row_tokens);
        g.queries[row] = draw(0, 3) == 0 ? draw(0, most) : fig_size_min(most, draw(0, 2));
        g.lengths[row] = g.queries[row] + draw(0, KV - 1 - g.shape.row_tokens);
        if (draw(0, 6) == 0) g.lengths[row] = 0;
        g.sequences[row] = (row * 3 + 2) % ROWS;
        left -= g.queries[row];
        if (g.lengths[row] > 0 && g.queries[row] > 0) g.order[g.busy++] = row;
    }
    for (int32_t i = g.busy - 1; i > 0; i--) {
        const int32_t j = draw(0, i), row = g.order[i];
        g.order[i] = g.order[j];
        g.order[j] = row;
    }
    draw_groups();
    if (g.all.count > 0 || draw(0, 1) == 0) step.groups = &g.all;
    return step;
}

static void write_step(const fig_plan_step *step) {
    g.held.exec = -1;
    const uint32_t sections = fig_plan_settle(&g.shape, step, &g.held);
    memset(slot, UNTOUCHED, sizeof slot);
    const uint32_t bytes = fig_plan_write(&g.shape, step, sections, &g.held, slot);
    assert_true(bytes <= g.shape.layout.bytes && bytes % 16 == 0);
    assert_int_equal(slot[bytes], UNTOUCHED);
    memset(plan, UNTOUCHED, g.shape.layout.bytes + 16);
    fig_plan_unpack(&g.shape, slot, plan);
    assert_int_equal(plan[g.shape.layout.bytes], UNTOUCHED);
}

/* ---- What is seen ---------------------------------------------------------------------------- */

/* Returns where the row's tail begins, or 0 if it has none. */
static int32_t tail_of(const fig_plan_step *step, int32_t split_class, int32_t row) {
    const int may_have = g.has_tails && step->serves_tails && split_class == g.sharer;
    return may_have && g.is_grouped[row] && step->queries[row] == 1 ? g.ends[row] : 0;
}

static int is_on_line(const fig_plan_step *step, int32_t split_class, int32_t row) {
    if (step->lengths[row] == 0 || step->queries[row] == 0) return 0;
    if (tail_of(step, split_class, row) > 0) return 1;
    if (split_class == g.sharer && g.is_grouped[row]) return 0;
    return step->queries[row] <= NARROW;
}

static void expect_line(const fig_plan_step *step, int32_t split_class) {
    const int32_t *prefix = (const void *)(plan + g.shape.layout.prefix[split_class]);
    const int32_t tile = g.shape.splits[split_class].tile_tokens;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t tail = tail_of(step, split_class, row), tiles = prefix[row + 1] - prefix[row];
        assert_int_equal(tiles > 0, is_on_line(step, split_class, row));
        if (tail > 0) assert_int_equal(tiles, (step->lengths[row] - 1) / tile + 1 - tail / tile);
    }
}

/* Checks that each tail has the places of the row's member, and marks its slot. */
static void expect_tails(const fig_plan_step *step, const uint8_t *strips) {
    const fig_strips_head *head = (const void *)strips;
    const fig_strips_member *members = fig_strips_members(strips);
    const uint32_t at = fig_plan_strips_place(&g.shape) + FIG_PLAN_STRIPS_HEAD;
    int32_t token = 0;
    for (int32_t row = 0; row < step->rows; token += step->queries[row++]) {
        const fig_plan_tail tail = fig_plan_tail_of(plan, at, row);
        assert_int_equal(tail.first_token, tail_of(step, g.sharer, row));
        assert_int_equal(tail.slots > 0, tail.first_token > 0);
        if (tail.slots == 0) continue;
        const fig_strips_member *member = members;
        while (member->query != token)
            assert_true(++member < members + head->members);
        assert_int_equal(tail.first, fig_strips_slot(head, member, 0, 0));
        assert_int_equal(tail.counter, fig_strips_slot_counter(head, member, 0));
        assert_int_equal(tail.slots, member->slots);
        g.taken[member->first_slot + tail.slots - 1]++;
    }
}

/* Marks what a query of an item sees. */
static void mark(const fig_strips_shape *strips, const fig_strips_item *item, int32_t query,
                 int32_t token) {
    const int32_t tile = strips->tile_tokens, limit = fig_strips_limit(item, query);
    const int32_t low = fig_strips_floor(item, strips->window, limit);
    const int32_t first = item->tile * tile > low ? item->tile * tile : low;
    const int32_t end =
        fig_size_min(fig_size_min((item->tile + item->tiles) * tile, item->end), limit + 1);
    for (int32_t kv = first; kv < end; kv++)
        g.seen[token][kv]++;
}

/* Marks the items of a kv head, and the results of their members. */
static void mark_items(const uint8_t *strips, const fig_strips_shape *shape, int32_t kv_head) {
    const fig_strips_head *head = (const void *)strips;
    const fig_strips_item *items = fig_strips_items(strips, shape->workers);
    const fig_strips_member *members = fig_strips_members(strips);
    memset(g.seen, 0, sizeof g.seen);
    memset(g.taken, 0, sizeof g.taken);
    for (int32_t i = 0; i < head->items; i++) {
        if (items[i].head != kv_head) continue;
        for (int32_t q = 0; q < items[i].queries; q++) {
            const int is_shared = (items[i].flags & FIG_STRIPS_IS_SHARED) != 0;
            const fig_strips_member *member = &members[items[i].query + q];
            mark(shape, &items[i], q, is_shared ? member->query : items[i].query + q);
            if (!is_shared || items[i].partial > items[i].first_partial) continue;
            assert_true(items[i].query + q < head->members);
            assert_true(member->slot < member->slots);
            g.taken[member->first_slot + member->slot + items[i].slot]++;
        }
    }
}

static void expect_slots(const uint8_t *strips, const fig_strips_shape *shape) {
    const fig_strips_head *head = (const void *)strips;
    const int32_t slots = head->slot_vectors / (shape->ratio * shape->kv_heads);
    for (int32_t n = 0; n < SLOTS * TOKENS; n++)
        assert_int_equal(g.taken[n], n < slots);
}

static void expect_seen(const fig_plan_step *step, int32_t split_class) {
    const fig_strips_shape *shape = &g.strips[split_class];
    int32_t token = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t tail = tail_of(step, split_class, row), end = tail > 0 ? tail : KV;
        const int is_in_strips =
            step->lengths[row] > 0 && (tail > 0 || !is_on_line(step, split_class, row));
        for (int32_t q = 0; q < step->queries[row]; q++, token++) {
            const int32_t limit = step->lengths[row] - step->queries[row] + q;
            const int32_t low = shape->window > 0 ? limit + 1 - shape->window : 0;
            for (int32_t kv = 0; kv < KV; kv++)
                assert_int_equal(g.seen[token][kv],
                                 is_in_strips && kv <= limit && kv >= low && kv < end);
        }
    }
}

static void expect_bounds(int32_t split_class, const uint8_t *strips) {
    const fig_strips_head *head = (const void *)strips;
    const fig_strips_limits limits =
        fig_plan_strips_limits(&g.shape, &g.strips[split_class], NARROW + 1);
    const fig_strips_sizes bound = fig_strip_sizes_bound(&g.strips[split_class], &limits);
    const int32_t q_heads = head->ratio * head->kv_heads;
    int64_t counters = head->counters;
    for (int32_t i = 0; i < head->members; i++) {
        const int32_t own = fig_strips_slot_counter(head, &fig_strips_members(strips)[i], 0);
        if (own + q_heads > counters) counters = own + q_heads;
    }
    assert_true(head->items <= bound.items);
    assert_true(head->partial_vectors + head->slot_vectors <= bound.partial_vectors);
    assert_true(counters <= bound.counters);
}

static void each_token_is_seen_once(void **state) {
    (void)state;
    int32_t shared = 0, tails = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        open_ground(seed);
        const fig_plan_step step = draw_step();
        write_step(&step);
        tails += g.held.has_tails;
        for (int32_t i = 0; i < g.shape.class_count; i++) {
            const uint8_t *strips = fig_plan_strips_of(plan, fig_plan_strips_place(&g.shape), i);
            expect_line(&step, i);
            expect_bounds(i, strips);
            fig_strip_heads_unfold(strips, unfolded);
            mark_items(unfolded, &g.strips[i], draw(0, g.strips[i].kv_heads - 1));
            if (i == g.sharer) expect_tails(&step, unfolded);
            expect_slots(unfolded, &g.strips[i]);
            expect_seen(&step, i);
            shared += ((const fig_strips_head *)(const void *)strips)->members > 0;
        }
        fig_plan_held_finish(&g.held);
    }
    assert_true(shared > CASES / 4 && tails > CASES / 8);
}

/* ---- Bounds that are reached ----------------------------------------------------------------- */

static fig_plan_step open_worst(int32_t workers) {
    static const int32_t ends[] = {0, 5000, 11000, 18000};
    memset(&g, 0, sizeof g);
    g.shape = (fig_plan_shape){
        .row_limit = 16, .class_count = 1, .row_tokens = NARROW + 1, .query_limit = 16};
    g.shape.splits[0] = (fig_split_shape){
        .row_limit = 16, .groups = 2, .tile_tokens = 16, .workers = 5, .row_tokens = NARROW};
    g.strips[0] = (fig_strips_shape){.ratio = 8,
                                     .kv_heads = 2,
                                     .head_dim = 64,
                                     .tile_tokens = 128,
                                     .workers = workers,
                                     .shares = 1};
    for (int32_t row = 0; row < 16; row++) {
        g.lengths[row] = 18010;
        g.queries[row] = 1;
        g.order[row] = g.sequences[row] = row;
        g.is_grouped[row] = 1;
    }
    for (int32_t level = 0; level < 3; level++)
        g.groups[level] = (fig_strip_group){.rows = 16, .from = ends[level], .to = ends[level + 1]};
    g.all = (fig_plan_groups){.count = 3, .of = g.groups, .order = g.order};
    open_held();
    return (fig_plan_step){.rows = 16,
                           .lengths = g.lengths,
                           .sequences = g.sequences,
                           .queries = g.queries,
                           .horizon = 1,
                           .groups = &g.all};
}

/* Each query token is in three groups, and there is a place for each of its results. */
static void the_bounds_of_counters_are_reached(void **state) {
    (void)state;
    for (int32_t workers = 1; workers < 6; workers++) {
        const fig_plan_step step = open_worst(workers);
        write_step(&step);
        const uint8_t *strips = fig_plan_strips_of(plan, fig_plan_strips_place(&g.shape), 0);
        const fig_strips_head *head = (const void *)strips;
        const fig_strips_limits limits = fig_plan_strips_limits(&g.shape, g.strips, NARROW + 1);
        const fig_strips_sizes bound = fig_strip_sizes_bound(g.strips, &limits);
        expect_bounds(0, strips);
        const fig_strips_member last = {.token = 15};
        assert_int_equal(fig_strips_slot_counter(head, &last, 15) + 1, bound.counters);
        assert_int_equal(head->slot_vectors, 16 * 4 * 16);
        fig_plan_held_finish(&g.held);
    }
}

static void a_class_that_shares_nothing_has_the_bounds_of_chunks(void **state) {
    (void)state;
    open_worst(3);
    g.strips[0].shares = 0;
    const fig_strips_limits limits = fig_plan_strips_limits(&g.shape, g.strips, NARROW + 1);
    assert_int_equal(limits.segments, 16);
    assert_int_equal(limits.queries, 16);
    assert_int_equal(limits.least, NARROW + 1);
    assert_int_equal(limits.shared, 0);
    fig_plan_held_finish(&g.held);
}

static void the_limit_of_shared_tokens_follows_the_rows(void **state) {
    (void)state;
    fig_plan_shape shape = {.row_limit = 8, .query_limit = 100};
    assert_int_equal(fig_plan_shared_limit(&shape), 100);
    shape.query_limit = 5000;
    assert_int_equal(fig_plan_shared_limit(&shape), FIG_PLAN_SHARED_LEAST);
    shape.row_limit = 1000;
    assert_int_equal(fig_plan_shared_limit(&shape), 1000);
}

/* ---- Changes of groups ----------------------------------------------------------------------- */

static uint32_t settle(const fig_plan_step *step) {
    return fig_plan_settle(&g.shape, step, &g.held) & (FIG_PLAN_HAS_STRIPS | FIG_PLAN_HAS_SPLITS);
}

static void groups_travel_and_so_does_their_end(void **state) {
    (void)state;
    fig_plan_step step = open_worst(3);
    const uint32_t both = FIG_PLAN_HAS_STRIPS | FIG_PLAN_HAS_SPLITS;
    assert_int_equal(settle(&step), both); /* the device holds nothing */
    for (int32_t row = 0; row < 16; row++)
        g.lengths[row]++;
    assert_int_equal(settle(&step), FIG_PLAN_HAS_STRIPS); /* the split has no row */
    step.groups = NULL;
    assert_int_equal(settle(&step), both);
    assert_int_equal(settle(&step), 0);
    g.all.count = 0;
    step.groups = &g.all;
    assert_int_equal(settle(&step), 0); /* a list of zero groups counts as no groups */
    fig_plan_held_finish(&g.held);
}

/* Rows that grow within their tiles change nothing but lengths, and in a new tile only the split:
 * the strips of prefixes stay. */
static void strips_do_not_travel_again_while_tails_grow(void **state) {
    (void)state;
    fig_plan_step step = open_worst(3);
    g.paces[0] = (fig_division_pace){
        .tile_bytes = 4096, .readers = 5, .of_worker = 100, .of_all = 500, .serves_tails = 1};
    step.paces = g.paces;
    step.serves_tails = 1;
    assert_int_equal(settle(&step), FIG_PLAN_HAS_STRIPS | FIG_PLAN_HAS_SPLITS);
    assert_true(fig_plan_settle(&g.shape, &step, &g.held) & FIG_PLAN_BY_TAILS);
    for (int32_t row = 0; row < 16; row++)
        g.lengths[row]++; /* 18010 to 18011: the same tile of 16 */
    assert_int_equal(settle(&step), 0);
    g.lengths[0] += 6;
    assert_int_equal(settle(&step), FIG_PLAN_HAS_SPLITS);
    step.serves_tails = 0; /* the launches of another exec cannot read them */
    assert_int_equal(settle(&step), FIG_PLAN_HAS_STRIPS | FIG_PLAN_HAS_SPLITS);
    assert_false(fig_plan_settle(&g.shape, &step, &g.held) & FIG_PLAN_BY_TAILS);
    fig_plan_held_finish(&g.held);
}

static void swap(int32_t *values, int32_t count) {
    if (count < 2) return;
    const int32_t i = draw(0, count - 1), j = draw(0, count - 1), kept = values[i];
    values[i] = values[j];
    values[j] = kept;
}

/* Changes a row in no group: its length to 0 or back, or its query tokens. */
static void change_single_row(int32_t rows) {
    const int32_t row = rows > 0 ? draw(0, rows - 1) : 0;
    if (rows == 0 || g.is_grouped[row]) return;
    if (draw(0, 1) == 0) {
        g.lengths[row] = g.lengths[row] > 0 ? 0 : g.queries[row] + 5;
        return;
    }
    g.queries[row] = draw(0, g.queries[row]);
}

/* Changes what a step may differ in from the last one. A step may also have no groups, or lengths
 * that only the device knows. */
static void change_step(fig_plan_step *step) {
    step->lengths = draw(0, 9) > 0 ? g.lengths : NULL;
    step->groups = draw(0, 9) > 0 ? &g.all : NULL;
    for (int32_t row = 0; row < step->rows && draw(0, 3) > 0; row++)
        if (g.queries[row] > 0 && g.lengths[row] > 0 && g.lengths[row] < KV) g.lengths[row]++;
    if (draw(0, 4) == 0) change_single_row(step->rows);
    if (draw(0, 4) == 0) swap(g.sequences, step->rows);
    if (g.all.count == 0) return;
    fig_strip_group *last = &g.groups[g.all.count - 1]; /* no other group is within it */
    if (draw(0, 6) == 0) swap(g.order + last->first, last->rows);
    if (draw(0, 6) == 0 && last->to > last->from + 1) last->to--;
    if (draw(0, 9) == 0) g.all.count--;
}

/* Compares the strips of the class that shares with those that strips.c makes of all segments. */
static void expect_made(const fig_plan_held *held) {
    const uint32_t *places = (const void *)held->strips;
    const fig_strip_groups_work *work = &held->work;
    const fig_strips_shape *shape = &g.strips[g.sharer];
    fig_strips_make_within(shape, work->segments, work->segment_count,
                           shape->workers - held->readers[g.sharer], unfolded);
    const fig_strips_sizes sizes = fig_strips_share(&work->shared, unfolded);
    assert_memory_equal(held->strips + places[g.sharer], unfolded, (size_t)sizes.plan_bytes);
}

/* What is kept from step to step must not show. */
static void a_plan_does_not_depend_on_the_steps_before_it(void **state) {
    (void)state;
    int32_t kept = 0, fresh = 0, quick = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        open_ground(seed);
        fig_plan_step step = draw_step();
        for (int32_t turn = 0; turn < 12; turn++) {
            const int was_listed = g.held.is_listed;
            fig_plan_settle(&g.shape, &step, &g.held);
            const fig_plan_held held = g.held;
            open_held();
            fig_plan_settle(&g.shape, &step, &g.held);
            if (step.lengths != NULL && g.held.group_count > 0) {
                assert_memory_equal(held.readers, g.held.readers, sizeof held.readers);
                assert_int_equal(held.strips_bytes, g.held.strips_bytes);
                assert_memory_equal(held.strips, g.held.strips, held.strips_bytes);
                expect_made(&held);
                quick += was_listed && held.rows_of_groups.is_kept;
                for (int32_t i = 0; i < g.shape.class_count; i++)
                    assert_memory_equal(held.prefix[i], g.held.prefix[i],
                                        (size_t)(step.rows + 1) * sizeof(int32_t));
                *(was_listed ? &kept : &fresh) += 1;
            }
            fig_plan_held_finish(&g.held);
            g.held = held;
            change_step(&step);
        }
        fig_plan_held_finish(&g.held);
    }
    assert_true(kept > CASES && fresh > CASES / 2 && quick > CASES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_is_seen_once),
        cmocka_unit_test(the_bounds_of_counters_are_reached),
        cmocka_unit_test(a_class_that_shares_nothing_has_the_bounds_of_chunks),
        cmocka_unit_test(the_limit_of_shared_tokens_follows_the_rows),
        cmocka_unit_test(groups_travel_and_so_does_their_end),
        cmocka_unit_test(strips_do_not_travel_again_while_tails_grow),
        cmocka_unit_test(a_plan_does_not_depend_on_the_steps_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
