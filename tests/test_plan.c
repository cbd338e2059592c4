/* test_plan.c: a plan's bytes are those of a plan put together by hand, nothing is written outside
 * them, and none is longer than its bucket's bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plan.h"
#include "tests/support/random.h"

enum { ROW_CAPACITY = 64, PLAN_CAPACITY = 1 << 14, UNTOUCHED = 0xa5 };

static _Alignas(16) uint8_t plan[PLAN_CAPACITY];
static uint8_t expected[PLAN_CAPACITY];

typedef struct step_arrays {
    int32_t lengths[ROW_CAPACITY], positions[ROW_CAPACITY], sequences[ROW_CAPACITY];
} step_arrays;

static fig_plan_shape draw_shape(fig_random *random) {
    fig_plan_shape shape = {.bucket = (uint32_t)fig_random_range(random, 0, 4000)};
    shape.row_limit = fig_random_range(random, 1, ROW_CAPACITY);
    shape.class_count = fig_random_range(random, 0, FIG_CLASS_LIMIT);
    for (int32_t i = 0; i < shape.class_count; i++) {
        fig_split_shape *split = &shape.splits[i];
        split->row_limit = shape.row_limit;
        split->groups = fig_random_range(random, 1, 8);
        split->tile_tokens = fig_random_range(random, 1, 64);
        split->workers = fig_random_range(random, 1, 140);
        split->window = fig_random_range(random, 0, 1) ? fig_random_range(random, 1, 200) : 0;
        split->row_tokens = fig_random_range(random, 1, 8);
        split->fixed = fig_random_range(random, 0, 1);
    }
    fig_plan_lay_out(&shape);
    return shape;
}

static fig_plan_step draw_step(fig_random *random, int32_t row_limit, step_arrays *arrays) {
    fig_plan_step step = {.rows = fig_random_range(random, 0, row_limit),
                          .lengths = arrays->lengths};
    for (int32_t row = 0; row < step.rows; row++) {
        int idle = fig_random_range(random, 0, 3) == 0;
        arrays->lengths[row] = idle ? 0 : fig_random_range(random, 8, 300);
        arrays->positions[row] = fig_random_range(random, 0, 100000);
        arrays->sequences[row] = fig_random_range(random, 0, 65535);
    }
    if (fig_random_range(random, 0, 1)) step.positions = arrays->positions;
    if (fig_random_range(random, 0, 1)) step.sequences = arrays->sequences;
    if (fig_random_range(random, 0, 3) == 0) step.lengths = step.positions = NULL;
    return step;
}

static void put(uint32_t offset, int32_t index, int32_t value) {
    memcpy(expected + offset + (size_t)index * sizeof value, &value, sizeof value);
}

/* The plan by plan.h's words alone, over bytes that are UNTOUCHED elsewhere. */
static void put_together(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t bytes) {
    memset(expected, UNTOUCHED, sizeof expected);
    memset(expected + offsetof(fig_plan_head, bytes), 0, sizeof(fig_plan_head) - sizeof(uint64_t));
    memcpy(expected + offsetof(fig_plan_head, bytes), &bytes, sizeof bytes);
    memcpy(expected + offsetof(fig_plan_head, bucket), &shape->bucket, sizeof shape->bucket);
    memcpy(expected + offsetof(fig_plan_head, rows), &step->rows, sizeof step->rows);
    for (int32_t row = 0; row < step->rows; row++) {
        int32_t length = step->lengths ? step->lengths[row] : 0;
        int32_t last = length == 0 ? 0 : length - 1;
        put(shape->layout.lengths, row, length);
        put(shape->layout.positions, row, step->positions ? step->positions[row] : last);
        put(shape->layout.sequences, row, step->sequences ? step->sequences[row] : row);
    }
    for (int32_t i = 0; i < shape->class_count; i++) {
        const fig_split_shape *split = &shape->splits[i];
        int32_t prefix[ROW_CAPACITY + 1] = {0};
        for (int32_t row = 0; row < step->rows; row++)
            prefix[row + 1] =
                prefix[row] + (step->lengths ? fig_split_tiles(split, step->lengths[row]) : 0);
        for (int32_t row = 0; row <= step->rows; row++)
            put(shape->layout.prefix[i], row, prefix[row]);
        fig_split_line line = fig_split_line_of(split, prefix, step->rows);
        for (int32_t worker = 0; worker < split->workers; worker++) {
            fig_split_start start = fig_split_start_of(split, &line, worker);
            memcpy(expected + shape->layout.starts[i] + (size_t)worker * sizeof start, &start,
                   sizeof start);
        }
    }
}

static void expect_bytes(int seed) {
    for (size_t i = 0; i < sizeof plan; i++) {
        if (plan[i] != expected[i])
            fail_msg("seed %d, byte %zu: %d, expected %d", seed, i, plan[i], expected[i]);
    }
}

static void a_plan_holds_what_its_words_say_and_nothing_else_is_touched(void **state) {
    (void)state;
    for (int seed = 0; seed < 5000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        step_arrays arrays;
        fig_plan_shape shape = draw_shape(&random);
        fig_plan_step step = draw_step(&random, shape.row_limit, &arrays);
        assert_in_range(shape.layout.bytes, sizeof(fig_plan_head), PLAN_CAPACITY);
        memset(plan, UNTOUCHED, sizeof plan);
        uint32_t bytes = fig_plan_write(&shape, &step, plan);
        assert_int_equal(((const fig_plan_head *)(const void *)plan)->bytes, bytes);
        assert_true(bytes % 16 == 0 && bytes <= shape.layout.bytes);
        put_together(&shape, &step, bytes);
        expect_bytes(seed);
        /* Nothing that was written lies past the bytes said to be used. */
        for (size_t i = bytes; i < sizeof plan; i++)
            assert_int_equal(plan[i], UNTOUCHED);
    }
}

/* What a device that reads the lengths itself does to the plan that it was sent: byte for byte the
 * plan that a host who knows them sends. The lengths may lie in the plan already. */
static void lengths_written_later_make_the_same_plan(void **state) {
    (void)state;
    for (int seed = 0; seed < 5000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        step_arrays arrays;
        fig_plan_shape shape = draw_shape(&random);
        fig_plan_step known = draw_step(&random, shape.row_limit, &arrays);
        known.lengths = arrays.lengths;
        fig_plan_step sent = {.rows = known.rows, .sequences = known.sequences}, later = known;
        later.sequences = NULL;
        memset(plan, UNTOUCHED, sizeof plan);
        uint32_t bytes = fig_plan_write(&shape, &known, plan);
        memcpy(expected, plan, sizeof plan);

        memset(plan, UNTOUCHED, sizeof plan);
        assert_int_equal(fig_plan_write(&shape, &sent, plan), bytes);
        if (seed % 2 == 0) {
            int32_t *own = (int32_t *)(void *)(plan + shape.layout.lengths);
            memcpy(own, arrays.lengths, (size_t)known.rows * sizeof *own);
            later.lengths = own;
        }
        fig_plan_write_lengths(&shape, &later, plan);
        expect_bytes(seed);
    }
}

/* A slot holds the plan of a step long past, and the bytes must not depend on it. */
static void a_plan_does_not_depend_on_what_lay_there(void **state) {
    (void)state;
    fig_random random = fig_random_seed(7);
    step_arrays arrays;
    fig_plan_shape shape = draw_shape(&random);
    fig_plan_step step = draw_step(&random, shape.row_limit, &arrays);
    memset(plan, 0, sizeof plan);
    fig_plan_write(&shape, &step, plan);
    memcpy(expected, plan, sizeof plan);
    memset(plan, 0xff, sizeof plan);
    fig_plan_write(&shape, &step, plan);
    uint64_t sequence = ((const fig_plan_head *)(const void *)plan)->sequence;
    assert_true(sequence == UINT64_MAX);
    for (size_t i = sizeof sequence; i < sizeof plan; i++) {
        /* Written bytes agree; the others are as they were, 0 and 0xff. */
        if (plan[i] != expected[i] && (plan[i] != 0xff || expected[i] != 0))
            fail_msg("byte %zu: %d and %d", i, plan[i], expected[i]);
    }
}

/* A section starts where the one before ends, rounded up to 16 bytes, in the order plan.h draws. */
static void sections_lie_side_by_side_and_aligned(void **state) {
    (void)state;
    for (int seed = 0; seed < 2000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        fig_plan_shape shape = draw_shape(&random);
        uint32_t rows = (uint32_t)shape.row_limit, end = 64;
        const uint32_t of_rows = (rows * 4 + 15) / 16 * 16;
        assert_int_equal(shape.layout.lengths, end);
        assert_int_equal(shape.layout.positions, end += of_rows);
        assert_int_equal(shape.layout.sequences, end += of_rows);
        end += of_rows;
        for (int32_t i = 0; i < shape.class_count; i++) {
            assert_int_equal(shape.layout.prefix[i], end);
            assert_int_equal(shape.layout.starts[i], end += ((rows + 1) * 4 + 15) / 16 * 16);
            end += (uint32_t)shape.splits[i].workers * 16;
        }
        assert_int_equal(shape.layout.bytes, end);
    }
}

static void the_largest_step_of_a_bucket_reaches_its_bound(void **state) {
    (void)state;
    for (int seed = 0; seed < 500; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        fig_plan_shape shape = draw_shape(&random);
        static int32_t lengths[ROW_CAPACITY];
        const fig_plan_step step = {.rows = shape.row_limit, .lengths = lengths};
        assert_int_equal(fig_plan_write(&shape, &step, plan), shape.layout.bytes);
    }
}

static void an_empty_step_is_a_plan_too(void **state) {
    (void)state;
    fig_plan_shape shape = {.row_limit = 5};
    fig_plan_lay_out(&shape);
    const fig_plan_step step = {.rows = 0};
    assert_int_equal(fig_plan_write(&shape, &step, plan), shape.layout.sequences);
    const fig_plan_head *head = (const fig_plan_head *)(const void *)plan;
    assert_int_equal(head->rows, 0);
    assert_int_equal(head->bytes, shape.layout.sequences);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_holds_what_its_words_say_and_nothing_else_is_touched),
        cmocka_unit_test(lengths_written_later_make_the_same_plan),
        cmocka_unit_test(a_plan_does_not_depend_on_what_lay_there),
        cmocka_unit_test(sections_lie_side_by_side_and_aligned),
        cmocka_unit_test(the_largest_step_of_a_bucket_reaches_its_bound),
        cmocka_unit_test(an_empty_step_is_a_plan_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
