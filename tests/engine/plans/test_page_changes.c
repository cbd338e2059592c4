/* test_page_changes.c: changes page tables in random ways while steps are staged, launched, taken
 * back and damaged, and compares the device's tables, and the engine's copies of them, with the
 * test's own.
 *
 * Some runs let a call of the device fail; the test then repeats its call. Invariant: all pages are
 * below PAGE_LIMIT, a power of 2. So any mix of the bytes of two pages is a page too, and steps may
 * read entries of which fig_engine_write() has changed only some bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/hang.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum {
    ROWS = 6,
    SEQUENCES = 9,
    KV_LIMIT = 512,
    PAGE = 4,
    PAGES = KV_LIMIT / PAGE,
    TABLES = 2,
    PAGE_LIMIT = 1024,
    CALLS = 500 /* of the device in a run, about */
};

static const fig_decode_options small = {.dtype = FIG_F32,
                                         .layers = TABLES,
                                         .page_size = PAGE,
                                         .batch_limit = ROWS,
                                         .kv_limit = KV_LIMIT,
                                         .window = 40,
                                         .window_layers = 2};
static const char *const names[TABLES] = {"page_table", "page_table.window"};

/* An engine, and the expected contents of its tables. */
typedef struct bench {
    fig_decode decode;
    int32_t *memory[TABLES]; /* [SEQUENCES][PAGES], for tables that are the caller's */
    fig_random random;
    fig_engine *engine;
    int is_owned[TABLES]; /* by the engine, which then keeps a copy */
    int32_t tables[TABLES][SEQUENCES][PAGES];
    int32_t known[TABLES][SEQUENCES]; /* entries up to the last one that was set */
    /* how often these have happened in all runs */
    int busy, taken_back, forks, failures;
    uint64_t torn;
} bench;

static bench b; /* too large for the stack */

static int32_t draw(int32_t low, int32_t high) {
    return fig_random_range(&b.random, low, high);
}

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* Returns 1 if the call failed as the test had asked, and must be repeated. */
static int failed(fig_status status) {
    if (status == FIG_OK) return 0;
    if (strstr(fig_message(), "failed as asked") == NULL) fail_msg("%s", fig_message());
    b.failures++;
    return 1;
}

#define TWICE(call)                                                                                \
    do {                                                                                           \
        if (failed(call)) must(call);                                                              \
    } while (0)

/* ---- Runs ---------------------------------------------------------------------------------- */

static void bind_all(void) {
    for (int32_t layer = 0; layer < b.decode.spec.layers; layer++)
        for (int kind = 0; kind < FIG_DECODE_KIND_COUNT; kind++) {
            const fig_binding binding = fig_decode_binding(&b.decode, layer, (fig_decode_kind)kind);
            if (binding.address != NULL) TWICE(fig_engine_bind(b.engine, &binding));
        }
    memset(b.tables, 0, sizeof b.tables);
    memset(b.known, 0, sizeof b.known);
    for (int t = 0; t < TABLES; t++) {
        fig_binding binding = {.size = sizeof binding, .name = names[t]};
        b.is_owned[t] = draw(0, 2) > 0;
        if (!b.is_owned[t]) {
            binding.address = b.memory[t];
            binding.bytes = sizeof b.tables[t];
            memset(b.memory[t], 0, sizeof b.tables[t]);
        }
        TWICE(fig_engine_bind(b.engine, &binding));
    }
}

static void open_run(const fig_engine_options *on, int64_t fail_at_call) {
    fig_engine_options options = *on;
    options.slots = draw(2, 5);
    options.check_plans = 1;
    if (fail_at_call > 0)
        options.test = FIG_OPTIONS(fig_test_options, .fail_at_call = fail_at_call);
    if (failed(fig_engine_open(&b.engine, b.decode.graphs, &options))) {
        options.test = on->test;
        must(fig_engine_open(&b.engine, b.decode.graphs, &options));
    }
    bind_all();
}

static void close_run(void) {
    b.torn += fig_ring_torn(&b.engine->ring);
    fig_engine_close(b.engine);
}

static int is_waiting(void) {
    return b.engine->launched < b.engine->staged;
}

/* ---- Changes ------------------------------------------------------------------------------- */

static void know(int t, int32_t sequence, int32_t count) {
    if (count > b.known[t][sequence]) b.known[t][sequence] = count;
}

static void set(void) {
    int32_t pages[PAGES];
    const int t = draw(0, TABLES); /* TABLES: both of them */
    const int32_t most = draw(0, 2) > 0 ? 3 : 40, count = draw(0, most);
    const fig_pages change = {.size = sizeof change,
                              .sequence = draw(0, SEQUENCES - 1),
                              .first = draw(0, PAGES - count),
                              .count = count,
                              .pages = pages,
                              .table = t < TABLES ? names[t] : NULL};
    for (int32_t i = 0; i < count; i++)
        pages[i] = draw(0, PAGE_LIMIT - 1);
    TWICE(fig_engine_set_pages(b.engine, &change));
    for (int i = 0; i < TABLES && count > 0; i++) {
        if (t < TABLES && t != i) continue;
        memcpy(&b.tables[i][change.sequence][change.first], pages, sizeof pages[0] * (size_t)count);
        know(i, change.sequence, change.first + count);
    }
}

/* Writes any bytes of a table. If the call fails, the engine no longer knows the entries, and all
 * bytes of them must be written. */
static void write(void) {
    const int t = draw(0, TABLES - 1);
    const int32_t end = sizeof b.tables[t], offset = draw(0, end), left = end - offset;
    const int32_t most = draw(0, 3) > 0 ? 20 : 900, count = draw(0, most < left ? most : left);
    uint8_t *bytes = (uint8_t *)b.tables[t];
    fig_span span = {.size = sizeof span,
                     .name = names[t],
                     .offset = (uint64_t)offset,
                     .bytes = (uint64_t)count};
    for (int32_t i = offset; i < offset + count; i++) {
        bytes[i] = (uint8_t)(draw(0, PAGE_LIMIT - 1) >> (i % 4 * 8));
        know(t, i / 4 / PAGES, i / 4 % PAGES + 1);
    }
    if (!failed(fig_engine_write(b.engine, &span, bytes + offset))) return;
    if (count > 0) { /* a span of no bytes stays so, or an entry would become known */
        span.offset = span.offset / 4 * 4;
        span.bytes = (uint64_t)(offset + count + 3) / 4 * 4 - span.offset;
    }
    must(fig_engine_write(b.engine, &span, bytes + span.offset));
}

static void fork_one(void) {
    const int t = draw(0, TABLES - 1);
    const int32_t count = draw(0, PAGES), source = draw(0, SEQUENCES - 1);
    const fig_fork fork = {.size = sizeof fork,
                           .source = source,
                           .target = (source + draw(1, SEQUENCES - 1)) % SEQUENCES,
                           .length = count * PAGE,
                           .table = names[t]};
    if (!b.is_owned[t] || is_waiting()) return;
    if (count > b.known[t][source]) {
        assert_int_equal(fig_engine_fork(b.engine, &fork), FIG_INVALID);
        return;
    }
    TWICE(fig_engine_fork(b.engine, &fork));
    memcpy(b.tables[t][fork.target], b.tables[t][source], sizeof(int32_t) * (size_t)count);
    know(t, fork.target, count);
    b.forks++;
}

/* ---- Steps --------------------------------------------------------------------------------- */

static void damage_newest(void) {
    const fig_ring *ring = &b.engine->ring;
    uint8_t *slot = ring->slots + (ring->next - 2) % ring->slot_count * ring->slot_bytes;
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    slot[draw(sizeof *head, (int32_t)head->bytes - 1)] ^= 0x40;
}

static void stage(void) {
    int32_t lengths[ROWS];
    const fig_step step = {.size = sizeof step,
                           .rows = ROWS,
                           .kv_lengths = lengths,
                           .horizon = draw(0, 3) > 0 ? 1 : 3};
    for (int32_t row = 0; row < ROWS; row++)
        lengths[row] = draw(0, 2) > 0 ? draw(1, 8) : 0;
    const fig_status status = fig_engine_stage(b.engine, &step);
    b.busy += status == FIG_BUSY;
    if (status == FIG_BUSY || failed(status)) return;
    if (draw(0, 11) == 0) damage_newest();
}

/* A wait tells of damaged plans once, and a call of the device fails once. */
static void wait_for_all(void) {
    fig_status status = FIG_DRIVER;
    for (int i = 0; i < 3 && status == FIG_DRIVER; i++)
        status = fig_engine_wait(b.engine, FIG_HANG_US);
    must(status);
}

/* Reads nothing, but first writes the entries that wait. If that fails, some of them still wait. */
static void flush(void) {
    const fig_page_tables *tables = &b.engine->tables;
    failed(fig_engine_read(b.engine, FIG_OPTIONS(fig_span, .name = names[0]), NULL));
    for (uint32_t i = 0; i < tables->waiting_count; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_true(tables->waiting[i].address != tables->waiting[j].address);
}

static void change_anything(void) {
    switch (draw(0, 12)) {
    case 0:
        if (is_waiting()) {
            TWICE(fig_engine_take_back(b.engine));
            b.taken_back++;
        }
        return;
    case 1:
    case 2:
        if (is_waiting()) TWICE(fig_engine_launch(b.engine));
        return;
    case 3:
    case 4:
    case 5: stage(); return;
    case 6: fork_one(); return;
    case 7: flush(); return;
    case 8: write(); return;
    default: set();
    }
}

/* ---- Comparing ----------------------------------------------------------------------------- */

static void check_tables(void) {
    static int32_t seen[SEQUENCES][PAGES];
    for (int t = 0; t < TABLES; t++) {
        const fig_span all = {.size = sizeof all, .name = names[t], .bytes = sizeof seen};
        const uint32_t id = fig_program_find(b.engine->graphs->program, names[t]).id;
        const int32_t *copy = b.engine->tables.mirrors.of[id - 1].order.entries;
        TWICE(fig_engine_read(b.engine, &all, seen));
        assert_memory_equal(seen, b.tables[t], sizeof seen);
        if (copy != NULL) assert_memory_equal(copy, b.tables[t], sizeof seen);
    }
}

/* Lets all steps end, and in half of all cases one more, which carries the entries that wait. */
static void settle_and_check(void) {
    while (is_waiting())
        TWICE(fig_engine_launch(b.engine));
    wait_for_all();
    if (draw(0, 1) > 0) {
        stage();
        while (is_waiting())
            TWICE(fig_engine_launch(b.engine));
        wait_for_all();
    }
    check_tables();
}

static void open_bench(uint64_t seed) {
    memset(&b, 0, sizeof b);
    b.random = fig_random_seed(seed);
    fig_decode_open(&b.decode, &small);
    assert_int_equal(b.decode.spec.sequence_limit, SEQUENCES);
    assert_true(b.decode.pages >= PAGE_LIMIT);
    for (int t = 0; t < TABLES; t++)
        b.memory[t] = fig_place_allocate(sizeof b.tables[t]);
}

static void close_bench(void) {
    assert_true(b.busy > 0 && b.taken_back > 0 && b.forks > 0 && b.torn > 0);
    for (int t = 0; t < TABLES; t++)
        fig_place_free(b.memory[t]);
    fig_decode_close(&b.decode);
}

static void tables_are_right_after_any_changes(void **state) {
    (void)state;
    const fig_engine_options options = fig_place_options();
    open_bench(31);
    for (int run = 0; run < fig_place_cases(40); run++) {
        open_run(&options, 0);
        for (int n = 1; n <= 400; n++) {
            change_anything();
            if (n % 40 == 0) settle_and_check();
        }
        close_run();
    }
    close_bench();
}

static void tables_are_right_whatever_call_fails(void **state) {
    (void)state;
    const fig_engine_options options = fig_place_host_only("the calls that fail are the host's");
    fig_place_hold_host();
    open_bench(32);
    for (int run = 0; run < fig_place_cases(400); run++) {
        open_run(&options, draw(1, CALLS));
        for (int n = 1; n <= 150; n++) {
            change_anything();
            if (n % 50 == 0) settle_and_check();
        }
        close_run();
    }
    assert_true(b.failures > 0);
    close_bench();
    fig_place_release_host();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_right_after_any_changes),
        cmocka_unit_test(tables_are_right_whatever_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
