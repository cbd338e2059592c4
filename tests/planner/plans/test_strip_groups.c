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

enum {
    ROWS = 12,
    GROUPS = 3 * (ROWS / 2),
    QUERIES = 20,
    TOKENS = ROWS * QUERIES,
    KV = 400,
    MEMBERS = 8 * TOKENS,
    PLAN_BYTES = 1 << 20,
    RANDOM_STEPS = 3000
};

static struct ground {
    fig_random random;
    int32_t starts[ROWS + 1], lengths[ROWS], sequences[ROWS], order[ROWS];
    fig_strip_group groups[GROUPS];
    fig_strip_groups step;
    fig_strip_groups_row rows[ROWS];
    fig_strips_segment segments[ROWS + GROUPS];
    fig_strips_member members[MEMBERS];
    fig_strip_groups_work work;
    uint8_t seen[TOKENS][KV]; /* how often a query token sees a kv token of its row */
    uint8_t slots[TOKENS][FIG_STRIPS_SLOT_LIMIT];
    uint8_t taken[4 * TOKENS];
} ground;
static _Alignas(16) uint8_t plan[PLAN_BYTES];

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
        ground.lengths[r] = queries + draw(30, KV - QUERIES);
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
        const int32_t left = open[count].levels, to = after + draw(1, 9);
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
    draw_rows();
    int32_t first = 0;
    while (first < ground.step.rows) {
        const int32_t end = draw(first + 1, ground.step.rows);
        draw_groups(first, end, 0, draw(0, 3));
        first = end;
    }
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
    assert_in_range(member->slot, 0, member->slots - 1);
    assert_in_range(member->slots, 2, FIG_STRIPS_SLOT_LIMIT);
    assert_int_equal(ground.slots[token][member->slot]++, 0);
    assert_int_equal(ground.taken[member->first_slot + member->slot]++, 0);
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

/* ---- Plans --------------------------------------------------------------------------------- */

static fig_strips_shape draw_shape(void) {
    return (fig_strips_shape){.ratio = draw(1, 16),
                              .kv_heads = draw(1, 4),
                              .head_dim = 128,
                              .tile_tokens = draw(0, 1) ? 16 : 128,
                              .workers = draw(1, 140)};
}

/* Checks that each slot has vectors and counters that no other slot and no piece uses. */
static void check_slots(const fig_strips_shape *shape, const fig_strips_sizes *sizes) {
    static uint8_t vectors[1 << 17], counters[1 << 17];
    const fig_strips_head *head = (const fig_strips_head *)(const void *)plan;
    const fig_strips_member *members = fig_strips_members(plan);
    const int32_t q_heads = shape->ratio * shape->kv_heads;
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

/* Each member is in one strip of each kv head. */
static void check_members(const fig_strips_shape *shape, int64_t count) {
    static uint8_t strips[MEMBERS][4];
    const fig_strips_item *items = fig_strips_items(plan, shape->workers);
    memset(strips, 0, sizeof strips);
    for (int64_t i = 0; i < count; i++) {
        if (!(items[i].flags & FIG_STRIPS_IS_SHARED)) continue;
        assert_in_range(items[i].member, 0, ground.work.shared.count - items[i].queries);
        for (int32_t n = 0; n < items[i].queries; n++)
            if (items[i].partial <= items[i].first_partial)
                strips[items[i].member + n][items[i].head]++;
    }
    for (int32_t m = 0; m < ground.work.shared.count; m++)
        for (int32_t head = 0; head < shape->kv_heads; head++)
            assert_int_equal(strips[m][head], 1);
}

static void check_plan(const fig_strips_shape *shape) {
    const int32_t count = ground.step.rows + ground.step.count;
    int64_t queries = 0;
    for (int32_t s = 0; s < count; s++)
        queries += ground.segments[s].queries;
    const fig_strips_limits limits = {
        .segments = count, .queries = queries, .shared = ground.work.shared.tokens};
    const fig_strips_sizes bound = fig_strips_bound(shape, &limits);
    fig_strips_make(shape, ground.segments, count, plan);
    const fig_strips_sizes sizes = fig_strips_share(&ground.work.shared, plan);
    assert_true(sizes.partial_vectors <= bound.partial_vectors);
    assert_true(sizes.counters <= bound.counters);
    assert_true(sizes.plan_bytes <= bound.plan_bytes && bound.plan_bytes <= PLAN_BYTES);
    check_members(shape, sizes.items);
    check_slots(shape, &sizes);
}

static void each_token_is_seen_once_and_each_result_has_a_slot(void **state) {
    (void)state;
    int32_t with_three = 0;
    for (uint64_t seed = 0; seed < RANDOM_STEPS; seed++) {
        draw_step(seed);
        list();
        check_segments();
        const fig_strips_shape shape = draw_shape();
        check_plan(&shape);
        for (int32_t m = 0; m < ground.work.shared.count; m++)
            with_three += ground.members[m].slots == FIG_STRIPS_SLOT_LIMIT;
    }
    assert_true(with_three > RANDOM_STEPS);
}

/* All rows are in three groups, and there are as many full strips as cuts. */
static void some_steps_need_all_slots(void **state) {
    (void)state;
    const fig_strips_shape shape = {
        .ratio = 4, .kv_heads = 1, .head_dim = 128, .tile_tokens = 128, .workers = 3};
    memset(&ground.step, 0, sizeof ground.step);
    ground.step = (fig_strip_groups){.rows = 2,
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
    check_plan(&shape);
    const fig_strips_limits limits = {.segments = 5, .queries = 8 * QUERIES, .shared = 2 * QUERIES};
    const fig_strips_limits alone = {.segments = 5, .queries = 8 * QUERIES};
    const int64_t slots = fig_strips_bound(&shape, &limits).partial_vectors -
                          fig_strips_bound(&shape, &alone).partial_vectors;
    assert_int_equal(((const fig_strips_head *)(const void *)plan)->slot_vectors, slots);
    assert_int_equal(fig_strips_share(&ground.work.shared, plan).counters,
                     fig_strips_bound(&shape, &limits).counters);
    assert_int_equal(ground.work.shared.count * (int64_t)sizeof(fig_strips_member),
                     fig_strips_bound(&shape, &limits).plan_bytes -
                         fig_strips_bound(&shape, &alone).plan_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_token_is_seen_once_and_each_result_has_a_slot),
        cmocka_unit_test(some_steps_need_all_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
