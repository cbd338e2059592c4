/* test_fetch.c: tests that the device takes plans from the ring completely, in order and only once;
 * that it puts their sections in their places and advances plans with a horizon; and that it
 * refuses invalid plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/kernels/fetch_bench.h"
#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

#define SLOTS FIG_FETCH_BENCH_SLOTS
#define ALL FIG_FETCH_BENCH_ALL

static const fig_fetch_bench_scale tiny = {2, 3, 1}, small = {20, 9, 2},
                                   wide = {40, 20, FIG_CLASS_LIMIT},
                                   large = {1500, 150, FIG_CLASS_LIMIT};
static fig_fetch_bench_plan plan; /* publishing a plan copies it */

static void draw_and_publish(fig_fetch_bench *b, uint32_t bucket, uint64_t number) {
    fig_fetch_bench_draw(b, &plan, bucket);
    fig_fetch_bench_publish(b, &plan, number);
}

/* ---- Order of plans ------------------------------------------------------------------------ */

static void plans_are_taken_in_order_around_the_ring(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(1, small, 0);
    draw_and_publish(b, 0, 1);
    for (uint64_t number = 1; number <= 4 * SLOTS + 1; number++) {
        draw_and_publish(b, number % 2, number + 1); /* stage one plan ahead */
        fig_fetch_bench_fetch(b, (number - 1) % 2, 1);
        assert_true(b->is.number == number && b->told.missed == 0);
    }
    fig_fetch_bench_close(b);
}

static void numbers_past_32_bits_find_their_slot(void **state) {
    (void)state;
    for (uint64_t number = UINT32_MAX - 4ull; number < UINT32_MAX + 4ull; number++) {
        fig_fetch_bench *b = fig_fetch_bench_open(number, small, number);
        draw_and_publish(b, 0, number + 1);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->is.number == number + 1);
        fig_fetch_bench_close(b);
    }
}

static void an_empty_slot_gives_zero_rows_and_counts_as_missed(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(2, small, 0);
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 2);
    draw_and_publish(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 2 && b->words->consumed == 1);
    fig_fetch_bench_close(b);
}

static void a_stale_plan_is_never_taken_again(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(3, small, 0);
    for (uint64_t number = 1; number <= SLOTS; number++) {
        draw_and_publish(b, 0, number);
        fig_fetch_bench_fetch(b, 0, 1);
    }
    fig_fetch_bench_fetch(b, 0, 1); /* the next slot still holds plan 1 */
    assert_true(b->words->missed == 1);
    fig_fetch_bench_close(b);
}

static void a_plan_of_another_bucket_waits_for_its_own_graph(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(4, small, 0);
    draw_and_publish(b, 1, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 1 && b->state->number == 0);
    fig_fetch_bench_fetch(b, 1, 1);
    assert_true(b->words->missed == 1 && b->state->number == 1);
    fig_fetch_bench_close(b);
}

static void rows_run_by_what_was_fetched_and_none_after_a_miss(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(5, small, 0);
    float(*in)[4] = fig_place_allocate(2 * sizeof *in), *out = fig_place_allocate(4 * sizeof *out);
    assert_true(in != NULL && out != NULL);
    for (int i = 0; i < 8; i++)
        in[i / 4][i % 4] = i % 4 < 2 ? 1 : 2;
    for (int i = 0; i < 4; i++)
        out[i] = 7;
    const fig_gated_params gated = {.in = in,
                                    .out = out,
                                    .plan = b->plan,
                                    .in_stride = 4,
                                    .out_stride = 2,
                                    .rows = {.row_limit = 2, .multiple = 1},
                                    .width = 2,
                                    .dtype = FIG_F32};
    draw_and_publish(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1); /* no plan was staged; the last one must not run again */
    fig_reference_launch(FIG_OP_GATED, &gated, NULL);
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == 7);
    fig_place_free(in);
    fig_place_free(out);
    fig_fetch_bench_close(b);
}

/* ---- Sections ------------------------------------------------------------------------------ */

/* Publishes a plan with these sections, and with as many rows as the plan that the device holds. */
static void publish_sections(fig_fetch_bench *b, uint32_t bucket, uint64_t number,
                             uint32_t sections) {
    const int32_t rows = b->is.rows;
    do
        fig_fetch_bench_draw(b, &plan, bucket);
    while (b->is.held == plan.head.exec + 1 && plan.head.rows != rows);
    plan.head.sections = sections;
    fig_fetch_bench_publish(b, &plan, number);
}

static void every_combination_of_sections_lands_where_it_belongs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)fig_place_cases(100); seed++) {
        fig_fetch_bench *b = fig_fetch_bench_open(seed, wide, 0);
        uint64_t number = 0;
        for (uint32_t sections = 0; sections < 32; sections++) {
            /* this plan brings the sections that the next one leaves out */
            publish_sections(b, seed % 2, ++number, ALL);
            fig_fetch_bench_fetch(b, seed % 2, 1);
            publish_sections(b, seed % 2, ++number, sections);
            fig_fetch_bench_fetch(b, seed % 2, 1);
        }
        assert_true(b->words->torn == 0 && b->words->replays == number);
        fig_fetch_bench_close(b);
    }
}

static void positions_that_are_left_out_follow_from_lengths(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(6, small, 0);
    const int32_t *positions = (int32_t *)(void *)(b->plan + b->shapes[0].layout.positions);
    fig_fetch_bench_draw(b, &plan, 0);
    plan.head.rows = 3;
    plan.head.sections = ALL & ~(uint32_t)FIG_PLAN_HAS_POSITIONS;
    plan.lengths[0] = 17;
    plan.lengths[1] = 0;
    plan.lengths[2] = 1;
    fig_fetch_bench_publish(b, &plan, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(positions[0] == 16 && positions[1] == 0 && positions[2] == 0);
    fig_fetch_bench_close(b);
}

static void a_plan_of_no_rows_is_a_plan(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(7, small, 0);
    for (uint64_t number = 1; number <= 2; number++) {
        fig_fetch_bench_draw(b, &plan, 0);
        plan.head.rows = 0;
        if (number == 2) plan.head.sections = FIG_PLAN_HAS_LENGTHS;
        fig_fetch_bench_publish(b, &plan, number);
        fig_fetch_bench_fetch(b, 0, 1);
    }
    assert_true(b->words->missed == 0 && b->words->replays == 2);
    fig_fetch_bench_close(b);
}

static void a_plan_without_a_section_that_the_device_lacks_is_torn(void **state) {
    (void)state;
    static const uint32_t lacking[] = {0, FIG_PLAN_HAS_LENGTHS, FIG_PLAN_HAS_POSITIONS,
                                       FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SPLITS,
                                       FIG_PLAN_HAS_LENGTHS | FIG_PLAN_HAS_SEQUENCES};
    for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
        fig_fetch_bench *b = fig_fetch_bench_open(8, small, 0);
        publish_sections(b, 0, 1, lacking[i]); /* the device holds no sections yet */
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 1);
        publish_sections(b, 0, 2, ALL);
        fig_fetch_bench_fetch(b, 0, 1);
        publish_sections(b, 1, 3, lacking[i]); /* it holds only the other bucket's sections */
        fig_fetch_bench_fetch(b, 1, 1);
        assert_true(b->words->torn == 2);
        publish_sections(b, 0, 4, lacking[i]); /* after a torn plan, the device holds no sections */
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 3);
        publish_sections(b, 0, 5, ALL);
        fig_fetch_bench_fetch(b, 0, 1);
        fig_fetch_bench_draw(b, &plan, 0);
        plan.head.rows = b->is.rows + (b->is.rows < b->shapes[0].row_limit ? 1 : -1);
        plan.head.sections = lacking[i];
        fig_fetch_bench_publish(b, &plan, 6); /* another number of rows */
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 4 && b->words->missed == 4 && b->words->replays == 6);
        fig_fetch_bench_close(b);
    }
}

static void lengths_that_the_device_reads_itself_need_no_split(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(9, small, 0);
    publish_sections(b, 0, 1, FIG_PLAN_HAS_SEQUENCES);
    fig_fetch_bench_fetch(b, 0, 1);
    publish_sections(b, 0, 2, 0);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->torn == 0 && b->words->replays == 2);
    fig_fetch_bench_close(b);
}

static void a_slot_of_many_times_16_kb_lands_whole(void **state) {
    (void)state;
    uint32_t most_bytes = 0;
    for (uint64_t seed = 0; seed < (uint64_t)fig_place_cases(30); seed++) {
        fig_fetch_bench *b = fig_fetch_bench_open(seed, large, 0);
        for (uint64_t number = 1; number <= 4; number++) {
            fig_fetch_bench_draw(b, &plan, seed % 2);
            plan.head.sections |= seed & 2 ? FIG_PLAN_HAS_CHECKSUM : 0;
            if (number % 2 == 0) plan.head.sections &= ~(uint32_t)FIG_PLAN_HAS_POSITIONS;
            if (number % 2 == 0) fig_fetch_bench_add_pages(b, &plan, FIG_FETCH_BENCH_PAGES);
            fig_fetch_bench_publish(b, &plan, number);
            if (plan.head.bytes > most_bytes) most_bytes = plan.head.bytes;
            if (seed & 4) fig_fetch_bench_look(b);
            fig_fetch_bench_fetch(b, seed % 2, 1);
        }
        assert_true(b->words->replays == 4 && b->words->missed == 0);
        fig_fetch_bench_close(b);
    }
    assert_true(most_bytes > 2 * 16384);
}

/* ---- Pages --------------------------------------------------------------------------------- */

static void pages_change_their_entries_and_no_others(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(10, small, 0);
    for (uint64_t number = 1; number <= 40; number++) {
        fig_fetch_bench_draw(b, &plan, 0);
        fig_fetch_bench_add_pages(b, &plan, (uint32_t)number * 5);
        if (number > 20) plan.head.sections |= FIG_PLAN_HAS_CHECKSUM;
        fig_fetch_bench_publish(b, &plan, number);
        fig_fetch_bench_fetch(b, 0, 1);
    }
    assert_true(b->words->missed == 0);
    fig_fetch_bench_close(b);
}

/* Uses the last slot of the ring, so that the memory behind it is not part of the ring. */
static void pages_fill_a_slot_to_its_end_and_no_further(void **state) {
    (void)state;
    for (uint32_t past = 0; past < 2; past++) {
        fig_fetch_bench *b = fig_fetch_bench_open(11, small, SLOTS - 1);
        fig_fetch_bench_draw(b, &plan, 0);
        fig_fetch_bench_add_pages(b, &plan, FIG_FETCH_BENCH_PAGES);
        fig_fetch_bench_publish(b, &plan, SLOTS);
        fig_fetch_bench_resize(b, plan.head.bytes);
        fig_fetch_bench_publish(b, &plan, SLOTS);
        if (past) {
            plan.head.page_count++;
            plan.head.bytes += 16;
            fig_fetch_bench_spoil(b, SLOTS, &plan.head);
        }
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == past);
        fig_fetch_bench_close(b);
    }
}

/* ---- Invalid plans ------------------------------------------------------------------------- */

typedef struct nonsense {
    size_t offset; /* the offset of a word of the head */
    int64_t value; /* the new value, or with `more` the amount to add */
    int more;
} nonsense;

#define IS(field, value)                                                                           \
    { offsetof(fig_plan_head, field), value, 0 }
#define MORE(field, value)                                                                         \
    { offsetof(fig_plan_head, field), value, 1 }

static void say_nonsense(fig_fetch_bench *b, const nonsense *what) {
    fig_plan_head head = plan.head;
    uint8_t *word = (uint8_t *)&head + what->offset;
    uint32_t value;
    memcpy(&value, word, sizeof value);
    value = (what->more ? value : 0) + (uint32_t)what->value;
    memcpy(word, &value, sizeof value);
    fig_fetch_bench_spoil(b, SLOTS, &head);
}

static void a_head_with_impossible_values_tears_its_plan(void **state) {
    (void)state;
    static const nonsense all[] = {
        IS(bytes, 0),
        IS(bytes, 48),
        IS(bytes, 64),
        IS(bytes, UINT32_MAX),
        IS(bytes, 0xfffffff0),
        MORE(bytes, 16),
        MORE(bytes, -16),
        MORE(bytes, 1),
        MORE(bytes, 65536),
        IS(rows, -1),
        IS(rows, INT32_MIN),
        IS(rows, INT32_MAX),
        IS(rows, 1 << 30),
        MORE(rows, 4),
        MORE(rows, -4),
        MORE(rows, 100),
        IS(horizon, 0),
        IS(horizon, -1),
        IS(horizon, INT32_MIN),
        MORE(page_count, 1),
        MORE(page_count, -1),
        IS(page_count, UINT32_MAX),
        MORE(page_count, 1 << 28), /* times 16 the sum wraps to the same number of bytes */
        IS(sections, 0),
        MORE(sections, -FIG_PLAN_HAS_LENGTHS),
        MORE(sections, -FIG_PLAN_HAS_SPLITS),
    };
    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++) {
        fig_fetch_bench *b = fig_fetch_bench_open(12, small, SLOTS - 1);
        fig_fetch_bench_draw(b, &plan, 0);
        fig_fetch_bench_add_pages(b, &plan, 3);
        plan.head.horizon = 3; /* the horizon of an unsound plan must be ignored */
        if (i % 3 == 0) plan.head.sections |= FIG_PLAN_HAS_CHECKSUM;
        fig_fetch_bench_publish(b, &plan, SLOTS);
        say_nonsense(b, &all[i / 2]);
        if (i % 2) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 0);
        assert_true(b->words->torn == 1 && b->words->missed == 1 && b->state->left == 0);
        draw_and_publish(b, 0, SLOTS + 1);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->replays == 2 && b->words->missed == 1);
        fig_fetch_bench_close(b);
    }
}

/* The plan's bytes and its tag agree, so only the number of rows is wrong. */
static void rows_that_no_plan_of_the_bucket_has_tear_it(void **state) {
    (void)state;
    static const int32_t past[] = {1, 4, 100, -1, -2, -3};
    for (size_t i = 0; i < 2 * sizeof past / sizeof past[0]; i++) {
        fig_fetch_bench *b = fig_fetch_bench_open(23, small, SLOTS - 1);
        fig_fetch_bench_draw(b, &plan, 0);
        plan.flaw = FIG_FETCH_UNSOUND;
        plan.head.rows = past[i / 2] > 0 ? b->shapes[0].row_limit + past[i / 2] : 0;
        if (past[i / 2] < 0) plan.head.sections = FIG_PLAN_HAS_SEQUENCES;
        fig_fetch_bench_publish(b, &plan, SLOTS);
        if (past[i / 2] < 0) {
            plan.head.rows = past[i / 2]; /* published with 0 rows, so the length fits */
            fig_fetch_bench_spoil(b, SLOTS, &plan.head);
        }
        if (i % 2) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 1);
        fig_fetch_bench_close(b);
    }
}

static void a_tag_that_says_other_bytes_than_the_head_tears_the_plan(void **state) {
    (void)state;
    static const int32_t pieces[] = {-1, 1, -1000, 1000, FIG_PLAN_TAG_MOST};
    for (size_t i = 0; i < 2 * sizeof pieces / sizeof pieces[0]; i++) {
        fig_fetch_bench *b = fig_fetch_bench_open(13, small, SLOTS - 1);
        fig_fetch_bench_draw(b, &plan, 0);
        uint8_t *slot = fig_fetch_bench_publish(b, &plan, SLOTS);
        const int32_t said = (int32_t)plan.head.bytes / 16 + pieces[i / 2];
        const uint32_t low = said < 0                   ? 0
                             : said > FIG_PLAN_TAG_MOST ? FIG_PLAN_TAG_MOST
                                                        : (uint32_t)said;
        fig_fetch_bench_spoil(b, SLOTS, &plan.head);
        ((fig_plan_head *)(void *)slot)->tag = (uint64_t)SLOTS << FIG_PLAN_TAG_BITS | low;
        if (i % 2) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->torn == 1);
        fig_fetch_bench_close(b);
    }
}

/* Flips one bit of a plan or of its checksum, over and over; a valid plan follows each torn one.
 * sections: those that the plan has besides the drawn ones. */
static void flip_bits(fig_fetch_bench *b, uint32_t stride, int looks, uint32_t sections) {
    uint64_t number = 1;
    for (uint32_t bit = 0;; bit += stride, number += 2) {
        fig_fetch_bench_draw(b, &plan, 0);
        fig_fetch_bench_add_pages(b, &plan, 3);
        plan.head.rows = b->shapes[0].row_limit;
        plan.head.sections |= sections;
        plan.flaw = FIG_FETCH_BROKEN;
        uint8_t *slot = fig_fetch_bench_publish(b, &plan, number);
        assert_true(sections != 0 || plan.head.bytes <= FIG_PLAN_SHORT_BYTES);
        const uint32_t bits = (plan.head.bytes - 64) * 8 + 64;
        if (bit >= bits) break;
        const uint32_t byte =
            bit < 64 ? (uint32_t)offsetof(fig_plan_head, checksum) + bit / 8 : 64 + (bit - 64) / 8;
        slot[byte] ^= (uint8_t)(1 << bit % 8);
        memcpy(&b->slots[number % SLOTS].head, slot, sizeof plan.head);
        if (looks) fig_fetch_bench_look(b);
        fig_fetch_bench_fetch(b, 0, 1);
        plan.flaw = FIG_FETCH_FLAWLESS;
        draw_and_publish(b, 0, number + 1);
        fig_fetch_bench_fetch(b, 0, 1);
    }
    assert_true(b->words->torn == number / 2 && b->words->missed == number / 2);
}

static void a_flipped_bit_behind_the_head_tears_a_plan_with_a_checksum(void **state) {
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        fig_fetch_bench *b = fig_fetch_bench_open(14, small, 0);
        flip_bits(b, 10000 / (uint32_t)fig_place_cases(10000), looks, FIG_PLAN_HAS_CHECKSUM);
        fig_fetch_bench_close(b);
        b = fig_fetch_bench_open(15, large, 0);
        flip_bits(b, 4001, looks, FIG_PLAN_HAS_CHECKSUM);
        fig_fetch_bench_close(b);
    }
}

/* FIG_PLAN_HAS_CHECKSUM is not set here. But every short plan has a checksum, since the device may
 * have read the whole plan at once while the host was still writing it. */
static void a_flipped_bit_tears_a_short_plan_of_the_ring(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(17, tiny, 0);
    flip_bits(b, 4000 / (uint32_t)fig_place_cases(4000), 0, 0);
    fig_fetch_bench_close(b);
}

static void words_that_change_places_tear_a_plan_with_a_checksum(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(16, small, 0);
    uint32_t words[2];
    fig_fetch_bench_draw(b, &plan, 0);
    plan.head.sections |= FIG_PLAN_HAS_CHECKSUM;
    plan.flaw = FIG_FETCH_BROKEN;
    uint8_t *slot = fig_fetch_bench_publish(b, &plan, 1);
    do
        memcpy(words, slot += 4, sizeof words);
    while (slot < b->ring + 64 || words[0] == words[1]);
    memcpy(slot, &words[1], sizeof words[1]);
    memcpy(slot + 4, &words[0], sizeof words[0]);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->torn == 1);
    fig_fetch_bench_close(b);
}

/* ---- Horizons ------------------------------------------------------------------------------ */

/* Publishes a plan with a horizon, and fetches its first launch. */
static void begin_horizon(fig_fetch_bench *b, uint64_t number, int32_t horizon,
                          int32_t row_tokens) {
    plan.head.horizon = horizon;
    plan.head.row_tokens = row_tokens;
    fig_fetch_bench_publish(b, &plan, number);
    fig_fetch_bench_fetch(b, 0, 1);
}

static void rows_grow_by_their_tokens_and_idle_ones_do_not(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(17, wide, 0);
    const int32_t *lengths = (int32_t *)(void *)(b->plan + b->shapes[0].layout.lengths);
    const int32_t *positions = (int32_t *)(void *)(b->plan + b->shapes[0].layout.positions);
    for (int32_t row_tokens = 0; row_tokens <= 16; row_tokens++) {
        fig_fetch_bench_draw(b, &plan, 0);
        plan.lengths[0] = 0;
        plan.lengths[1] = 17;
        if (row_tokens % 2) plan.head.sections &= ~(uint32_t)FIG_PLAN_HAS_POSITIONS;
        plan.positions[0] = 5;
        plan.positions[1] = row_tokens % 2 ? 16 : 99; /* derived from the length, or given */
        begin_horizon(b, (uint64_t)row_tokens + 1, 5, row_tokens);
        for (int32_t launch = 1; launch < 5; launch++) {
            fig_fetch_bench_fetch(b, 0, 1);
            assert_int_equal(lengths[0], 0);
            assert_int_equal(positions[0], row_tokens % 2 ? 0 : 5);
            assert_int_equal(lengths[1], 17 + launch * row_tokens);
            assert_int_equal(positions[1], plan.positions[1] + launch * row_tokens);
        }
        assert_int_equal(b->state->left, 0);
    }
    fig_fetch_bench_fetch(b, 0, 1); /* the horizon has ended */
    assert_true(b->words->missed == 1 && b->words->replays == 85 && b->words->consumed == 17);
    fig_fetch_bench_close(b);
}

static void all_rows_of_a_wide_plan_grow(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(18, large, 0);
    fig_fetch_bench_draw(b, &plan, 0);
    begin_horizon(b, 1, 3, 2);
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->replays == 3 && b->words->missed == 0);
    fig_fetch_bench_close(b);
}

static void the_plan_behind_a_horizon_follows_it(void **state) {
    (void)state;
    for (int looks = 0; looks < 2; looks++) {
        fig_fetch_bench *b = fig_fetch_bench_open(19, small, 0);
        fig_fetch_bench_draw(b, &plan, 0);
        begin_horizon(b, 1, 3, 1);
        publish_sections(b, 0, 2, FIG_PLAN_HAS_LENGTHS);
        for (int launch = 1; launch < 4; launch++) {
            if (looks) fig_fetch_bench_look(b);
            fig_fetch_bench_fetch(b, 0, 1);
            assert_int_equal(b->state->number, launch < 3 ? 1 : 2);
        }
        assert_true(b->words->missed == 0);
        fig_fetch_bench_close(b);
    }
}

static void a_launch_of_another_bucket_takes_nothing_of_a_horizon(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(20, small, 0);
    fig_fetch_bench_draw(b, &plan, 0);
    begin_horizon(b, 1, 3, 1);
    for (int launch = 1; launch < 3; launch++) {
        fig_fetch_bench_fetch(b, 1, 1);
        assert_int_equal(((const fig_plan_head *)(const void *)b->plan)->rows, 0);
        fig_fetch_bench_fetch(b, 0, 1);
        assert_int_equal(((const fig_plan_head *)(const void *)b->plan)->rows, plan.head.rows);
    }
    assert_true(b->words->missed == 2 && b->words->replays == 3 && b->state->left == 0);
    fig_fetch_bench_close(b);
}

static void a_torn_plan_is_for_as_many_launches_as_a_whole_one(void **state) {
    (void)state;
    for (uint32_t bucket = 0; bucket < 2; bucket++) {
        fig_fetch_bench *b = fig_fetch_bench_open(21, small, 0);
        fig_fetch_bench_draw(b, &plan, 0);
        /* the device lacks the sections that this plan leaves out */
        plan.head.sections = FIG_PLAN_HAS_LENGTHS;
        begin_horizon(b, 1, 3, 1);
        draw_and_publish(b, 0, 2);
        for (uint64_t launch = 2; launch <= 3; launch++) {
            fig_fetch_bench_fetch(b, bucket, 1); /* counts as a launch of the torn plan */
            assert_true(b->words->replays == launch && b->words->missed == launch);
        }
        fig_fetch_bench_fetch(b, 0, 1);
        assert_true(b->words->replays == 4 && b->words->missed == 3 && b->words->torn == 1);
        fig_fetch_bench_close(b);
    }
}

static void a_drop_ends_a_horizon(void **state) {
    (void)state;
    fig_fetch_bench *b = fig_fetch_bench_open(22, small, 0);
    fig_fetch_bench_draw(b, &plan, 0);
    begin_horizon(b, 1, 5, 1);
    fig_fetch_bench_fetch(b, 0, 1);
    fig_fetch_bench_drop(b);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 1 && b->words->replays == 2);
    draw_and_publish(b, 0, 2);
    fig_fetch_bench_fetch(b, 0, 1);
    assert_true(b->words->missed == 1 && b->words->replays == 3);
    fig_fetch_bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_taken_in_order_around_the_ring),
        cmocka_unit_test(numbers_past_32_bits_find_their_slot),
        cmocka_unit_test(an_empty_slot_gives_zero_rows_and_counts_as_missed),
        cmocka_unit_test(a_stale_plan_is_never_taken_again),
        cmocka_unit_test(a_plan_of_another_bucket_waits_for_its_own_graph),
        cmocka_unit_test(rows_run_by_what_was_fetched_and_none_after_a_miss),
        cmocka_unit_test(every_combination_of_sections_lands_where_it_belongs),
        cmocka_unit_test(positions_that_are_left_out_follow_from_lengths),
        cmocka_unit_test(a_plan_of_no_rows_is_a_plan),
        cmocka_unit_test(a_plan_without_a_section_that_the_device_lacks_is_torn),
        cmocka_unit_test(lengths_that_the_device_reads_itself_need_no_split),
        cmocka_unit_test(a_slot_of_many_times_16_kb_lands_whole),
        cmocka_unit_test(pages_change_their_entries_and_no_others),
        cmocka_unit_test(pages_fill_a_slot_to_its_end_and_no_further),
        cmocka_unit_test(a_head_with_impossible_values_tears_its_plan),
        cmocka_unit_test(rows_that_no_plan_of_the_bucket_has_tear_it),
        cmocka_unit_test(a_tag_that_says_other_bytes_than_the_head_tears_the_plan),
        cmocka_unit_test(a_flipped_bit_behind_the_head_tears_a_plan_with_a_checksum),
        cmocka_unit_test(a_flipped_bit_tears_a_short_plan_of_the_ring),
        cmocka_unit_test(words_that_change_places_tear_a_plan_with_a_checksum),
        cmocka_unit_test(rows_grow_by_their_tokens_and_idle_ones_do_not),
        cmocka_unit_test(all_rows_of_a_wide_plan_grow),
        cmocka_unit_test(the_plan_behind_a_horizon_follows_it),
        cmocka_unit_test(a_launch_of_another_bucket_takes_nothing_of_a_horizon),
        cmocka_unit_test(a_torn_plan_is_for_as_many_launches_as_a_whole_one),
        cmocka_unit_test(a_drop_ends_a_horizon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
