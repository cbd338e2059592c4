/* test_plan.c: compares slots with bytes assembled by hand, and the plan that fetches make of a
 * series of slots with a plan made from scratch. Nothing may be written outside a slot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/plans/plan.h"
#include "tests/support/random.h"

enum { ROW_CAPACITY = 64, PLAN_CAPACITY = 1 << 14, UNTOUCHED = 0xa5 };

static _Alignas(16) uint8_t slot[PLAN_CAPACITY], plan[PLAN_CAPACITY];
static _Alignas(16) uint8_t expected[PLAN_CAPACITY];

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
    int32_t lengths[ROW_CAPACITY], positions[ROW_CAPACITY], sequences[ROW_CAPACITY];
} step_arrays;

static fig_plan_shape draw_shape(fig_random *random, int32_t class_count) {
    fig_plan_shape shape = {.exec = (uint32_t)fig_random_range(random, 0, 4000)};
    shape.row_limit = fig_random_range(random, 1, ROW_CAPACITY);
    shape.class_count = class_count;
    shape.row_tokens = fig_random_range(random, 1, 4);
    for (int32_t i = 0; i < shape.class_count; i++) {
        fig_split_shape *split = &shape.splits[i];
        split->row_limit = shape.row_limit;
        split->groups = fig_random_range(random, 1, 8);
        split->tile_tokens = fig_random_range(random, 1, 64);
        if (fig_random_range(random, 0, 1)) split->tile_tokens = 1 << split->tile_tokens % 7;
        split->workers = fig_random_range(random, 1, 140);
        split->window = fig_random_range(random, 0, 1) ? fig_random_range(random, 1, 200) : 0;
        split->row_tokens = fig_random_range(random, 1, 16);
        split->fixed = fig_random_range(random, 0, 1);
    }
    fig_plan_lay_out(&shape);
    return shape;
}

static fig_plan_shape draw_any_shape(fig_random *random) {
    return draw_shape(random, fig_random_range(random, 0, FIG_CLASS_LIMIT));
}

/* Draws a step whose rows have at least 16 tokens, or none. */
static fig_plan_step draw_step(fig_random *random, int32_t row_limit, step_arrays *arrays) {
    fig_plan_step step = {.rows = fig_random_range(random, 0, row_limit),
                          .lengths = arrays->lengths,
                          .horizon = 1,
                          .row_tokens = fig_random_range(random, 1, 16)};
    for (int32_t row = 0; row < step.rows; row++) {
        int idle = fig_random_range(random, 0, 3) == 0;
        arrays->lengths[row] = idle ? 0 : fig_random_range(random, 16, 300);
        arrays->positions[row] = fig_random_range(random, 0, 100000);
        arrays->sequences[row] = fig_random_range(random, 0, 65535);
    }
    if (fig_random_range(random, 0, 3) == 0) step.horizon = fig_random_range(random, 2, 20);
    if (fig_random_range(random, 0, 1)) step.positions = arrays->positions;
    if (fig_random_range(random, 0, 1)) step.sequences = arrays->sequences;
    if (fig_random_range(random, 0, 3) == 0) {
        step.lengths = step.positions = NULL;
        step.row_tokens = 0;
    }
    return step;
}

/* Settles a plan as if there were no earlier one, and writes all its sections. */
static uint32_t write_whole(const fig_plan_shape *shape, const fig_plan_step *step) {
    held.exec = -1;
    const uint32_t sections = fig_plan_settle(shape, step, &held);
    return fig_plan_write(shape, step, sections, &held, slot);
}

/* ---- Plans assembled by hand --------------------------------------------------------------- */

static void put(uint32_t offset, int32_t index, int32_t value) {
    memcpy(expected + offset + (size_t)index * sizeof value, &value, sizeof value);
}

/* Each row that is not idle may grow by (horizon - 1) * row_tokens. A tile counts if it is read at
 * any of the row's lengths. */
static void put_split(const fig_split_shape *split, const fig_plan_step *step, uint32_t prefix_at,
                      uint32_t starts_at) {
    int32_t prefix[ROW_CAPACITY + 1] = {0};
    for (int32_t row = 0; row < step->rows; row++) {
        const int32_t length = step->lengths[row];
        const int32_t most = length + (step->horizon - 1) * step->row_tokens;
        prefix[row + 1] = prefix[row];
        for (int32_t token = 0; token < most && length > 0; token += split->tile_tokens) {
            const int32_t last = token + split->tile_tokens - 1;
            const int32_t seen = length - split->row_tokens - split->window;
            prefix[row + 1] += split->window == 0 || last > seen;
        }
    }
    for (int32_t row = 0; row <= step->rows; row++)
        put(prefix_at, row, prefix[row]);
    const fig_split_line line = fig_split_line_of(split, prefix, step->rows);
    for (int32_t worker = 0; worker < split->workers; worker++) {
        const fig_split_start start = fig_split_start_of(split, &line, worker);
        memcpy(expected + starts_at + (size_t)worker * sizeof start, &start, sizeof start);
    }
}

static void put_head(const fig_plan_shape *shape, const fig_plan_step *step, uint32_t sections,
                     uint32_t bytes) {
    const int32_t grows = step->lengths != NULL && step->horizon > 1 ? step->row_tokens : 0;
    const fig_plan_head head = {.bytes = bytes,
                                .exec = shape->exec,
                                .rows = step->rows,
                                .sections = sections,
                                .horizon = step->horizon,
                                .row_tokens = grows};
    const size_t tag_bytes = sizeof head.tag;
    memcpy(expected + tag_bytes, (const uint8_t *)&head + tag_bytes, sizeof head - tag_bytes);
}

/* Writes a section of words at *end, and moves *end to the next multiple of 16. */
static void put_words(uint32_t *end, const int32_t *words, int32_t count) {
    memcpy(expected + *end, words, (size_t)count * 4);
    *end = (*end + (uint32_t)count * 4 + 15) / 16 * 16;
}

/* Writes a slot with these sections by the drawing in plan.h alone; other bytes are UNTOUCHED. */
static uint32_t put_slot(const fig_plan_shape *shape, const fig_plan_step *step,
                         uint32_t sections) {
    uint32_t end = 64;
    int32_t own[ROW_CAPACITY];
    for (int32_t row = 0; row < ROW_CAPACITY; row++)
        own[row] = row;
    memset(expected, UNTOUCHED, sizeof expected);
    if (sections & FIG_PLAN_HAS_LENGTHS) put_words(&end, step->lengths, step->rows);
    if (sections & FIG_PLAN_HAS_SEQUENCES)
        put_words(&end, step->sequences != NULL ? step->sequences : own, step->rows);
    if (sections & FIG_PLAN_HAS_POSITIONS) put_words(&end, step->positions, step->rows);
    if (sections & FIG_PLAN_HAS_TOKENS) put_words(&end, step->tokens, step->rows);
    for (int32_t i = 0; i < shape->class_count && (sections & FIG_PLAN_HAS_SPLITS); i++) {
        const uint32_t starts_at = (end + ((uint32_t)step->rows + 1) * 4 + 15) / 16 * 16;
        put_split(&shape->splits[i], step, end, starts_at);
        end = starts_at + (uint32_t)shape->splits[i].workers * 16;
    }
    put_head(shape, step, sections, end);
    return end;
}

/* Writes a plan as it must be on the device, without its head. */
static void put_plan(const fig_plan_shape *shape, const fig_plan_step *step) {
    const fig_plan_layout *layout = &shape->layout;
    memset(expected, UNTOUCHED, sizeof expected);
    for (int32_t row = 0; row < step->rows; row++) {
        put(layout->sequences, row, step->sequences ? step->sequences[row] : row);
        if (step->lengths == NULL) continue;
        const int32_t last = step->lengths[row] == 0 ? 0 : step->lengths[row] - 1;
        put(layout->lengths, row, step->lengths[row]);
        put(layout->positions, row, step->positions ? step->positions[row] : last);
    }
    for (int32_t i = 0; i < shape->class_count && step->lengths != NULL; i++)
        put_split(&shape->splits[i], step, layout->prefix[i], layout->starts[i]);
}

static void expect_words(const char *what, int number, uint32_t offset, int32_t count) {
    for (uint32_t i = offset; i < offset + (uint32_t)count * 4; i++)
        if (plan[i] != expected[i])
            fail_msg("case %d, %s, byte %u: %d, expected %d", number, what, i - offset, plan[i],
                     expected[i]);
}

/* Compares the words of the step's rows and workers; words between sections mean nothing. */
static void expect_plan(const fig_plan_shape *shape, const fig_plan_step *step, int number) {
    const fig_plan_layout *layout = &shape->layout;
    put_plan(shape, step);
    expect_words("sequences", number, layout->sequences, step->rows);
    if (step->lengths == NULL) return;
    expect_words("lengths", number, layout->lengths, step->rows);
    expect_words("positions", number, layout->positions, step->rows);
    for (int32_t i = 0; i < shape->class_count; i++) {
        expect_words("prefix", number, layout->prefix[i], step->rows + 1);
        expect_words("starts", number, layout->starts[i], 4 * shape->splits[i].workers);
    }
}

/* ---- Slots --------------------------------------------------------------------------------- */

static void expect_slot(int number) {
    for (size_t i = 0; i < sizeof slot; i++)
        if (slot[i] != expected[i])
            fail_msg("case %d, byte %zu: %d, expected %d", number, i, slot[i], expected[i]);
}

static void a_slot_holds_what_its_words_say_and_nothing_else_is_touched(void **state) {
    (void)state;
    for (int seed = 0; seed < 5000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_any_shape(&random);
        fig_plan_step step = draw_step(&random, shape.row_limit, &arrays);
        static const int32_t tokens[ROW_CAPACITY] = {3, 1, 2, 4};
        if (shape.row_tokens > 1 && seed % 2) step.tokens = tokens;
        uint32_t all = FIG_PLAN_HAS_SEQUENCES;
        if (step.lengths != NULL) all |= FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SPLITS;
        if (step.positions != NULL) all |= FIG_PLAN_HAS_POSITIONS;
        if (step.tokens != NULL) all |= FIG_PLAN_HAS_TOKENS;
        held.exec = -1;
        assert_int_equal(fig_plan_settle(&shape, &step, &held), all);
        /* Any section may be sent without the others. */
        const uint32_t sections = all & (uint32_t)fig_random_range(&random, 0, 63);
        memset(slot, UNTOUCHED, sizeof slot);
        const uint32_t bytes = fig_plan_write(&shape, &step, sections, &held, slot);
        assert_int_equal(put_slot(&shape, &step, sections), bytes);
        assert_true(bytes % 16 == 0 && bytes <= shape.layout.bytes);
        expect_slot(seed);
    }
}

/* The slot holds an old plan, which must not affect the new bytes. The old tag must stay, since the
 * device may be reading it. */
static void a_slot_does_not_depend_on_what_lay_there(void **state) {
    (void)state;
    fig_random random = fig_random_seed(7);
    step_arrays arrays;
    const fig_plan_shape shape = draw_any_shape(&random);
    const fig_plan_step step = draw_step(&random, shape.row_limit, &arrays);
    memset(slot, 0, sizeof slot);
    write_whole(&shape, &step);
    memcpy(expected, slot, sizeof slot);
    memset(slot, 0xff, sizeof slot);
    write_whole(&shape, &step);
    const uint64_t tag = ((const fig_plan_head *)(const void *)slot)->tag;
    assert_true(tag == UINT64_MAX);
    for (size_t i = sizeof tag; i < sizeof slot; i++) {
        /* Bytes that were written must be equal. The others keep their old values, 0 in one slot
         * and 0xff in the other. */
        if (slot[i] != expected[i] && (slot[i] != 0xff || expected[i] != 0))
            fail_msg("byte %zu: %d and %d", i, slot[i], expected[i]);
    }
}

/* On the device, a section begins where the previous one ends, rounded up to 16 bytes. Sections are
 * in the order of the drawing in plan.h. */
static void sections_lie_side_by_side_and_aligned(void **state) {
    (void)state;
    for (int seed = 0; seed < 2000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        const fig_plan_shape shape = draw_any_shape(&random);
        uint32_t rows = (uint32_t)shape.row_limit, end = 64;
        const uint32_t of_rows = (rows * 4 + 15) / 16 * 16;
        assert_int_equal(shape.layout.lengths, end);
        assert_int_equal(shape.layout.positions, end += of_rows);
        assert_int_equal(shape.layout.sequences, end += of_rows);
        end += of_rows;
        assert_int_equal(shape.layout.tokens, shape.row_tokens > 1 ? end : 0);
        if (shape.row_tokens > 1) end += of_rows;
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
        const fig_plan_shape shape = draw_any_shape(&random);
        static const int32_t zeros[ROW_CAPACITY];
        const fig_plan_step step = {.rows = shape.row_limit,
                                    .lengths = zeros,
                                    .positions = zeros,
                                    .tokens = shape.row_tokens > 1 ? zeros : NULL,
                                    .horizon = 1};
        assert_int_equal(write_whole(&shape, &step), shape.layout.bytes);
    }
}

static void an_empty_step_is_a_plan_too(void **state) {
    (void)state;
    fig_plan_shape shape = {.row_limit = 5};
    fig_plan_lay_out(&shape);
    const fig_plan_step step = {.rows = 0, .horizon = 1};
    memset(slot, UNTOUCHED, sizeof slot);
    assert_int_equal(write_whole(&shape, &step), 64);
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    assert_int_equal(head->rows, 0);
    assert_int_equal(head->bytes, 64);
    assert_int_equal(slot[64], UNTOUCHED);
}

/* ---- Which sections are sent --------------------------------------------------------------- */

enum {
    LENGTHS = FIG_PLAN_HAS_LENGTHS,
    SEQUENCES = FIG_PLAN_HAS_SEQUENCES,
    POSITIONS = FIG_PLAN_HAS_POSITIONS,
    SPLITS = FIG_PLAN_HAS_SPLITS,
    ALL = LENGTHS | SEQUENCES | SPLITS
};

/* Returns a shape with tiles of 16 tokens in class 0, and of 64 with a window of 64 in class 1. */
static fig_plan_shape small_shape(uint32_t bucket) {
    fig_plan_shape shape = {.exec = bucket, .row_limit = 8, .class_count = 2};
    for (int i = 0; i < 2; i++)
        shape.splits[i] = (fig_split_shape){.row_limit = 8,
                                            .groups = 2,
                                            .tile_tokens = i == 0 ? 16 : 64,
                                            .workers = 5,
                                            .window = i == 0 ? 0 : 64,
                                            .row_tokens = 1};
    fig_plan_lay_out(&shape);
    return shape;
}

static void expect_sections(const fig_plan_shape *shape, const fig_plan_step *step,
                            uint32_t sections) {
    assert_int_equal(fig_plan_settle(shape, step, &held), sections);
    /* A section that the device already holds is not sent again. */
    const uint32_t given = step->positions != NULL ? POSITIONS : 0;
    const uint32_t again = given | (step->lengths != NULL ? LENGTHS : 0);
    assert_int_equal(fig_plan_settle(shape, step, &held), again);
}

static void sections_that_the_device_holds_do_not_travel(void **state) {
    (void)state;
    const fig_plan_shape shape = small_shape(3), other = small_shape(4);
    int32_t lengths[] = {30, 0, 100, 7}, sequences[] = {0, 1, 2, 3}, positions[] = {1, 2, 3, 4};
    fig_plan_step step = {.rows = 4, .lengths = lengths, .horizon = 1, .row_tokens = 1};
    held.exec = -1;
    expect_sections(&shape, &step, ALL);
    lengths[0] = 32; /* this fills the row's second tile */
    expect_sections(&shape, &step, LENGTHS);
    lengths[0] = 33;
    expect_sections(&shape, &step, LENGTHS | SPLITS);
    lengths[2] = 127; /* row 2 gains an eighth tile, in the first class only, */
    lengths[0] = 17;  /* while row 0 loses its third */
    expect_sections(&shape, &step, LENGTHS | SPLITS);
    step.positions = positions;
    expect_sections(&shape, &step, LENGTHS | POSITIONS);
    step.positions = NULL;
    step.sequences = sequences; /* the same sequences, stated explicitly */
    expect_sections(&shape, &step, LENGTHS);
    sequences[1] = 7;
    expect_sections(&shape, &step, LENGTHS | SEQUENCES);
    step.rows = 3;
    expect_sections(&shape, &step, ALL);
    expect_sections(&other, &step, ALL);
    expect_sections(&shape, &step, ALL);
    held.exec = -1;
    expect_sections(&shape, &step, ALL);
}

/* A horizon changes the splits only if it adds tiles. */
static void a_horizon_travels_as_its_tiles(void **state) {
    (void)state;
    const fig_plan_shape shape = small_shape(3);
    int32_t lengths[] = {30, 65};
    fig_plan_step step = {.rows = 2, .lengths = lengths, .horizon = 1, .row_tokens = 1};
    held.exec = -1;
    expect_sections(&shape, &step, ALL);
    step.horizon = 3; /* rows grow to 32 and 67 */
    expect_sections(&shape, &step, LENGTHS);
    step.horizon = 4;
    expect_sections(&shape, &step, LENGTHS | SPLITS);
    /* Row 0 no longer grows into a third tile. */
    step.horizon = 1;
    lengths[0] = 31;
    expect_sections(&shape, &step, LENGTHS | SPLITS);
    lengths[1] = 80;
    expect_sections(&shape, &step, LENGTHS);
    lengths[0] = 47;
    /* Row 0 gains a tile in class 0; row 1 loses one in both classes. */
    lengths[1] = 64;
    expect_sections(&shape, &step, LENGTHS | SPLITS);
}

static void without_lengths_rows_and_sequences_alone_travel(void **state) {
    (void)state;
    const fig_plan_shape shape = small_shape(3);
    fig_plan_step step = {.rows = 4, .horizon = 5};
    held.exec = -1;
    expect_sections(&shape, &step, SEQUENCES);
    step.rows = 3;
    expect_sections(&shape, &step, SEQUENCES);
}

/* ---- On the device ------------------------------------------------------------------------- */

/* Draws one of the changes that a batch undergoes between steps. */
static void change_step(fig_random *random, int32_t row_limit, step_arrays *arrays,
                        fig_plan_step *step) {
    switch (fig_random_range(random, 0, 9)) {
    case 0: *step = draw_step(random, row_limit, arrays); break;
    case 1: /* a row joins */
        if (step->rows == row_limit) return;
        arrays->lengths[step->rows] = fig_random_range(random, 8, 300);
        arrays->sequences[step->rows] = fig_random_range(random, 0, 65535);
        arrays->positions[step->rows++] = fig_random_range(random, 0, 100);
        break;
    case 2: /* the last row leaves */ step->rows -= step->rows > 0; break;
    case 3: /* a row becomes idle, and one gets another sequence */
        if (step->rows == 0) return;
        arrays->lengths[fig_random_range(random, 0, step->rows - 1)] = 0;
        arrays->sequences[fig_random_range(random, 0, step->rows - 1)]++;
        break;
    case 4: step->sequences = step->sequences == NULL ? arrays->sequences : NULL; break;
    case 5: step->positions = step->positions == NULL ? arrays->positions : NULL; break;
    case 6: step->horizon = fig_random_range(random, 1, 9); break;
    default: /* all rows grow by a token */
        for (int32_t row = 0; row < step->rows; row++)
            arrays->lengths[row] += arrays->lengths[row] > 0;
    }
}

static void forget_lengths(const fig_plan_shape *shape) {
    memset(plan + shape->layout.lengths, 0xee, (size_t)shape->row_limit * 4);
    memset(plan + shape->layout.positions, 0xee, (size_t)shape->row_limit * 4);
}

/* Runs the buckets of one program. The host knows the lengths either in all of them or in none.
 * Before each step, the slot holds other bytes and the lengths on the device are garbage, since an
 * earlier horizon may have changed them. */
static void run_series(uint64_t seed, int64_t *left_out) {
    enum { BUCKETS = 3, STEPS = 60 };
    fig_random random = fig_random_seed(seed);
    fig_plan_shape shapes[BUCKETS];
    const int32_t class_count = fig_random_range(&random, 0, FIG_CLASS_LIMIT);
    const int on_device = fig_random_range(&random, 0, 7) == 0;
    for (uint32_t b = 0; b < BUCKETS; b++) {
        shapes[b] = draw_shape(&random, class_count);
        shapes[b].exec = b;
    }
    step_arrays arrays;
    int b = 0;
    fig_plan_step step = draw_step(&random, shapes[b].row_limit, &arrays);
    held.exec = -1;
    memset(plan, UNTOUCHED, sizeof plan);
    for (int n = 0; n < STEPS; n++) {
        if (fig_random_range(&random, 0, 7) == 0) b = fig_random_range(&random, 0, BUCKETS - 1);
        change_step(&random, shapes[b].row_limit, &arrays, &step);
        if (step.rows > shapes[b].row_limit) step.rows = shapes[b].row_limit;
        step.lengths = on_device ? NULL : arrays.lengths;
        if (on_device) step.positions = NULL;
        if (fig_random_range(&random, 0, 19) == 0) held.exec = -1;
        const uint32_t sections = fig_plan_settle(&shapes[b], &step, &held);
        *left_out += !(sections & FIG_PLAN_HAS_SPLITS) + !(sections & FIG_PLAN_HAS_SEQUENCES);
        memset(slot, fig_random_range(&random, 0, 255), sizeof slot);
        fig_plan_write(&shapes[b], &step, sections, &held, slot);
        forget_lengths(&shapes[b]);
        fig_plan_unpack(&shapes[b], slot, plan);
        assert_memory_equal(plan, slot, sizeof(fig_plan_head));
        expect_plan(&shapes[b], &step, n);
    }
}

static void a_series_of_slots_leaves_the_plan_made_from_scratch(void **state) {
    (void)state;
    int64_t left_out = 0;
    for (uint64_t seed = 0; seed < 400; seed++)
        run_series(seed, &left_out);
    assert_true(left_out > 400 * 20);
}

/* The host sends a plan without lengths, and the device completes it with lengths of its own. The
 * result must equal the plan of a host that knows the lengths. */
static void lengths_written_later_make_the_same_plan(void **state) {
    (void)state;
    for (int seed = 0; seed < 5000; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_any_shape(&random);
        fig_plan_step known = draw_step(&random, shape.row_limit, &arrays);
        known.lengths = arrays.lengths;
        known.horizon = 1;
        const fig_plan_step sent = {.rows = known.rows, .sequences = known.sequences, .horizon = 1};
        fig_plan_step later = known;
        later.sequences = NULL;
        write_whole(&shape, &sent);
        memset(plan, UNTOUCHED, sizeof plan);
        fig_plan_unpack(&shape, slot, plan);
        if (seed % 2 == 0) {
            int32_t *own = (int32_t *)(void *)(plan + shape.layout.lengths);
            memcpy(own, arrays.lengths, (size_t)known.rows * sizeof *own);
            later.lengths = own;
        }
        fig_plan_write_lengths(&shape, &later, plan);
        expect_plan(&shape, &known, seed);
    }
}

/* ---- Pages, tags and checksums ------------------------------------------------------------- */

static void pages_lie_behind_all_else(void **state) {
    (void)state;
    for (int seed = 0; seed < 500; seed++) {
        fig_random random = fig_random_seed((uint64_t)seed);
        step_arrays arrays;
        const fig_plan_shape shape = draw_any_shape(&random);
        const fig_plan_step step = draw_step(&random, shape.row_limit, &arrays);
        fig_plan_page pages[40];
        const uint32_t count = (uint32_t)fig_random_range(&random, 0, 40);
        for (uint32_t i = 0; i < 40; i++)
            pages[i] = (fig_plan_page){fig_random_bits(&random), (int32_t)i, 0};
        memset(slot, UNTOUCHED, sizeof slot);
        const uint32_t bytes = write_whole(&shape, &step);
        memcpy(expected, slot, sizeof slot);
        assert_int_equal(fig_plan_add_pages(slot, pages, count), bytes + 16 * count);
        fig_plan_head *head = (fig_plan_head *)(void *)expected;
        head->bytes = bytes + 16 * count;
        head->page_count = count;
        memcpy(expected + bytes, pages, count * sizeof pages[0]);
        expect_slot(seed);
        const fig_plan_places places = fig_plan_places_of(&shape, head);
        assert_int_equal(places.pages, bytes);
        assert_int_equal(places.bytes, bytes + 16 * count);
        /* The fetch fills in the sections, pages or not. */
        memset(plan, UNTOUCHED, sizeof plan);
        fig_plan_unpack(&shape, slot, plan);
        expect_plan(&shape, &step, seed);
    }
}

static void a_tag_says_the_number_and_how_much_to_read(void **state) {
    (void)state;
    static const uint64_t numbers[] = {1, 2, 65535, 65536, (UINT64_C(1) << 48) - 1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        for (uint32_t pieces = 4; pieces < 70000; pieces += pieces < 65000 ? 997 : 1) {
            const uint64_t tag = fig_plan_tag(numbers[i], 16 * pieces);
            assert_true(fig_plan_tag_number(tag) == numbers[i]);
            assert_int_equal(tag & FIG_PLAN_TAG_MOST, pieces < 65535 ? pieces : 65535);
        }
    }
    assert_true(fig_plan_tag_number(0) == 0);
}

/* The sum depends on each word, its place and the plan's number, but not on the order of additions.
 * Two parts of the head do not count: the tag, which is written last, and the sum itself. */
static void a_checksum_is_another_where_a_bit_is_or_words_change_places(void **state) {
    (void)state;
    enum { WORDS = 76, BYTES = WORDS * 4, NUMBER = 7 };
    fig_random random = fig_random_seed(5);
    uint32_t words[WORDS];
    uint64_t backwards = fig_plan_number_term(NUMBER);
    for (uint32_t n = 0; n < WORDS; n++) /* many equal words, as in a plan */
        words[n] = (uint32_t)fig_random_range(&random, 0, 5);
    memcpy(slot, words, sizeof words);
    const uint64_t sum = fig_plan_sum(slot, BYTES, NUMBER);
    for (uint32_t n = WORDS; n-- > 0;)
        if (fig_plan_is_summed(n)) backwards += fig_plan_term(n, words[n]);
    assert_true(sum == backwards);
    assert_true(fig_plan_sum(slot, BYTES, NUMBER + 1) != sum);
    for (uint32_t bit = 0; bit < WORDS * 32; bit++) {
        const uint32_t n = bit / 32, counts = n != 0 && n != 1 && n != 10 && n != 11;
        slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(fig_plan_sum(slot, BYTES, NUMBER) != sum, counts);
        slot[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint32_t a = 16; a < WORDS; a++) {
        assert_true(fig_plan_sum(slot, a * 4, NUMBER) != sum);
        for (uint32_t b = 12; b < a; b++) {
            memcpy(slot + a * 4, &words[b], 4);
            memcpy(slot + b * 4, &words[a], 4);
            assert_int_equal(fig_plan_sum(slot, BYTES, NUMBER) == sum, words[a] == words[b]);
            memcpy(slot, words, sizeof words);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_holds_what_its_words_say_and_nothing_else_is_touched),
        cmocka_unit_test(a_slot_does_not_depend_on_what_lay_there),
        cmocka_unit_test(sections_lie_side_by_side_and_aligned),
        cmocka_unit_test(the_largest_step_of_a_bucket_reaches_its_bound),
        cmocka_unit_test(an_empty_step_is_a_plan_too),
        cmocka_unit_test(sections_that_the_device_holds_do_not_travel),
        cmocka_unit_test(a_horizon_travels_as_its_tiles),
        cmocka_unit_test(without_lengths_rows_and_sequences_alone_travel),
        cmocka_unit_test(a_series_of_slots_leaves_the_plan_made_from_scratch),
        cmocka_unit_test(lengths_written_later_make_the_same_plan),
        cmocka_unit_test(pages_lie_behind_all_else),
        cmocka_unit_test(a_tag_says_the_number_and_how_much_to_read),
        cmocka_unit_test(a_checksum_is_another_where_a_bit_is_or_words_change_places),
    };
    return cmocka_run_group_tests(tests, open_held, close_held);
}
