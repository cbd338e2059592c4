/* fetch_bench.c: see fetch_bench.h. */
#include "tests/support/kernels/fetch_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/place.h"
#include "tests/support/kernels/reference.h"

enum { PADDING = 0xd7, UNTOUCHED = 0xa5, FIRST_BUCKET = 4, FIRST_PAGE = 1000 };

/* ---- Opening it ---------------------------------------------------------------------------- */

static fig_plan_shape draw_shape(fig_random *random, fig_fetch_bench_scale scale) {
    fig_plan_shape shape = {.row_limit = fig_random_range(random, (scale.rows + 1) / 2, scale.rows),
                            .class_count =
                                fig_random_range(random, scale.classes > 0, scale.classes)};
    for (int32_t i = 0; i < shape.class_count; i++) {
        shape.splits[i].row_limit = shape.row_limit;
        shape.splits[i].workers = fig_random_range(random, (scale.workers + 1) / 2, scale.workers);
    }
    fig_plan_lay_out(&shape);
    return shape;
}

static void *allocate(size_t bytes, int fill) {
    void *memory = fig_place_allocate(bytes);
    assert_non_null(memory);
    return memset(memory, fill, bytes);
}

void fig_fetch_bench_resize(fig_fetch_bench *b, uint32_t slot_bytes) {
    const fig_fetch_state is = b->state != NULL ? *b->state : (fig_fetch_state){0};
    fig_place_free(b->ring);
    fig_place_free(b->state);
    b->slot_bytes = slot_bytes;
    b->ring = allocate(FIG_FETCH_BENCH_SLOTS * (size_t)slot_bytes, 0);
    b->state = allocate(sizeof is + slot_bytes, 0);
    *b->state = is;
    memset(b->slots, 0, sizeof b->slots);
}

fig_fetch_bench *fig_fetch_bench_open(uint64_t seed, fig_fetch_bench_scale scale, uint64_t number) {
    fig_fetch_bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    assert_true(scale.rows <= FIG_FETCH_BENCH_ROWS && scale.workers <= FIG_FETCH_BENCH_WORKERS);
    b->random = fig_random_seed(seed);
    for (uint32_t i = 0; i < FIG_FETCH_BENCH_BUCKETS; i++) {
        b->shapes[i] = draw_shape(&b->random, scale);
        b->shapes[i].exec = FIRST_BUCKET + i;
        b->shapes[i].row_tokens = i == 0 ? 4 : 1;
        fig_plan_lay_out(&b->shapes[i]);
        const uint32_t bytes = b->shapes[i].layout.bytes;
        if (bytes > b->plan_bytes) b->plan_bytes = bytes;
    }
    fig_fetch_bench_resize(b,
                           b->plan_bytes + FIG_FETCH_BENCH_PAGES * (uint32_t)sizeof(fig_plan_page));
    b->plan = allocate(b->plan_bytes, UNTOUCHED);
    b->words = allocate(sizeof *b->words, 0);
    b->table = allocate(sizeof b->entries, UNTOUCHED);
    b->expected = malloc(b->plan_bytes);
    assert_non_null(b->expected);
    memset(b->expected, UNTOUCHED, b->plan_bytes);
    memset(b->entries, UNTOUCHED, sizeof b->entries);
    b->is.number = b->state->number = number;
    b->told.consumed = b->words->consumed = number;
    return b;
}

void fig_fetch_bench_close(fig_fetch_bench *b) {
    fig_place_free(b->ring);
    fig_place_free(b->plan);
    fig_place_free(b->state);
    fig_place_free(b->words);
    fig_place_free(b->table);
    free(b->expected);
    free(b);
}

/* ---- Plans --------------------------------------------------------------------------------- */

static const fig_plan_shape *shape_of(const fig_fetch_bench *b, uint32_t bucket) {
    assert_true(bucket - FIRST_BUCKET < FIG_FETCH_BENCH_BUCKETS);
    return &b->shapes[bucket - FIRST_BUCKET];
}

static void draw_words(fig_random *random, int32_t *words, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        words[i] = fig_random_range(random, 0, INT32_MAX);
}

void fig_fetch_bench_draw(fig_fetch_bench *b, fig_fetch_bench_plan *plan, uint32_t bucket) {
    fig_random *random = &b->random;
    const fig_plan_shape *shape = &b->shapes[bucket];
    const int32_t rows = fig_random_range(random, shape->row_limit / 2, shape->row_limit);
    memset(plan, 0, sizeof *plan);
    plan->head = (fig_plan_head){.exec = shape->exec,
                                 .rows = rows,
                                 .sections = FIG_FETCH_BENCH_ALL,
                                 .horizon = 1,
                                 .tile_limits = {1, 2, 3, 4}};
    for (int32_t row = 0; row < rows; row++) {
        const int idle = fig_random_range(random, 0, 3) == 0;
        plan->lengths[row] = idle ? 0 : fig_random_range(random, 1, 1 << 20);
    }
    draw_words(random, plan->sequences, rows);
    draw_words(random, plan->positions, rows);
    draw_words(random, plan->tokens, rows);
    for (int32_t i = 0; i < shape->class_count; i++) {
        draw_words(random, plan->prefix[i], rows + 1);
        draw_words(random, &plan->starts[i][0].row, 4 * shape->splits[i].workers);
    }
}

void fig_fetch_bench_add_pages(fig_fetch_bench *b, fig_fetch_bench_plan *plan, uint32_t count) {
    const uint32_t first = (uint32_t)fig_random_range(&b->random, 0, FIG_FETCH_BENCH_PAGES - 1);
    assert_true(count <= FIG_FETCH_BENCH_PAGES);
    plan->head.page_count = count;
    for (uint32_t i = 0; i < count; i++) {
        plan->entries[i] = (first + 7 * i) % FIG_FETCH_BENCH_PAGES; /* all entries differ */
        plan->pages[i] = fig_random_range(&b->random, FIRST_PAGE, INT32_MAX);
    }
}

/* ---- Slots --------------------------------------------------------------------------------- */

static uint8_t *slot_of(const fig_fetch_bench *b, uint64_t number) {
    return b->ring + (number - 1) % FIG_FETCH_BENCH_SLOTS * b->slot_bytes;
}

static void put(uint8_t *slot, uint32_t *end, const void *items, uint32_t bytes) {
    memcpy(slot + *end, items, bytes);
    *end += bytes;
    while (*end % 16 != 0)
        slot[(*end)++] = PADDING;
}

static uint32_t put_sections(const fig_fetch_bench *b, const fig_fetch_bench_plan *plan,
                             uint8_t *slot) {
    const fig_plan_head *head = &plan->head;
    const fig_plan_shape *shape = shape_of(b, head->exec);
    const uint32_t rows_bytes = 4 * (uint32_t)head->rows;
    uint32_t end = sizeof *head;
    if (head->sections & FIG_PLAN_HAS_LENGTHS) put(slot, &end, plan->lengths, rows_bytes);
    if (head->sections & FIG_PLAN_HAS_SEQUENCES) put(slot, &end, plan->sequences, rows_bytes);
    if (head->sections & FIG_PLAN_HAS_POSITIONS) put(slot, &end, plan->positions, rows_bytes);
    if (head->sections & FIG_PLAN_HAS_TOKENS) put(slot, &end, plan->tokens, rows_bytes);
    for (int32_t i = 0; i < shape->class_count && head->sections & FIG_PLAN_HAS_SPLITS; i++) {
        put(slot, &end, plan->prefix[i], rows_bytes + 4);
        put(slot, &end, plan->starts[i], 16 * (uint32_t)shape->splits[i].workers);
    }
    for (uint32_t i = 0; i < head->page_count; i++) {
        const fig_plan_page page = {.address = (uint64_t)(uintptr_t)&b->table[plan->entries[i]],
                                    .page = plan->pages[i],
                                    .reserved = 99};
        put(slot, &end, &page, sizeof page);
    }
    return end;
}

/* Adds the terms backwards, since the order must not matter. */
static uint64_t sum_of(const fig_plan_head *head, const uint8_t *slot, uint64_t number) {
    uint64_t sum = 0;
    for (uint32_t n = head->bytes / 4; n-- > 2;) {
        const int in_head = 4 * n < sizeof *head;
        uint32_t word;
        memcpy(&word, (in_head ? (const uint8_t *)head : slot) + 4 * n, sizeof word);
        if (n != 10 && n != 11) sum += fig_plan_term(n, word);
    }
    return sum + fig_plan_number_term(number);
}

uint8_t *fig_fetch_bench_write(fig_fetch_bench *b, fig_fetch_bench_plan *plan, uint64_t number) {
    uint8_t *slot = slot_of(b, number);
    fig_plan_head *head = &plan->head;
    memset(slot + sizeof head->tag, PADDING, b->slot_bytes - sizeof head->tag);
    head->sections = (head->sections & 0xffff) | (b->is.torn - plan->late) << 16;
    head->bytes = put_sections(b, plan, slot);
    assert_true(head->bytes <= b->slot_bytes);
    const int is_summed =
        (head->sections & FIG_PLAN_HAS_CHECKSUM) || head->bytes <= FIG_PLAN_SHORT_BYTES;
    head->checksum = is_summed ? sum_of(head, slot, number) : UINT64_MAX;
    head->tag = fig_plan_tag(number, head->bytes);
    memcpy(slot + sizeof head->tag, (const uint8_t *)head + sizeof head->tag,
           sizeof *head - sizeof head->tag);
    return slot;
}

uint8_t *fig_fetch_bench_publish(fig_fetch_bench *b, fig_fetch_bench_plan *plan, uint64_t number) {
    uint8_t *slot = fig_fetch_bench_write(b, plan, number);
    memcpy(slot, &plan->head.tag, sizeof plan->head.tag);
    plan->number = number;
    b->slots[number % FIG_FETCH_BENCH_SLOTS] = *plan;
    return slot;
}

void fig_fetch_bench_spoil(fig_fetch_bench *b, uint64_t number, const fig_plan_head *head) {
    fig_fetch_bench_plan *plan = &b->slots[number % FIG_FETCH_BENCH_SLOTS];
    plan->head = *head;
    plan->head.tag = fig_plan_tag(number, head->bytes);
    plan->flaw = FIG_FETCH_UNSOUND;
    memcpy(slot_of(b, number), &plan->head, sizeof plan->head);
}

/* ---- The expected state --------------------------------------------------------------------- */

static void tell(fig_fetch_bench *b) {
    b->told.consumed = b->is.number;
    b->told.replays = b->is.replays;
}

static fig_plan_head *expected_head(const fig_fetch_bench *b) {
    return (fig_plan_head *)(void *)b->expected;
}

static void miss(fig_fetch_bench *b) {
    expected_head(b)->rows = 0;
    b->told.missed++;
}

/* A fetch may copy words after the end of a section too. They have no meaning. */
static void expect(fig_fetch_bench *b, uint32_t offset, const int32_t *words, int32_t count) {
    const uint32_t bytes = 4 * (uint32_t)count, end = (bytes + 15) / 16 * 16;
    memcpy(b->expected + offset, words, bytes);
    memcpy(b->expected + offset + bytes, b->plan + offset + bytes, end - bytes);
}

static void expect_plan(fig_fetch_bench *b, const fig_fetch_bench_plan *plan) {
    const fig_plan_shape *shape = shape_of(b, plan->head.exec);
    const fig_plan_layout *layout = &shape->layout;
    const uint32_t has = plan->head.sections;
    const int32_t rows = plan->head.rows;
    memcpy(b->expected, &plan->head, sizeof plan->head);
    if (has & FIG_PLAN_HAS_LENGTHS) expect(b, layout->lengths, plan->lengths, rows);
    if (has & FIG_PLAN_HAS_SEQUENCES) expect(b, layout->sequences, plan->sequences, rows);
    if (has & FIG_PLAN_HAS_POSITIONS) expect(b, layout->positions, plan->positions, rows);
    if (has & FIG_PLAN_HAS_TOKENS) expect(b, layout->tokens, plan->tokens, rows);
    for (int32_t row = 0; row < rows && !(has & FIG_PLAN_HAS_POSITIONS); row++) {
        const int32_t last = plan->lengths[row] == 0 ? 0 : plan->lengths[row] - 1;
        if (has & FIG_PLAN_HAS_LENGTHS)
            memcpy(b->expected + layout->positions + 4 * row, &last, sizeof last);
    }
    for (int32_t i = 0; i < shape->class_count && has & FIG_PLAN_HAS_SPLITS; i++) {
        expect(b, layout->prefix[i], plan->prefix[i], rows + 1);
        expect(b, layout->starts[i], &plan->starts[i][0].row, 4 * shape->splits[i].workers);
    }
    for (uint32_t i = 0; i < plan->head.page_count; i++)
        b->entries[plan->entries[i]] = plan->pages[i];
}

/* Returns 1 if the device already holds everything that the plan leaves out. */
static int is_complete(const fig_fetch_bench *b, const fig_plan_head *head) {
    const int held = b->is.held == head->exec + 1 && b->is.rows == head->rows;
    const int lacks_splits =
        (head->sections & FIG_PLAN_HAS_LENGTHS) && !(head->sections & FIG_PLAN_HAS_SPLITS);
    return held || ((head->sections & FIG_PLAN_HAS_SEQUENCES) && !lacks_splits);
}

static void expect_take(fig_fetch_bench *b, uint32_t bucket, uint32_t tells) {
    const uint64_t next = b->is.number + 1;
    const fig_fetch_bench_plan *plan =
        b->is.ahead == next ? &b->ahead : &b->slots[next % FIG_FETCH_BENCH_SLOTS];
    const int is_own = plan->head.exec == bucket;
    const int is_summed =
        (plan->head.sections & FIG_PLAN_HAS_CHECKSUM) || plan->head.bytes <= FIG_PLAN_SHORT_BYTES;
    if (plan->number != next || (!is_own && (plan->flaw == FIG_FETCH_FLAWLESS || !is_summed))) {
        miss(b);
        return;
    }
    const int is_late =
        plan->flaw == FIG_FETCH_FLAWLESS && plan->head.sections >> 16 != (b->is.torn & 0xffff);
    b->is.number = next;
    b->is.replays++;
    b->is.left = plan->flaw == FIG_FETCH_UNSOUND || !is_own ? 0 : plan->head.horizon - 1;
    if (plan->flaw == FIG_FETCH_FLAWLESS && !is_late && is_complete(b, &plan->head)) {
        expect_plan(b, plan);
        b->is.held = bucket + 1;
        b->is.rows = plan->head.rows;
        if (tells) tell(b);
        return;
    }
    b->is.held = 0;
    b->is.torn += !is_late;
    b->told.torn += !is_late;
    b->told.late += (uint64_t)is_late;
    miss(b);
    tell(b);
}

static void add_to_word(uint8_t *words, int32_t index, int32_t more) {
    int32_t word;
    memcpy(&word, words + 4 * index, sizeof word);
    word += more;
    memcpy(words + 4 * index, &word, sizeof word);
}

static void expect_growth(fig_fetch_bench *b, uint32_t bucket, uint32_t tells) {
    const fig_plan_layout *layout = &shape_of(b, bucket)->layout;
    const int32_t more = expected_head(b)->row_tokens;
    if (b->is.held != 0 && b->is.held != bucket + 1) {
        miss(b);
        return;
    }
    b->is.left--;
    b->is.replays++;
    if (b->is.held == 0) {
        miss(b);
    } else {
        for (int32_t row = 0; row < b->is.rows; row++) {
            int32_t length;
            memcpy(&length, b->expected + layout->lengths + 4 * row, sizeof length);
            if (length == 0) continue;
            add_to_word(b->expected + layout->lengths, row, more);
            add_to_word(b->expected + layout->positions, row, more);
        }
        expected_head(b)->rows = b->is.rows;
        expected_head(b)->advanced += more;
    }
    if (tells) tell(b);
}

/* ---- Running it ---------------------------------------------------------------------------- */

static void check_bytes(const char *name, const void *is, const void *must, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t a = ((const uint8_t *)is)[i], e = ((const uint8_t *)must)[i];
        if (a != e) fail_msg("%s: byte %zu of %zu is 0x%02x, must be 0x%02x", name, i, bytes, a, e);
    }
}

static void check_number(const char *name, uint64_t is, uint64_t must) {
    if (is != must)
        fail_msg("%s is %llu, must be %llu", name, (unsigned long long)is,
                 (unsigned long long)must);
}

static void check(const fig_fetch_bench *b) {
    const fig_fetch_state *state = b->state;
    check_number("state: number", state->number, b->is.number);
    check_number("state: replays", state->replays, b->is.replays);
    check_number("state: ahead", state->ahead, b->is.ahead);
    check_number("state: left", (uint64_t)state->left, (uint64_t)b->is.left);
    check_number("state: held", state->held, b->is.held);
    if (b->is.held != 0) check_number("state: rows", (uint64_t)state->rows, (uint64_t)b->is.rows);
    check_number("words: consumed", b->words->consumed, b->told.consumed);
    check_number("words: replays", b->words->replays, b->told.replays);
    check_number("words: missed", b->words->missed, b->told.missed);
    check_number("words: torn", b->words->torn, b->told.torn);
    check_number("words: late", b->words->late, b->told.late);
    check_number("state: torn", state->torn, b->is.torn);
    check_bytes("plan", b->plan, b->expected, b->plan_bytes);
    check_bytes("page table", b->table, b->entries, sizeof b->entries);
}

static fig_fetch_params params_of(const fig_fetch_bench *b, uint32_t bucket, uint32_t tells) {
    return (fig_fetch_params){.ring = b->ring,
                              .plan = b->plan,
                              .state = b->state,
                              .words = b->words,
                              .shape = *shape_of(b, bucket),
                              .slot_count = FIG_FETCH_BENCH_SLOTS,
                              .slot_bytes = b->slot_bytes,
                              .tells = tells};
}

void fig_fetch_bench_fetch(fig_fetch_bench *b, uint32_t bucket, uint32_t tells) {
    const uint32_t name = b->shapes[bucket].exec;
    const fig_fetch_params params = params_of(b, name, tells);
    fig_reference_launch(FIG_OP_FETCH, &params, NULL);
    if (b->is.left > 0) {
        expect_growth(b, name, tells);
    } else {
        expect_take(b, name, tells);
    }
    check(b);
}

void fig_fetch_bench_look(fig_fetch_bench *b) {
    const fig_look_ahead_params params = {.ring = b->ring,
                                          .state = b->state,
                                          .words = b->words,
                                          .slot_count = FIG_FETCH_BENCH_SLOTS,
                                          .slot_bytes = b->slot_bytes};
    const uint64_t next = b->is.number + 1;
    const fig_fetch_bench_plan *plan = &b->slots[next % FIG_FETCH_BENCH_SLOTS];
    fig_reference_launch(FIG_OP_LOOK_AHEAD, &params, NULL);
    tell(b);
    if (b->is.ahead != next && plan->number == next) {
        b->ahead = *plan;
        b->is.ahead = next;
    }
    check(b);
}

void fig_fetch_bench_drop(fig_fetch_bench *b) {
    const fig_fetch_params params = {
        .state = b->state, .words = b->words, .shape = {.exec = FIG_FETCH_DROP}};
    fig_reference_launch(FIG_OP_FETCH, &params, NULL);
    b->is.left = 0;
    b->is.ahead = 0;
    check(b);
}
