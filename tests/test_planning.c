/* test_planning.c: a plan made where the lengths lie is the host's plan, byte for byte; a length
 * that no row can have idles its row, and a step past a bound runs no rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/twin.h"

enum { ROW_CAPACITY = 64, CASES = 4000 };

static uint64_t seed;

/* What the device reads and writes beside the plan, in memory of place.h. */
typedef struct planning_memory {
    int32_t lengths[ROW_CAPACITY], positions[ROW_CAPACITY];
    fig_fetch_words words;
} planning_memory;

typedef struct planning_case {
    fig_random random;
    int32_t rows, kv_limit, with_positions;
    int32_t *lengths, *positions, sequences[ROW_CAPACITY];
    fig_plan_shape shape;
    planning_memory *memory;
    fig_fetch_words *words;
    uint8_t *plan; /* as it was fetched, then as the kernel left it */
    fig_plan_params params;
} planning_case;

static uint64_t cases(void) {
    return (uint64_t)fig_place_cases(CASES);
}

static int32_t draw(planning_case *c, int32_t low, int32_t high) {
    return fig_random_range(&c->random, low, high);
}

static fig_split_shape draw_split(planning_case *c) {
    fig_split_shape split = {.row_limit = c->shape.row_limit,
                             .groups = draw(c, 1, 8),
                             .tile_tokens = draw(c, 1, 64),
                             .workers = draw(c, 1, 140),
                             .row_tokens = draw(c, 0, 1) ? 1 : draw(c, 2, 8),
                             .fixed = draw(c, 0, 1)};
    if (draw(c, 0, 1)) split.window = draw(c, 1, 100);
    return split;
}

/* Tiles on the line of a class with these lengths. */
static int32_t line_of(const fig_split_shape *split, const int32_t *lengths, int32_t rows) {
    int32_t tiles = 0;
    for (int32_t r = 0; r < rows; r++)
        tiles += fig_split_tiles(split, lengths[r]);
    return tiles * split->groups;
}

/* What any class of the shape can serve, at most kv_limit. */
static void draw_rows(planning_case *c) {
    int32_t least = 1;
    for (int32_t i = 0; i < c->shape.class_count; i++)
        if (c->shape.splits[i].row_tokens > least) least = c->shape.splits[i].row_tokens;
    for (int32_t r = 0; r < c->rows; r++) {
        c->lengths[r] = draw(c, 0, 3) == 0 ? 0 : draw(c, least, c->kv_limit);
        c->positions[r] = draw(c, 0, 100000);
        c->sequences[r] = draw(c, 0, 65535);
    }
}

/* The plan as a fetch brings it: rows and sequences alone. */
static void open_case(planning_case *c, uint64_t number) {
    memset(c, 0, sizeof *c);
    c->memory = fig_place_allocate(sizeof *c->memory);
    assert_non_null(c->memory);
    memset(c->memory, 0, sizeof *c->memory);
    c->lengths = c->memory->lengths;
    c->positions = c->memory->positions;
    c->words = &c->memory->words;
    c->random = fig_random_seed(seed + number);
    c->kv_limit = draw(c, 8, 400);
    c->shape.exec = (uint32_t)draw(c, 0, 4000);
    c->shape.row_limit = draw(c, 1, ROW_CAPACITY);
    c->shape.class_count = draw(c, 0, FIG_CLASS_LIMIT);
    c->rows = draw(c, 0, c->shape.row_limit);
    for (int32_t i = 0; i < c->shape.class_count; i++)
        c->shape.splits[i] = draw_split(c);
    draw_rows(c);
    for (int32_t i = 0; i < c->shape.class_count; i++) /* just enough */
        c->shape.splits[i].tile_limit = line_of(&c->shape.splits[i], c->lengths, c->rows);
    fig_plan_step step = {.rows = c->rows, .sequences = c->sequences};
    c->plan = fig_twin_plan(&c->shape, &step);
    c->with_positions = draw(c, 0, 1);
    c->words->missed = 7;
    c->params = (fig_plan_params){.lengths = c->lengths,
                                  .positions = c->with_positions ? c->positions : NULL,
                                  .plan = c->plan,
                                  .words = c->words,
                                  .shape = c->shape,
                                  .kv_limit = c->kv_limit};
}

static void close_case(planning_case *c) {
    fig_place_free(c->plan);
    fig_place_free(c->memory);
}

/* The plan is what the host makes of these lengths, but that its head says of itself what came by
 * the ring; and so many replays were missed. */
static void expect_host_s(const planning_case *c, const int32_t *lengths, uint64_t missed) {
    fig_plan_shape shape = c->shape;
    fig_plan_step step = {.rows = c->rows,
                          .lengths = lengths,
                          .positions = c->with_positions ? c->positions : NULL,
                          .sequences = c->sequences};
    uint8_t *expected = fig_twin_plan(&shape, &step);
    const fig_plan_head *head = (const fig_plan_head *)(void *)c->plan;
    assert_int_equal(head->rows, c->rows);
    assert_int_equal(head->exec, c->shape.exec);
    for (uint32_t i = sizeof *head; i < c->shape.layout.bytes && c->rows > 0; i++)
        if (c->plan[i] != expected[i])
            fail_msg("byte %u: %u, the host's is %u; seed 0x%llx", i, c->plan[i], expected[i],
                     (unsigned long long)seed);
    fig_place_free(expected);
    assert_int_equal(((const fig_plan_head *)(void *)c->plan)->rows, c->rows);
    assert_true(c->words->missed == missed && c->words->consumed == 0);
}

/* A run's own: the sections that its shape has, but for bytes that nobody reads. */
static void expect_run_s(const planning_case *c) {
    const fig_plan_layout *layout = &c->shape.layout;
    fig_plan_shape shape = c->shape;
    fig_plan_step step = {.rows = c->rows,
                          .lengths = c->lengths,
                          .positions = c->with_positions ? c->positions : NULL,
                          .sequences = c->sequences};
    uint8_t *expected = fig_twin_plan(&shape, &step);
    const size_t rows = (size_t)c->rows * sizeof(int32_t);
    assert_int_equal(((const fig_plan_head *)(void *)c->plan)->rows, c->rows);
    assert_memory_equal(c->plan + layout->lengths, expected + layout->lengths, rows);
    assert_memory_equal(c->plan + layout->positions, expected + layout->positions, rows);
    assert_memory_equal(c->plan + layout->sequences, expected + layout->sequences, rows);
    for (int32_t i = 0; i < c->shape.class_count; i++) {
        assert_memory_equal(c->plan + layout->prefix[i], expected + layout->prefix[i],
                            rows + sizeof(int32_t));
        assert_memory_equal(c->plan + layout->starts[i], expected + layout->starts[i],
                            (size_t)c->shape.splits[i].workers * sizeof(fig_split_start));
    }
    fig_place_free(expected);
}

static void a_plan_made_on_the_device_is_the_host_s(void **state) {
    (void)state;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
        expect_host_s(&c, c.lengths, 7);
        close_case(&c);
    }
}

/* Below 0, past the limit, or too few for the queries of a row. */
static void a_length_that_no_row_can_have_makes_it_idle(void **state) {
    (void)state;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        int32_t idle[ROW_CAPACITY], wrong[] = {-1, INT32_MIN, INT32_MAX, c.kv_limit + 1, 0};
        for (int32_t i = 0; i < c.shape.class_count; i++) {
            int32_t queries = c.shape.splits[i].row_tokens;
            if (queries > 1) wrong[4] = draw(&c, 1, queries - 1);
        }
        for (int32_t r = 0; r < c.rows; r++) {
            if (draw(&c, 0, 1)) c.lengths[r] = wrong[draw(&c, 0, 4)];
            idle[r] = c.lengths[r];
            for (int32_t i = 0; i < 5; i++)
                if (c.lengths[r] == wrong[i]) idle[r] = 0;
        }
        fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
        expect_host_s(&c, idle, 7);
        close_case(&c);
    }
}

/* One tile less than the line has, in one class alone. */
static void a_line_past_its_bound_makes_the_step_one_of_no_rows(void **state) {
    (void)state;
    int tried = 0;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        int32_t class_index = draw(&c, 0, FIG_CLASS_LIMIT - 1);
        if (class_index < c.shape.class_count && c.shape.splits[class_index].tile_limit > 0) {
            ((fig_plan_head *)(void *)c.plan)->tile_limits[class_index]--;
            fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
            assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
            assert_true(c.words->missed == 8);
            for (int32_t i = 0; i < c.shape.class_count; i++) {
                const uint8_t *starts = c.plan + c.shape.layout.starts[i];
                for (int32_t w = 0; w < c.shape.splits[i].workers; w++)
                    assert_int_equal(((const fig_split_start *)(const void *)starts)[w].count, 0);
                assert_int_equal(*(const int32_t *)(void *)(c.plan + c.shape.layout.prefix[i]), 0);
            }
            tried++;
        }
        close_case(&c);
    }
    assert_true(tried > (int)cases() / 10);
}

/* 64 rows of 2^26 one-token tiles and 8 groups: 2^35 tiles, which 32 bits would call none. */
static void a_line_that_32_bits_cannot_count_is_past_its_bound(void **state) {
    (void)state;
    planning_case c;
    open_case(&c, 0);
    fig_place_free(c.plan);
    c.shape = (fig_plan_shape){.row_limit = ROW_CAPACITY, .class_count = 1};
    c.shape.splits[0] = (fig_split_shape){.row_limit = ROW_CAPACITY,
                                          .groups = 8,
                                          .tile_tokens = 1,
                                          .workers = 4,
                                          .row_tokens = 1,
                                          .tile_limit = INT32_MAX};
    for (int32_t r = 0; r < ROW_CAPACITY; r++)
        c.lengths[r] = 1 << 26;
    c.plan = fig_twin_plan(&c.shape, &(fig_plan_step){.rows = 0, .lengths = c.lengths});
    ((fig_plan_head *)(void *)c.plan)->rows = ROW_CAPACITY;
    c.params.plan = c.plan;
    c.params.shape = c.shape;
    c.params.kv_limit = 1 << 26;
    fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
    assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
    assert_true(c.words->missed == 8);
    close_case(&c);
}

/* Its plan may be another bucket's, whose next plan leaves out what lies there. */
static void a_launch_without_a_plan_writes_nothing(void **state) {
    (void)state;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        uint8_t *before = malloc(c.shape.layout.bytes);
        assert_non_null(before);
        memset(c.plan, 0x5a, c.shape.layout.bytes);
        ((fig_plan_head *)(void *)c.plan)->rows = 0;
        memcpy(before, c.plan, c.shape.layout.bytes);
        fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
        assert_memory_equal(c.plan, before, c.shape.layout.bytes);
        free(before);
        close_case(&c);
    }
}

/* What was fetched for an engine, a run's planner writes too. */
static void a_run_s_plan_needs_no_fetch(void **state) {
    (void)state;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        const int by_value = draw(&c, 0, 3) == 0, length = draw(&c, 0, c.kv_limit);
        for (int32_t r = 0; r < c.rows; r++) {
            c.sequences[r] = r;
            if (by_value) c.lengths[r] = fig_plan_length(&c.shape, c.kv_limit, length);
        }
        memset(c.plan, 0x5a, c.shape.layout.bytes);
        c.params.rows = c.rows;
        c.params.words = NULL;
        if (by_value) c.params.lengths = NULL;
        c.params.length = length;
        if (c.rows > 0) {
            fig_twin_launch(FIG_OP_PLAN, &c.params, NULL);
            const fig_plan_head *head = (const fig_plan_head *)(void *)c.plan;
            assert_true(head->tag == 0 && head->sections == 0 && head->advanced == 0);
            expect_run_s(&c);
        }
        close_case(&c);
    }
}

/* [a word][zeros][a word], of as many blocks as it takes; without a plan nothing else is done. */
static void scratch_becomes_zeros_and_nothing_beside_it(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 7, 1023, 1024, 1025, 5000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t bytes = 16 * ((size_t)counts[i] + 2);
        uint8_t *memory = fig_place_allocate(bytes);
        assert_non_null(memory);
        const fig_plan_params params = {.zeros = memory + 16, .zero_pieces = counts[i]};
        fig_random random = fig_random_seed(seed);
        fig_twin_launch(FIG_OP_PLAN, &params, &random);
        for (size_t at = 0; at < bytes; at++)
            assert_int_equal(memory[at], at < 16 || at >= bytes - 16 ? 0xff : 0);
        fig_place_free(memory);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_made_on_the_device_is_the_host_s),
        cmocka_unit_test(a_length_that_no_row_can_have_makes_it_idle),
        cmocka_unit_test(a_line_past_its_bound_makes_the_step_one_of_no_rows),
        cmocka_unit_test(a_line_that_32_bits_cannot_count_is_past_its_bound),
        cmocka_unit_test(a_launch_without_a_plan_writes_nothing),
        cmocka_unit_test(a_run_s_plan_needs_no_fetch),
        cmocka_unit_test(scratch_becomes_zeros_and_nothing_beside_it),
    };
    seed = fig_twin_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
