/* test_plan_queries.c: compares plans for rows with unequal numbers of query tokens with plans
 * assembled by hand. Plans of programs that are not packed keep their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/plan.h"
#include "tests/support/random.h"

enum { ROW_CAPACITY = 40, PLAN_CAPACITY = 1 << 14, UNTOUCHED = 0xa5, CASES = 3000 };

static _Alignas(16) uint8_t slot[PLAN_CAPACITY], plan[PLAN_CAPACITY], other[PLAN_CAPACITY];
static fig_plan_held held;

static int open_held(void **state) {
    (void)state;
    return fig_plan_held_init(&held, &(fig_plan_held_limits){.row_limit = ROW_CAPACITY}) != FIG_OK;
}

static int close_held(void **state) {
    (void)state;
    fig_plan_held_finish(&held);
    return 0;
}

typedef struct step_arrays {
    int32_t lengths[ROW_CAPACITY], sequences[ROW_CAPACITY], queries[ROW_CAPACITY];
} step_arrays;

static fig_plan_shape draw_shape(fig_random *random, int32_t token_limit) {
    fig_plan_shape shape = {.exec = (uint32_t)fig_random_range(random, 0, 4000)};
    shape.row_limit = fig_random_range(random, 1, ROW_CAPACITY);
    shape.class_count = fig_random_range(random, 0, 3);
    shape.row_tokens = fig_random_range(random, 1, token_limit);
    for (int32_t i = 0; i < shape.class_count; i++) {
        fig_split_shape *split = &shape.splits[i];
        split->row_limit = shape.row_limit;
        split->groups = fig_random_range(random, 1, 8);
        split->tile_tokens = fig_random_range(random, 1, 64);
        if (fig_random_range(random, 0, 1)) split->tile_tokens = 1 << split->tile_tokens % 7;
        split->workers = fig_random_range(random, 1, 140);
        split->window = fig_random_range(random, 0, 1) ? fig_random_range(random, 1, 200) : 0;
        split->row_tokens = shape.row_tokens;
        split->fixed = fig_random_range(random, 0, 3) == 0;
        shape.once[i] = fig_random_range(random, 0, 2) ? fig_random_range(random, 1, 60) : 0;
    }
    fig_plan_lay_out(&shape);
    return shape;
}

/* Draws the shape of a packed program. */
static fig_plan_shape draw_packed(fig_random *random) {
    fig_plan_shape shape = draw_shape(random, 16);
    shape.query_limit = shape.row_limit * shape.row_tokens;
    fig_plan_lay_out(&shape);
    return shape;
}

/* Draws rows of at least row_tokens tokens, or none. */
static fig_plan_step draw_step(fig_random *random, const fig_plan_shape *shape,
                               step_arrays *arrays) {
    fig_plan_step step = {.rows = fig_random_range(random, 0, shape->row_limit),
                          .lengths = arrays->lengths,
                          .sequences = arrays->sequences,
                          .horizon = 1,
                          .row_tokens = shape->row_tokens};
    for (int32_t row = 0; row < step.rows; row++) {
        const int idle = fig_random_range(random, 0, 3) == 0;
        arrays->lengths[row] = idle ? 0 : fig_random_range(random, shape->row_tokens, 300);
        arrays->sequences[row] = fig_random_range(random, 0, 65535);
    }
    return step;
}

/* Draws a step with counts: 0 to row_tokens, and not more than the row has tokens. */
static fig_plan_step draw_counted(fig_random *random, const fig_plan_shape *shape,
                                  step_arrays *arrays) {
    fig_plan_step step = draw_step(random, shape, arrays);
    step.queries = arrays->queries;
    for (int32_t row = 0; row < step.rows; row++) {
        const int32_t count = fig_random_range(random, 0, shape->row_tokens);
        arrays->queries[row] = count;
        if (arrays->lengths[row] > 0 && fig_random_range(random, 0, 3) == 0)
            arrays->lengths[row] = count > 0 ? count : 1; /* only its queries */
    }
    return step;
}

static uint32_t write_whole(const fig_plan_shape *shape, const fig_plan_step *step) {
    held.exec = -1;
    const uint32_t sections = fig_plan_settle(shape, step, &held);
    memset(slot, UNTOUCHED, sizeof slot);
    return fig_plan_write(shape, step, sections, &held, slot);
}

static const int32_t *section(const uint8_t *base, uint32_t offset) {
    return (const int32_t *)(const void *)(base + offset);
}

/* ---- Without counts ------------------------------------------------------------------------- */

/* The expected sum is over the bytes of many plans. It was computed before plans could have
 * counts. */
static void plans_of_programs_that_are_not_packed_keep_their_bytes(void **state) {
    (void)state;
    uint64_t sum = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_shape(&random, 8);
        fig_plan_step step = draw_step(&random, &shape, &arrays);
        if (seed % 4 == 0) step.horizon = fig_random_range(&random, 2, 9);
        if (seed % 3 == 0 && shape.row_tokens > 1) step.tokens = arrays.sequences;
        const uint32_t bytes = write_whole(&shape, &step);
        memset(slot, 0, sizeof(uint64_t)); /* leaves out the tag, which the ring writes */
        for (uint32_t i = 0; i < bytes; i++)
            sum = (sum ^ slot[i]) * UINT64_C(0x100000001b3);
        sum = (sum ^ shape.layout.bytes) * UINT64_C(0x100000001b3);
    }
    if (sum != UINT64_C(0x0c322ddfcaf09fe5)) fail_msg("the sum is 0x%llx", (unsigned long long)sum);
}

/* If all rows have as many query tokens as they may have, the plan is the same with counts as
 * without. */
static void equal_counts_make_the_plan_that_no_counts_make(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_packed(&random);
        fig_plan_step step = draw_step(&random, &shape, &arrays);
        const uint32_t bytes = write_whole(&shape, &step);
        memcpy(other, slot, sizeof slot);
        for (int32_t row = 0; row < step.rows; row++)
            arrays.queries[row] = shape.row_tokens;
        step.queries = arrays.queries;
        assert_int_equal(write_whole(&shape, &step), bytes);
        assert_memory_equal(slot, other, sizeof slot);
    }
}

/* That plan equals the plan of a program that is not packed, except for the section of the
 * counts. */
static void a_packed_plan_differs_by_its_queries_alone(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        step_arrays arrays;
        fig_plan_shape shape = draw_shape(&random, 16);
        const fig_plan_step step = draw_step(&random, &shape, &arrays);
        const uint32_t bytes = write_whole(&shape, &step);
        const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
        const fig_plan_places places = fig_plan_places_of(&shape, head);
        memcpy(other, slot, sizeof slot);
        shape.query_limit = shape.row_limit * shape.row_tokens;
        fig_plan_lay_out(&shape);
        const uint32_t more = ((uint32_t)step.rows + 2 + 3) / 4 * 16;
        assert_int_equal(write_whole(&shape, &step), bytes + more);
        assert_int_equal(head->sections, ((const fig_plan_head *)(const void *)other)->sections |
                                             FIG_PLAN_HAS_QUERIES);
        const size_t front = sizeof *head;
        assert_memory_equal(slot + front, other + front, places.queries - front);
        assert_memory_equal(slot + places.queries + more, other + places.queries,
                            bytes - places.queries);
    }
}

/* ---- With counts ---------------------------------------------------------------------------- */

/* Counts a row's tiles token by token. A tile counts if some query of the row sees one of its
 * tokens. */
static int32_t tiles_by_hand(const fig_split_shape *split, int32_t length, int32_t queries) {
    int32_t tiles = 0, last = -1;
    for (int32_t token = 0; token < length && queries > 0; token++) {
        const int32_t first_query = length - queries;
        const int is_seen = split->window == 0 || token > first_query - split->window;
        if (is_seen && token / split->tile_tokens != last) tiles++;
        if (is_seen) last = token / split->tile_tokens;
    }
    return tiles;
}

static void expect_rows(const fig_plan_shape *shape, const fig_plan_step *step) {
    const fig_plan_layout *layout = &shape->layout;
    const int32_t *queries = section(plan, layout->queries);
    int32_t sum = 0;
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t count = step->queries[row], length = count == 0 ? 0 : step->lengths[row];
        assert_int_equal(section(plan, layout->lengths)[row], length);
        assert_int_equal(section(plan, layout->positions)[row], length > 0 ? length - 1 : 0);
        assert_int_equal(queries[1 + row], sum);
        const fig_plan_queries own = fig_plan_queries_of(plan, layout->queries, 99, row);
        assert_true(own.first == sum && own.count == count);
        for (int32_t token = sum; token < sum + count; token++)
            assert_int_equal(fig_plan_row_of_query(plan, layout->queries, step->rows, token), row);
        sum += count;
    }
    assert_true(queries[0] == sum && queries[1 + step->rows] == sum);
}

static void expect_splits(const fig_plan_shape *shape, const fig_plan_step *step) {
    const fig_plan_layout *layout = &shape->layout;
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        const int32_t *prefix = section(plan, layout->prefix[i]);
        const fig_split_start *starts = (const void *)(plan + layout->starts[i]);
        int32_t tiles = 0, owned = 0;
        for (int32_t row = 0; row < step->rows; row++) {
            assert_int_equal(prefix[row], tiles);
            tiles += tiles_by_hand(split, step->lengths[row], step->queries[row]);
        }
        assert_int_equal(prefix[step->rows], tiles);
        for (int32_t worker = 0; worker < split->workers; worker++)
            owned += starts[worker].count;
        assert_int_equal(owned, tiles * split->groups);
    }
}

static void a_plan_follows_its_counts(void **state) {
    (void)state;
    int by_units = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_packed(&random);
        const fig_plan_step step = draw_counted(&random, &shape, &arrays);
        const uint32_t bytes = write_whole(&shape, &step);
        assert_true(bytes <= shape.layout.bytes && bytes % 16 == 0);
        assert_int_equal(slot[bytes], UNTOUCHED);
        memset(plan, UNTOUCHED, sizeof plan);
        fig_plan_unpack(&shape, slot, plan);
        expect_rows(&shape, &step);
        expect_splits(&shape, &step);
        const fig_plan_head *head = (const fig_plan_head *)(const void *)plan;
        by_units += (head->sections & FIG_PLAN_BY_UNITS) != 0;
    }
    assert_true(by_units > CASES / 20);
}

/* Only the device knows the lengths and counts, and completes the plan with them. */
static void counts_written_later_make_the_same_plan(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        fig_random random = fig_random_seed(seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_packed(&random);
        const fig_plan_step known = draw_counted(&random, &shape, &arrays);
        const fig_plan_step sent = {.rows = known.rows, .sequences = known.sequences, .horizon = 1};
        write_whole(&shape, &known);
        memset(other, UNTOUCHED, sizeof other);
        fig_plan_unpack(&shape, slot, other);
        write_whole(&shape, &sent);
        memset(plan, UNTOUCHED, sizeof plan);
        fig_plan_unpack(&shape, slot, plan);
        fig_plan_write_lengths(&shape, &known, plan);
        expect_rows(&shape, &known);
        for (int32_t i = 0; i < shape.class_count; i++) {
            const uint32_t prefix = shape.layout.prefix[i], starts = shape.layout.starts[i];
            assert_memory_equal(plan + prefix, other + prefix, ((size_t)known.rows + 1) * 4);
            assert_memory_equal(plan + starts, other + starts,
                                (size_t)shape.splits[i].workers * sizeof(fig_split_start));
        }
    }
}

static void counts_that_the_device_holds_do_not_travel(void **state) {
    (void)state;
    fig_plan_shape shape = {.exec = 3, .row_limit = 8, .class_count = 1, .row_tokens = 8};
    shape.query_limit = 64;
    shape.splits[0] = (fig_split_shape){
        .row_limit = 8, .groups = 2, .tile_tokens = 16, .workers = 5, .row_tokens = 8};
    fig_plan_lay_out(&shape);
    int32_t lengths[] = {30, 40, 50}, queries[] = {3, 0, 8};
    fig_plan_step step = {.rows = 3, .lengths = lengths, .queries = queries, .horizon = 1};
    const uint32_t all = FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_SPLITS;
    held.exec = -1;
    assert_int_equal(fig_plan_settle(&shape, &step, &held), all | FIG_PLAN_HAS_QUERIES);
    assert_int_equal(fig_plan_settle(&shape, &step, &held), FIG_PLAN_HAS_LENGTHS);
    queries[0] = 2; /* leaves all tiles as they are */
    assert_int_equal(fig_plan_settle(&shape, &step, &held),
                     FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_QUERIES);
    queries[0] = 3;
    queries[2] = 7; /* has the same sum, but other counts */
    assert_int_equal(fig_plan_settle(&shape, &step, &held),
                     FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_QUERIES);
    queries[1] = 1; /* wakes a row that was idle */
    assert_int_equal(fig_plan_settle(&shape, &step, &held),
                     FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_QUERIES | FIG_PLAN_HAS_SPLITS);
    step.queries = NULL; /* gives each row 8 queries */
    assert_int_equal(fig_plan_settle(&shape, &step, &held),
                     FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_QUERIES);
    assert_int_equal(fig_plan_settle(&shape, &step, &held), FIG_PLAN_HAS_LENGTHS);
}

/* If a device holds no counts, it must not run a plan that leaves them out, unless the device
 * itself writes them. */
static void a_plan_of_lengths_must_have_counts_or_find_them(void **state) {
    (void)state;
    fig_plan_shape shape = {.row_limit = 8, .row_tokens = 4};
    const fig_plan_head known = {.sections = FIG_PLAN_HAS_LENGTHS}, unknown = {.sections = 0};
    const uint32_t plain = FIG_PLAN_HAS_SEQUENCES | FIG_PLAN_HAS_SPLITS;
    assert_int_equal(fig_plan_all_sections(&shape, &known), plain);
    assert_int_equal(fig_plan_all_sections(&shape, &unknown), FIG_PLAN_HAS_SEQUENCES);
    shape.query_limit = 32;
    assert_int_equal(fig_plan_all_sections(&shape, &known), plain | FIG_PLAN_HAS_QUERIES);
    assert_int_equal(fig_plan_all_sections(&shape, &unknown), FIG_PLAN_HAS_SEQUENCES);
}

/* The plan of a program that is not packed has no place for counts. */
static void a_shape_without_queries_has_no_place_for_them(void **state) {
    (void)state;
    fig_plan_shape shape = {.row_limit = 8, .row_tokens = 4};
    const fig_plan_head head = {.sections = FIG_PLAN_HAS_QUERIES};
    fig_plan_lay_out(&shape);
    assert_int_equal(fig_plan_has_places(&shape, &head), 0);
    shape.query_limit = 32;
    fig_plan_lay_out(&shape);
    assert_int_equal(fig_plan_has_places(&shape, &head), 1);
}

/* A kernel may look at the page table of an idle row. */
static void an_idle_row_names_a_sequence_that_there_is(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 1, 0, 0};
    fig_random random = fig_random_seed(1);
    fig_plan_shape shape = draw_shape(&random, 1);
    fig_plan_step step = {
        .rows = 4, .lengths = lengths, .sequence_limit = 2, .horizon = 1, .row_tokens = 1};
    shape.row_limit = 4;
    shape.class_count = 0;
    fig_plan_lay_out(&shape);
    held.exec = -1;
    assert_true(fig_plan_settle(&shape, &step, &held) & FIG_PLAN_HAS_SEQUENCES);
    assert_memory_equal(held.sequences, ((int32_t[]){0, 1, 0, 0}), 4 * sizeof(int32_t));
    assert_false(fig_plan_settle(&shape, &step, &held) & FIG_PLAN_HAS_SEQUENCES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_programs_that_are_not_packed_keep_their_bytes),
        cmocka_unit_test(equal_counts_make_the_plan_that_no_counts_make),
        cmocka_unit_test(a_packed_plan_differs_by_its_queries_alone),
        cmocka_unit_test(a_plan_follows_its_counts),
        cmocka_unit_test(counts_written_later_make_the_same_plan),
        cmocka_unit_test(counts_that_the_device_holds_do_not_travel),
        cmocka_unit_test(a_plan_of_lengths_must_have_counts_or_find_them),
        cmocka_unit_test(a_shape_without_queries_has_no_place_for_them),
        cmocka_unit_test(an_idle_row_names_a_sequence_that_there_is),
    };
    return cmocka_run_group_tests(tests, open_held, close_held);
}
