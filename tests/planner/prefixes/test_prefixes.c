/* test_prefixes.c: tests, for any changes to a page table, that all rows of a group have the
 * group's pages, that kept groups equal those of a new search, and that no other choice of groups
 * costs less.
 *
 * The test keeps its own table, and searches it entry by entry. An argument sets the number of
 * steps: `test_prefixes 1000000`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/prefixes/prefixes.h"
#include "tests/support/fault.h"
#include "tests/support/random.h"

enum {
    SEQUENCES = 14,
    PAGES = 40,
    PAGE = 64,
    POOL = 60,
    ROW_TOKENS = 3,
    CANDIDATE_LIMIT = 12,
    DEEP_ROWS = 256
};

/* A page is worth a tile, so that short prefixes become groups. */
static const fig_prefixes_costs costs = {.page_tokens = PAGE,
                                         .query_limit = ROW_TOKENS - 1,
                                         .tile_tokens = 64,
                                         .tile = 16,
                                         .strip_queries = 6,
                                         .strip_tile_tokens = 128,
                                         .strip_once = 8,
                                         .strip_tile = 14,
                                         .lone_once = 3,
                                         .lone_tile = 10,
                                         .partial = 1};

static int64_t draws = 100000;

static struct ground {
    uint64_t seed;
    fig_random random;
    fig_page_order order;
    fig_prefixes prefixes;
    int32_t table[SEQUENCES][PAGES], known[SEQUENCES], lengths[SEQUENCES];
    int32_t rows, step_lengths[SEQUENCES], sequences[SEQUENCES], queries[SEQUENCES];
    fig_prefixes_step step;
    int64_t found, kept, groups, levels[FIG_PREFIXES_LEVEL_LIMIT], tried;
} ground;

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&ground.random, low, high);
}

static int32_t least_of(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* ---- Changes ------------------------------------------------------------------------------- */

static void set(int32_t sequence, int32_t first, int32_t count, const int32_t *pages) {
    fig_page_order_set(&ground.order, sequence, first, count, pages);
    memcpy(&ground.table[sequence][first], pages, (size_t)count * sizeof *pages);
    if (first + count > ground.known[sequence]) ground.known[sequence] = first + count;
}

/* Gives the sequence random pages, which other sequences may have had before. */
static void join(int32_t s) {
    int32_t pages[PAGES];
    const int32_t count = draw(1, PAGES);
    for (int32_t i = 0; i < count; i++)
        pages[i] = draw(0, POOL - 1);
    set(s, 0, count, pages);
    ground.lengths[s] = draw(1, count * PAGE);
}

/* Gives sequence s the whole pages of another one, and then a few pages of its own or none. */
static void fork_from(int32_t from, int32_t s) {
    int32_t pages[PAGES], whole = ground.lengths[from] / PAGE;
    if (draw(0, 1)) whole = draw(0, whole);
    memcpy(pages, ground.table[from], (size_t)whole * sizeof *pages);
    const int32_t count = least_of(PAGES, whole + draw(0, 3));
    for (int32_t i = whole; i < count; i++)
        pages[i] = draw(0, POOL - 1);
    if (count == 0) return;
    set(s, 0, count, pages);
    ground.lengths[s] = draw(1, count * PAGE);
}

static void grow(int32_t s) {
    int32_t pages[3];
    const int32_t to = ground.lengths[s] + draw(0, 2 * PAGE);
    if (ground.lengths[s] == 0 || to > PAGES * PAGE) return;
    const int32_t first = (ground.lengths[s] + PAGE - 1) / PAGE;
    const int32_t count = (to + PAGE - 1) / PAGE - first;
    for (int32_t i = 0; i < count; i++)
        pages[i] = draw(0, POOL - 1);
    if (count > 0) set(s, first, count, pages);
    ground.lengths[s] = to;
}

static void change(void) {
    const int32_t s = draw(0, SEQUENCES - 1);
    int32_t pages[3];
    switch (draw(0, 9)) {
    case 0: join(s); break;
    case 1:
    case 2:
    case 3: fork_from(draw(0, SEQUENCES - 1), s); break;
    case 4: { /* some entries, anywhere */
        const int32_t first = draw(0, PAGES - 1), count = draw(1, least_of(3, PAGES - first));
        for (int32_t i = 0; i < count; i++)
            pages[i] = draw(0, 3);
        set(s, first, count, pages);
        break;
    }
    case 5: /* freed; its entries stay */ ground.lengths[s] = 0; break;
    case 6: /* some tokens were refused */ ground.lengths[s] = draw(0, ground.lengths[s]); break;
    default: grow(s);
    }
}

/* Draws the rows of a step: all sequences or some of them, in order, beginning at any sequence. */
static void draw_step(void) {
    const int32_t kind = draw(0, 3), turn = kind > 1 ? 0 : draw(0, SEQUENCES - 1);
    const int32_t is_uneven = draw(0, 2) == 0;
    fig_prefixes_step *step = &ground.step;
    ground.rows = 0;
    for (int32_t i = 0; i < SEQUENCES; i++) {
        const int32_t s = (i + turn) % SEQUENCES, row = ground.rows;
        if (kind == 0 && draw(0, 2) == 0) continue;
        const int32_t queries = is_uneven ? draw(0, ROW_TOKENS) : 1;
        ground.sequences[row] = s;
        ground.queries[row] = queries;
        ground.step_lengths[row] = ground.lengths[s] < queries ? 0 : ground.lengths[s];
        ground.rows++;
    }
    *step = (fig_prefixes_step){.rows = ground.rows, .lengths = ground.step_lengths};
    step->sequences = kind < 3 ? ground.sequences : NULL;
    step->queries = is_uneven ? ground.queries : NULL;
    step->row_tokens = 1;
}

/* ---- Groups and the table ------------------------------------------------------------------ */

/* Returns 1 if the row may be in a group. */
static int takes_part(int32_t row) {
    return ground.step_lengths[row] > 0 && ground.queries[row] > 0 &&
           ground.queries[row] <= costs.query_limit;
}

/* Returns the whole pages in front of a row's queries, or 0 if it shares none. */
static int32_t whole_of(int32_t row) {
    return takes_part(row) ? (ground.step_lengths[row] - ground.queries[row]) / PAGE : 0;
}

static int32_t common_of(int32_t row, int32_t other) {
    const int32_t a = ground.sequences[row], b = ground.sequences[other];
    int32_t i = 0;
    while (i < ground.known[a] && i < ground.known[b] && ground.table[a][i] == ground.table[b][i])
        i++;
    return i;
}

/* Returns what a group of rows gains, times the tokens of a tile. */
static int64_t gain_of(int32_t rows, int32_t queries, int32_t from, int32_t to) {
    const int64_t tiles = (to * PAGE + 127) / 128 - from * PAGE / 128;
    int64_t gain = (int64_t)rows * (to - from) * PAGE * costs.tile - 64 * queries * costs.partial;
    for (; queries > 3; queries -= 6)
        gain -= 64 * (costs.strip_once + tiles * costs.strip_tile);
    if (queries > 0) gain -= 64 * (costs.lone_once + tiles * costs.lone_tile);
    return gain;
}

static void check_groups(void) {
    const fig_prefixes *p = &ground.prefixes;
    int32_t reach[SEQUENCES] = {0}, levels[SEQUENCES] = {0};
    int64_t saved = 0;
    for (int32_t g = 0; g < p->group_count; g++) {
        const fig_prefixes_group *group = &p->groups[g];
        const int32_t *first = ground.table[ground.sequences[p->members[group->first]]];
        int32_t queries = 0;
        assert_true(group->rows >= 2 && group->from < group->to);
        assert_in_range(group->level, 0, FIG_PREFIXES_LEVEL_LIMIT - 1);
        for (int32_t m = group->first; m < group->first + group->rows; m++) {
            const int32_t row = p->members[m];
            assert_in_range(row, 0, ground.rows - 1);
            for (int32_t page = 0; page < group->to; page++)
                assert_int_equal(ground.table[ground.sequences[row]][page], first[page]);
            assert_true(group->to <= whole_of(row));
            assert_int_equal(reach[row], group->from);
            reach[row] = group->to;
            assert_int_equal(levels[row]++, group->level);
            queries += ground.queries[row];
        }
        assert_int_equal(queries, group->queries);
        saved += gain_of(group->rows, queries, group->from, group->to);
        ground.levels[group->level]++;
    }
    ground.groups += p->group_count;
    assert_int_equal(saved / costs.tile_tokens, p->saved);
}

/* ---- The best choice ----------------------------------------------------------------------- */

typedef struct candidate {
    uint32_t rows; /* bit r: row r */
    int32_t count, queries, depth;
} candidate;

/* Returns the rows that have the first `depth` pages of `row`. */
static candidate candidate_of(int32_t row, int32_t depth) {
    candidate c = {.depth = depth};
    for (int32_t other = 0; other < ground.rows; other++) {
        if (whole_of(other) < depth || (other != row && common_of(row, other) < depth)) continue;
        c.rows |= UINT32_C(1) << other;
        c.count++;
        c.queries += ground.queries[other];
    }
    return c;
}

/* Lists all sets of rows that share pages, each with all pages that it shares; returns their
 * number, or more than the limit. */
static int32_t list_candidates(candidate *list) {
    int32_t count = 0;
    for (int32_t row = 0; row < ground.rows; row++) {
        for (int32_t depth = whole_of(row); depth > 0; depth--) {
            const candidate c = candidate_of(row, depth);
            int is_known = c.count < 2;
            for (int32_t i = 0; i < count; i++)
                is_known |= list[i].rows == c.rows;
            if (is_known) continue;
            if (count == CANDIDATE_LIMIT) return count + 1;
            list[count++] = c;
        }
    }
    return count;
}

/* Returns what a set of candidates gains; INT64_MIN if they are nested in more than three
 * levels. */
static int64_t gain_of_set(const candidate *list, int32_t count, uint32_t set_of) {
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t from = 0, levels = 1;
        if (!(set_of >> i & 1)) continue;
        for (int32_t o = 0; o < count; o++) {
            if (o == i || !(set_of >> o & 1) || (list[i].rows & ~list[o].rows) != 0) continue;
            levels++;
            if (list[o].depth > from) from = list[o].depth;
        }
        if (levels > FIG_PREFIXES_LEVEL_LIMIT) return INT64_MIN;
        sum += gain_of(list[i].count, list[i].queries, from, list[i].depth);
    }
    return sum;
}

/* Tries all sets of candidates, where they are few. */
static void check_choice(void) {
    candidate list[CANDIDATE_LIMIT];
    const int32_t count = list_candidates(list);
    int64_t best = 0;
    if (count > CANDIDATE_LIMIT) return;
    for (uint32_t set_of = 0; set_of < UINT32_C(1) << count; set_of++) {
        const int64_t gain = gain_of_set(list, count, set_of);
        if (gain > best) best = gain;
    }
    best /= costs.tile_tokens;
    ground.tried++;
    assert_int_equal(ground.prefixes.saved, best);
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* Checks that the kept groups equal those of a new search. */
static void check_kept(void) {
    fig_prefixes *p = &ground.prefixes;
    fig_prefixes_group groups[SEQUENCES];
    int32_t members[SEQUENCES];
    const int32_t count = p->group_count;
    const int64_t saved = p->saved;
    memcpy(groups, p->groups, sizeof groups);
    memcpy(members, p->members, sizeof members);
    fig_prefixes_forget(p);
    assert_int_equal(fig_prefixes_find(p, &ground.order, &costs, &ground.step), 1);
    assert_int_equal(p->group_count, count);
    assert_int_equal(p->saved, saved);
    assert_memory_equal(p->groups, groups, (size_t)count * sizeof *groups);
    for (int32_t g = 0; g < count; g++)
        assert_memory_equal(&p->members[groups[g].first], &members[groups[g].first],
                            (size_t)groups[g].rows * sizeof *members);
}

static void open_ground(uint64_t seed) {
    const fig_page_order_limits limits = {SEQUENCES, PAGES};
    memset(&ground, 0, sizeof ground);
    ground.seed = seed;
    ground.random = fig_random_seed(seed);
    assert_int_equal(fig_page_order_init(&ground.order, &limits), FIG_OK);
    assert_int_equal(fig_prefixes_init(&ground.prefixes, SEQUENCES, SEQUENCES), FIG_OK);
}

static void close_ground(void) {
    fig_prefixes_finish(&ground.prefixes);
    fig_page_order_finish(&ground.order);
}

static void find_and_check(void) {
    if (fig_prefixes_find(&ground.prefixes, &ground.order, &costs, &ground.step)) {
        ground.found++;
        check_choice();
    } else {
        ground.kept++;
        check_kept();
    }
    check_groups();
}

static void no_group_is_ever_stale_or_wrong(void **state) {
    (void)state;
    open_ground(21);
    for (int64_t n = 0; n < draws; n++) {
        for (int32_t turns = draw(0, 3); turns > 0; turns--)
            change();
        if (draw(0, 3) > 0 || n == 0) draw_step();
        for (int32_t row = 0; row < ground.rows; row++) /* the same rows, of other lengths */
            if (ground.step.queries == NULL)
                ground.step_lengths[row] = ground.lengths[ground.sequences[row]];
        find_and_check();
    }
    printf("%lld steps, kept %lld, groups %lld, of level 1 %lld, 2 %lld; choices tried %lld\n",
           (long long)draws, (long long)ground.kept, (long long)ground.groups,
           (long long)ground.levels[1], (long long)ground.levels[2], (long long)ground.tried);
    assert_true(ground.kept > draws / 50 && ground.levels[2] > draws / 400);
    assert_true(ground.tried > draws / 2);
    close_ground();
}

/* Gives rows the same pages, and as many tokens as `lengths` says. */
static void share(int32_t rows, const int32_t *lengths) {
    int32_t pages[PAGES];
    for (int32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    ground.rows = rows;
    for (int32_t row = 0; row < rows; row++) {
        ground.sequences[row] = row;
        ground.queries[row] = 1;
        ground.step_lengths[row] = lengths[row];
        set(row, 0, PAGES, pages);
    }
    ground.step =
        (fig_prefixes_step){.rows = rows, .row_tokens = 1, .lengths = ground.step_lengths};
}

static void groups_end_in_front_of_the_first_query(void **state) {
    (void)state;
    static const int32_t lengths[] = {10 * PAGE + 1, 10 * PAGE + 1, 10 * PAGE + 1, 10 * PAGE + 1};
    open_ground(1);
    share(4, lengths);
    find_and_check();
    assert_int_equal(ground.prefixes.group_count, 1);
    assert_int_equal(ground.prefixes.groups[0].to, 10);
    for (int32_t row = 0; row < ground.rows; row++)
        ground.step_lengths[row] = 10 * PAGE;
    find_and_check();
    assert_int_equal(ground.prefixes.groups[0].to, 9);
    for (int32_t row = 0; row < ground.rows; row++)
        ground.queries[row] = 2;
    for (int32_t row = 0; row < ground.rows; row++)
        ground.step_lengths[row] = 10 * PAGE + 1;
    ground.step.row_tokens = 2;
    find_and_check();
    assert_int_equal(ground.prefixes.groups[0].to, 9);
    assert_int_equal(ground.kept, 0);
    close_ground();
}

static void a_short_row_does_not_tear_the_others_apart(void **state) {
    (void)state;
    static const int32_t lengths[] = {20 * PAGE + 1, 20 * PAGE + 1, PAGE + 1, 20 * PAGE + 1};
    open_ground(1);
    share(4, lengths);
    find_and_check();
    assert_int_equal(ground.prefixes.group_count, 1);
    assert_int_equal(ground.prefixes.groups[0].to, 20);
    assert_int_equal(ground.prefixes.groups[0].rows, 3);
    close_ground();
}

/* Idle row r is sequence r, which need not exist. */
static void idle_rows_may_be_more_than_sequences(void **state) {
    (void)state;
    const fig_page_order_limits limits = {2, PAGES};
    static const int32_t lengths[] = {20 * PAGE + 1, 20 * PAGE + 1, 0, 0, 0, 0, 0, 0};
    static const int32_t pages[PAGES];
    const fig_prefixes_step step = {.rows = 8, .row_tokens = 1, .lengths = lengths};
    fig_page_order order;
    fig_prefixes prefixes;
    assert_int_equal(fig_page_order_init(&order, &limits), FIG_OK);
    assert_int_equal(fig_prefixes_init(&prefixes, 8, 2), FIG_OK);
    for (int32_t s = 0; s < 2; s++)
        fig_page_order_set(&order, s, 0, PAGES, pages);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(fig_prefixes_find(&prefixes, &order, &costs, &step), 1);
        assert_int_equal(prefixes.group_count, 1);
        assert_int_equal(fig_prefixes_find(&prefixes, &order, &costs, &step), 0);
        fig_prefixes_forget(&prefixes);
    }
    fig_prefixes_finish(&prefixes);
    fig_page_order_finish(&order);
}

/* A table may have rows for sequences that no step names. */
static void a_table_may_have_more_sequences_than_steps(void **state) {
    (void)state;
    enum { MORE = 64 };
    const fig_page_order_limits limits = {MORE, PAGES};
    static const int32_t lengths[] = {20 * PAGE + 1, 20 * PAGE + 1};
    static const int32_t pages[PAGES];
    const fig_prefixes_step step = {.rows = 2, .row_tokens = 1, .lengths = lengths};
    fig_page_order order;
    fig_prefixes prefixes;
    assert_int_equal(fig_page_order_init(&order, &limits), FIG_OK);
    assert_int_equal(fig_prefixes_init(&prefixes, 2, 2), FIG_OK);
    for (int32_t s = 0; s < MORE; s++)
        fig_page_order_set(&order, s, 0, PAGES, pages);
    assert_int_equal(fig_prefixes_find(&prefixes, &order, &costs, &step), 1);
    assert_int_equal(prefixes.item_count, 2);
    assert_int_equal(prefixes.group_count, 1);
    fig_prefixes_finish(&prefixes);
    fig_page_order_finish(&order);
}

static void pages_shared_by_two_short_rows_make_no_group(void **state) {
    (void)state;
    static const int32_t lengths[] = {PAGE + 1, PAGE + 1};
    open_ground(1);
    share(2, lengths);
    find_and_check();
    assert_int_equal(ground.prefixes.group_count, 1);
    fig_prefixes_costs dear = costs;
    dear.partial = 12;
    assert_int_equal(fig_prefixes_find(&ground.prefixes, &ground.order, &dear, &ground.step), 1);
    assert_int_equal(ground.prefixes.group_count, 0);
    assert_int_equal(ground.prefixes.saved, 0);
    close_ground();
}

/* Each row parts from the others eight pages later than the row before it, so the tree is 255 nodes
 * deep. */
static void a_deep_tree_is_thinned_out(void **state) {
    (void)state;
    enum { DEEP_PAGES = 2048 };
    const fig_page_order_limits limits = {DEEP_ROWS, DEEP_PAGES};
    fig_page_order order;
    fig_prefixes prefixes;
    int32_t pages[DEEP_PAGES], lengths[DEEP_ROWS];
    int64_t alone = 0;
    assert_int_equal(fig_page_order_init(&order, &limits), FIG_OK);
    assert_int_equal(fig_prefixes_init(&prefixes, DEEP_ROWS, DEEP_ROWS), FIG_OK);
    for (int32_t row = 0; row < DEEP_ROWS; row++) {
        for (int32_t i = 0; i < DEEP_PAGES; i++)
            pages[i] = i < 8 * row ? i : DEEP_PAGES + row;
        fig_page_order_set(&order, row, 0, DEEP_PAGES, pages);
        lengths[row] = DEEP_PAGES * PAGE;
        if (row > 0) {
            const int64_t gain = gain_of(DEEP_ROWS - row, DEEP_ROWS - row, 0, 8 * row) / 64;
            alone = gain > alone ? gain : alone;
        }
    }
    const fig_prefixes_step step = {.rows = DEEP_ROWS, .row_tokens = 1, .lengths = lengths};
    assert_int_equal(fig_prefixes_find(&prefixes, &order, &costs, &step), 1);
    assert_int_equal(prefixes.group_count, FIG_PREFIXES_LEVEL_LIMIT);
    assert_in_range(prefixes.node_count, 2, FIG_PREFIXES_DEPTH_LIMIT + 1);
    for (int32_t g = 0; g < 3; g++) {
        const fig_prefixes_group *group = &prefixes.groups[g];
        assert_int_equal(group->level, g);
        assert_int_equal(group->from, g > 0 ? prefixes.groups[g - 1].to : 0);
        assert_true(group->rows >= 2 && group->to <= 8 * (DEEP_ROWS - group->rows));
    }
    assert_true(prefixes.saved > alone); /* three groups gain more than the best one */
    fig_prefixes_finish(&prefixes);
    fig_page_order_finish(&order);
}

static void memory_that_runs_out_leaves_nothing(void **state) {
    (void)state;
    fig_prefixes prefixes;
    fig_status status;
    for (int64_t n = 1;; n++) {
        fig_fault_arm(n);
        status = fig_prefixes_init(&prefixes, 8, 4);
        if (fig_fault_disarm() < n) break;
        assert_int_equal(status, FIG_NOMEM);
        assert_null(prefixes.groups);
    }
    assert_int_equal(status, FIG_OK);
    fig_prefixes_finish(&prefixes);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_group_is_ever_stale_or_wrong),
        cmocka_unit_test(groups_end_in_front_of_the_first_query),
        cmocka_unit_test(a_short_row_does_not_tear_the_others_apart),
        cmocka_unit_test(idle_rows_may_be_more_than_sequences),
        cmocka_unit_test(a_table_may_have_more_sequences_than_steps),
        cmocka_unit_test(pages_shared_by_two_short_rows_make_no_group),
        cmocka_unit_test(a_deep_tree_is_thinned_out),
        cmocka_unit_test(memory_that_runs_out_leaves_nothing),
    };
    if (argc > 1) draws = atoll(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
