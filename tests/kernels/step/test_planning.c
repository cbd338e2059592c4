/* test_planning.c: tests that a plan made on the device equals the host's plan byte for byte, that
 * a row of invalid length is idle, and that a step that exceeds a bound runs no rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/table/families.h"
#include "planner/spec/spec.h"
#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

enum { ROW_CAPACITY = 64, CASES = 4000 };

static uint64_t seed;

/* The memory that the device reads and writes besides the plan, allocated through place.h. */
typedef struct planning_memory {
    int32_t lengths[ROW_CAPACITY], positions[ROW_CAPACITY], starts[ROW_CAPACITY + 1];
    fig_fetch_words words;
} planning_memory;

typedef struct planning_case {
    fig_random random;
    int32_t rows, kv_limit, with_positions;
    int32_t *lengths, *positions, sequences[ROW_CAPACITY];
    /* queries: `counts`, or NULL if the program is not packed */
    int32_t counts[ROW_CAPACITY], *queries;
    fig_plan_shape shape;
    fig_strips_shape of_classes[FIG_CLASS_LIMIT];
    const fig_strips_shape *strips; /* of_classes, or NULL if no row may be a chunk */
    planning_memory *memory;
    fig_fetch_words *words;
    uint8_t *plan; /* as fetched; after the launch, the kernel's result */
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
                             .row_tokens = draw(c, 0, 1) ? 1 : draw(c, 2, 16),
                             .fixed = draw(c, 0, 1)};
    if (draw(c, 0, 1)) split.window = draw(c, 1, 100);
    return split;
}

/* Returns the number of tiles in a split class's line of work. */
static int32_t line_of(const planning_case *c, const fig_split_shape *split) {
    int32_t tiles = 0;
    for (int32_t r = 0; r < c->rows; r++)
        tiles += c->queries != NULL ? fig_split_tiles_of(split, c->lengths[r], c->queries[r])
                                    : fig_split_tiles(split, c->lengths[r]);
    return tiles * split->groups;
}

/* Makes rows of more than 8 query tokens chunks, which each class cuts in its own way. */
static void draw_strips(planning_case *c) {
    c->shape.row_tokens = draw(c, FIG_ROW_TOKENS_LIMIT + 1, c->kv_limit);
    c->strips = c->of_classes;
    for (int32_t i = 0; i < c->shape.class_count; i++) {
        c->shape.splits[i].row_tokens = FIG_NARROW_TOKENS_LIMIT;
        c->of_classes[i] =
            (fig_strips_shape){.ratio = draw(c, 1, 16),
                               .kv_heads = c->shape.splits[i].groups,
                               .head_dim = 64 << draw(c, 0, 2),
                               .tile_tokens = 1 << draw(c, 4, 7),
                               .window = c->shape.splits[i].window,
                               .workers = draw(c, 1, draw(c, 0, 3) > 0 ? 140 : 600),
                               .whole = draw(c, 0, 6) == 0,
                               .visible = draw(c, 0, 3) == 0 ? FIG_STRIPS_ALL : FIG_STRIPS_CAUSAL};
    }
}

/* Returns a row's query tokens: if rows may be chunks, those of a decode row in most rows. */
static int32_t draw_count(planning_case *c) {
    const int32_t most = c->shape.row_tokens;
    return draw(c, 0, c->strips != NULL && draw(c, 0, 3) > 0 ? FIG_NARROW_TOKENS_LIMIT : most);
}

/* Half of all programs are packed, and half of those have chunks. In most packed programs, the
 * device reads where each row's query tokens start. In the others there are no starts, and each row
 * has the greatest number of query tokens. */
static void draw_queries(planning_case *c) {
    c->shape.row_tokens = draw(c, 1, 16);
    const int is_read = draw(c, 0, 3) > 0;
    int32_t *starts = c->memory->starts;
    if (draw(c, 0, 1)) return;
    const int has_chunks = draw(c, 0, 1);
    for (int32_t i = 0; i < c->shape.class_count; i++)
        c->shape.splits[i].row_tokens = c->shape.row_tokens;
    if (has_chunks && c->kv_limit > FIG_ROW_TOKENS_LIMIT) draw_strips(c);
    int32_t all = c->rows * c->shape.row_tokens;
    for (int32_t r = 0; r < c->rows; r++) {
        c->counts[r] = is_read ? draw_count(c) : c->shape.row_tokens;
        starts[r + 1] = starts[r] + c->counts[r];
    }
    if (is_read) all = starts[c->rows];
    c->shape.query_limit = all > 0 ? all : 1; /* exactly as many as needed */
    c->queries = c->counts;
    if (is_read) c->params.query_starts = starts;
}

/* Draws rows. Lengths are 0, or long enough for the queries of every class, up to kv_limit. */
static void draw_rows(planning_case *c) {
    int32_t least = 1;
    for (int32_t i = 0; i < c->shape.class_count; i++)
        if (c->shape.splits[i].row_tokens > least) least = c->shape.splits[i].row_tokens;
    for (int32_t r = 0; r < c->rows; r++) {
        if (c->queries != NULL) least = c->queries[r];
        c->lengths[r] = draw(c, 0, 3) == 0 ? 0 : draw(c, least, c->kv_limit);
        c->positions[r] = draw(c, 0, 100000);
        c->sequences[r] = draw(c, 0, 65535);
    }
}

/* Opens a case with a plan as a fetch leaves it: only with the number of rows and the sequences. */
static void open_case(planning_case *c, uint64_t number) {
    memset(c, 0, sizeof *c);
    c->memory = fig_place_allocate(sizeof *c->memory);
    assert_non_null(c->memory);
    memset(c->memory, 0, sizeof *c->memory);
    c->lengths = c->memory->lengths;
    c->positions = c->memory->positions;
    c->words = &c->memory->words;
    c->random = fig_random_seed(seed + number);
    c->kv_limit = draw(c, 16, 400);
    c->shape.exec = (uint32_t)draw(c, 0, 4000);
    c->shape.row_limit = draw(c, 1, ROW_CAPACITY);
    c->shape.class_count = draw(c, 0, FIG_CLASS_LIMIT);
    c->rows = draw(c, 0, c->shape.row_limit);
    for (int32_t i = 0; i < c->shape.class_count; i++) {
        c->shape.splits[i] = draw_split(c);
        c->shape.once[i] = draw(c, 0, 3) > 0 ? draw(c, 1, 60) : 0;
    }
    draw_queries(c);
    draw_rows(c);
    for (int32_t i = 0; i < c->shape.class_count; i++) /* exactly as many as needed */
        c->shape.splits[i].tile_limit = line_of(c, &c->shape.splits[i]);
    fig_plan_step step = {.rows = c->rows, .sequences = c->sequences};
    c->plan = fig_reference_plan_of_chunks(&c->shape, c->strips, &step);
    c->with_positions = draw(c, 0, 1);
    c->words->missed = 7;
    c->params = (fig_plan_params){.lengths = c->lengths,
                                  .query_starts = c->params.query_starts,
                                  .positions = c->with_positions ? c->positions : NULL,
                                  .plan = c->plan,
                                  .words = c->words,
                                  .shape = c->shape,
                                  .kv_limit = c->kv_limit};
    memcpy(c->params.strips.of, c->of_classes, sizeof c->of_classes);
}

static void close_case(planning_case *c) {
    fig_place_free(c->plan);
    fig_place_free(c->memory);
}

static uint32_t is_by_units(const uint8_t *plan) {
    return ((const fig_plan_head *)(const void *)plan)->sections & FIG_PLAN_BY_UNITS;
}

/* Returns the strips of the last class, or NULL if the program has none. */
static const uint8_t *last_strips(const planning_case *c, const uint8_t *plan) {
    if (c->strips == NULL || c->shape.class_count == 0) return NULL;
    return fig_plan_strips_of(plan, fig_plan_strips_place(&c->shape), c->shape.class_count - 1);
}

static int32_t items_of(const uint8_t *strips) {
    return strips != NULL ? ((const fig_strips_head *)(const void *)strips)->items : 0;
}

/* Checks the whole section of strips. */
static void expect_strips(const planning_case *c, const uint8_t *expected) {
    const uint32_t place = fig_plan_strips_place(&c->shape);
    const uint8_t *last = last_strips(c, expected);
    if (last == NULL) return;
    const int32_t workers = c->strips[c->shape.class_count - 1].workers;
    const uint8_t *end = (const uint8_t *)(fig_strips_items(last, workers) + items_of(last));
    assert_memory_equal(c->plan + place, expected + place, (size_t)(end - expected) - place);
}

/* Checks that the plan equals the host's for these lengths, except for its head, which describes
 * the plan that came through the ring. Also checks the number of missed replays. */
static void expect_host_s(const planning_case *c, const int32_t *lengths, uint64_t missed) {
    fig_plan_shape shape = c->shape;
    fig_plan_step step = {.rows = c->rows,
                          .lengths = lengths,
                          .queries = c->queries,
                          .positions = c->with_positions ? c->positions : NULL,
                          .sequences = c->sequences};
    uint8_t *expected = fig_reference_plan_of_chunks(&shape, c->strips, &step);
    const fig_plan_head *head = (const fig_plan_head *)(void *)c->plan;
    assert_int_equal(head->rows, c->rows);
    assert_int_equal(head->exec, c->shape.exec);
    if (c->rows > 0) assert_int_equal(is_by_units(c->plan), is_by_units(expected));
    for (uint32_t i = sizeof *head; i < c->shape.layout.bytes && c->rows > 0; i++)
        if (c->plan[i] != expected[i])
            fail_msg("byte %u: %u, the host's is %u; seed 0x%llx", i, c->plan[i], expected[i],
                     (unsigned long long)seed);
    fig_place_free(expected);
    assert_int_equal(((const fig_plan_head *)(void *)c->plan)->rows, c->rows);
    assert_true(c->words->missed == missed && c->words->consumed == 0);
}

/* Checks the plan that a run makes for itself: all sections of its shape, except for bytes that no
 * kernel reads. */
static void expect_run_s(const planning_case *c) {
    const fig_plan_layout *layout = &c->shape.layout;
    fig_plan_shape shape = c->shape;
    fig_plan_step step = {.rows = c->rows,
                          .lengths = c->lengths,
                          .queries = c->queries,
                          .positions = c->with_positions ? c->positions : NULL,
                          .sequences = c->sequences};
    uint8_t *expected = fig_reference_plan_of_chunks(&shape, c->strips, &step);
    const size_t rows = (size_t)c->rows * sizeof(int32_t);
    assert_int_equal(is_by_units(c->plan), is_by_units(expected));
    assert_int_equal(((const fig_plan_head *)(void *)c->plan)->rows, c->rows);
    assert_memory_equal(c->plan + layout->lengths, expected + layout->lengths, rows);
    assert_memory_equal(c->plan + layout->positions, expected + layout->positions, rows);
    assert_memory_equal(c->plan + layout->sequences, expected + layout->sequences, rows);
    if (c->queries != NULL)
        assert_memory_equal(c->plan + layout->queries, expected + layout->queries,
                            rows + 2 * sizeof(int32_t));
    for (int32_t i = 0; i < c->shape.class_count; i++) {
        assert_memory_equal(c->plan + layout->prefix[i], expected + layout->prefix[i],
                            rows + sizeof(int32_t));
        assert_memory_equal(c->plan + layout->starts[i], expected + layout->starts[i],
                            (size_t)c->shape.splits[i].workers * sizeof(fig_split_start));
    }
    expect_strips(c, expected);
    fig_place_free(expected);
}

static void a_plan_made_on_the_device_is_the_host_s(void **state) {
    (void)state;
    uint64_t by_units = 0, with_chunks = 0;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
        expect_host_s(&c, c.lengths, 7);
        by_units += c.rows > 0 && is_by_units(c.plan);
        with_chunks += c.rows > 0 && items_of(last_strips(&c, c.plan)) > 0;
        close_case(&c);
    }
    assert_true(by_units > cases() / 10 && with_chunks > cases() / 20);
}

/* Plans without strips are made by an entry that needs few registers. */
static void only_a_plan_with_strips_needs_their_entry(void **state) {
    (void)state;
    for (uint64_t n = 0; n < 40; n++) {
        char name[FIG_ENTRY_BYTES];
        planning_case c;
        open_case(&c, n);
        fig_families_entry(FIG_OP_PLAN, 0, &c.params, name);
        const int has_strips = c.strips != NULL && c.shape.class_count > 0;
        assert_string_equal(name, has_strips ? "fig_kernel_plan_strips" : "fig_kernel_plan_rows");
        close_case(&c);
    }
}

/* The wrong lengths are below 0, above the limit, or less than the row's queries. */
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
        /* each row has its own least length, which is tested below */
        if (c.queries != NULL) wrong[4] = -2;
        for (int32_t r = 0; r < c.rows; r++) {
            if (draw(&c, 0, 1)) c.lengths[r] = wrong[draw(&c, 0, 4)];
            idle[r] = c.lengths[r];
            for (int32_t i = 0; i < 5; i++)
                if (c.lengths[r] == wrong[i]) idle[r] = 0;
            if (c.queries != NULL && c.lengths[r] > 0 && draw(&c, 0, 3) == 0)
                c.lengths[r] = idle[r] = c.queries[r] - 1; /* one token too few */
            if (c.queries != NULL) idle[r] = idle[r] < c.queries[r] ? 0 : idle[r];
        }
        fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
        expect_host_s(&c, idle, 7);
        close_case(&c);
    }
}

/* In one class, the limit is one tile less than the rows have. */
static void a_line_past_its_bound_leaves_the_step_without_rows(void **state) {
    (void)state;
    int tried = 0;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        int32_t class_index = draw(&c, 0, FIG_CLASS_LIMIT - 1);
        if (class_index < c.shape.class_count && c.shape.splits[class_index].tile_limit > 0) {
            ((fig_plan_head *)(void *)c.plan)->tile_limits[class_index]--;
            fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
            assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
            assert_true(c.words->missed == 8);
            for (int32_t i = 0; i < c.shape.class_count; i++) {
                const uint8_t *starts = c.plan + c.shape.layout.starts[i];
                for (int32_t w = 0; w < c.shape.splits[i].workers; w++)
                    assert_int_equal(((const fig_split_start *)(const void *)starts)[w].count, 0);
                assert_int_equal(*(const int32_t *)(void *)(c.plan + c.shape.layout.prefix[i]), 0);
            }
            assert_int_equal(items_of(last_strips(&c, c.plan)), 0);
            tried++;
        }
        close_case(&c);
    }
    assert_true(tried > (int)cases() / 10);
}

/* If a row's number of query tokens is negative or too large, the row counts as one without
 * queries, and is idle. */
static void a_row_with_an_impossible_number_of_queries_has_none(void **state) {
    (void)state;
    int tried = 0;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        int32_t *starts = c.memory->starts;
        if (c.params.query_starts != NULL && c.rows > 0) {
            const int32_t wrong[] = {-1, INT32_MIN, INT32_MAX, c.shape.row_tokens + 1};
            const int32_t row = draw(&c, 0, c.rows - 1);
            /* later rows keep their counts: their starts move by the same number, which wraps at 32
             * bits */
            const uint32_t by = (uint32_t)wrong[draw(&c, 0, 3)] - (uint32_t)c.counts[row];
            for (int32_t r = row; r < c.rows; r++)
                starts[r + 1] = (int32_t)((uint32_t)starts[r + 1] + by);
            c.counts[row] = 0;
            fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
            expect_host_s(&c, c.lengths, 7);
            tried++;
        }
        close_case(&c);
    }
    assert_true(tried > (int)cases() / 10);
}

/* The step has one query token more than the bucket takes. */
static void too_many_queries_leave_the_step_without_rows(void **state) {
    (void)state;
    int tried = 0;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        if (c.queries != NULL && c.shape.query_limit > 1 && c.rows > 0) {
            c.params.shape.query_limit--;
            fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
            const int32_t *queries = (const int32_t *)(void *)(c.plan + c.shape.layout.queries);
            assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
            assert_true(c.words->missed == 8);
            assert_true(queries[0] == 0 && queries[1] == 0);
            assert_int_equal(items_of(last_strips(&c, c.plan)), 0);
            c.params.rows = c.rows; /* a run; nothing counts what it missed */
            c.params.words = NULL;
            fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
            assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
            assert_true(queries[0] == 0 && queries[1] == 0);
            tried++;
        }
        close_case(&c);
    }
    assert_true(tried > (int)cases() / 10);
}

/* Tests 64 rows of 2^26 one-token tiles in 8 groups: 2^35 tiles, which is 0 in 32 bits. */
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
    c.plan = fig_reference_plan(&c.shape, &(fig_plan_step){.rows = 0, .lengths = c.lengths});
    ((fig_plan_head *)(void *)c.plan)->rows = ROW_CAPACITY;
    c.params.plan = c.plan;
    c.params.shape = c.shape;
    c.params.kv_limit = 1 << 26;
    fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
    assert_int_equal(((const fig_plan_head *)(void *)c.plan)->rows, 0);
    assert_true(c.words->missed == 8);
    close_case(&c);
}

/* The memory may hold a plan whose sections a later plan leaves out, so they must stay. */
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
        fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
        assert_memory_equal(c.plan, before, c.shape.layout.bytes);
        free(before);
        close_case(&c);
    }
}

/* In a run, the planner also writes the sections that a fetch would bring in an engine. */
static void a_run_s_plan_needs_no_fetch(void **state) {
    (void)state;
    for (uint64_t n = 0; n < cases(); n++) {
        planning_case c;
        open_case(&c, n);
        const int by_value = draw(&c, 0, 3) == 0, length = draw(&c, 0, c.kv_limit);
        for (int32_t r = 0; r < c.rows; r++) {
            c.sequences[r] = r;
            const int32_t queries = c.queries != NULL ? c.queries[r] : 0;
            if (by_value) c.lengths[r] = fig_plan_length(&c.shape, c.kv_limit, length, queries);
        }
        memset(c.plan, 0x5a, c.shape.layout.bytes);
        c.params.rows = c.rows;
        c.params.words = NULL;
        if (by_value) c.params.lengths = NULL;
        c.params.length = length;
        if (c.rows > 0) {
            fig_reference_launch(FIG_OP_PLAN, &c.params, NULL);
            const fig_plan_head *head = (const fig_plan_head *)(void *)c.plan;
            assert_true(head->tag == 0 && head->advanced == 0);
            assert_int_equal(head->sections & ~(uint32_t)FIG_PLAN_BY_UNITS, 0);
            expect_run_s(&c);
        }
        close_case(&c);
    }
}

/* Memory is [16 bytes][zeros][16 bytes]. A launch without a plan clears the zeros and writes
 * nothing else. The number of its blocks depends on the number of zeros. */
static void scratch_becomes_zeros_and_nothing_beside_it(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 7, 1023, 1024, 1025, 5000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const size_t bytes = 16 * ((size_t)counts[i] + 2);
        uint8_t *memory = fig_place_allocate(bytes);
        assert_non_null(memory);
        const fig_plan_params params = {.zeros = memory + 16, .zero_pieces = counts[i]};
        fig_random random = fig_random_seed(seed);
        fig_reference_launch(FIG_OP_PLAN, &params, &random);
        for (size_t at = 0; at < bytes; at++)
            assert_int_equal(memory[at], at < 16 || at >= bytes - 16 ? 0xff : 0);
        fig_place_free(memory);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_made_on_the_device_is_the_host_s),
        cmocka_unit_test(only_a_plan_with_strips_needs_their_entry),
        cmocka_unit_test(a_length_that_no_row_can_have_makes_it_idle),
        cmocka_unit_test(a_line_past_its_bound_leaves_the_step_without_rows),
        cmocka_unit_test(a_row_with_an_impossible_number_of_queries_has_none),
        cmocka_unit_test(too_many_queries_leave_the_step_without_rows),
        cmocka_unit_test(a_line_that_32_bits_cannot_count_is_past_its_bound),
        cmocka_unit_test(a_launch_without_a_plan_writes_nothing),
        cmocka_unit_test(a_run_s_plan_needs_no_fetch),
        cmocka_unit_test(scratch_becomes_zeros_and_nothing_beside_it),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
