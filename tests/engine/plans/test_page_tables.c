/* test_page_tables.c: compares entries of page tables on the device with the test's own copy of the
 * tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/driver/cuda_bench.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/gate.h"
#include "tests/support/place.h"

enum { ROWS = 6, SEQUENCES = 9, KV_LIMIT = 512, PAGE = 4, PAGES = KV_LIMIT / PAGE, INLINE = 16 };

static const fig_decode_options small = {.dtype = FIG_F32,
                                         .layers = 2,
                                         .page_size = PAGE,
                                         .batch_limit = ROWS,
                                         .kv_limit = KV_LIMIT,
                                         .window = 40,
                                         .window_layers = 2};

/* An engine, and the expected contents of its tables. */
typedef struct bench {
    fig_decode decode;
    fig_engine *engine;
    fig_random random;
    int32_t all[SEQUENCES][PAGES], window[SEQUENCES][PAGES];
} bench;

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

static void read_table(bench *b, const char *name, void *to, size_t bytes) {
    must(fig_engine_read(b->engine, FIG_OPTIONS(fig_span, .name = name, .bytes = bytes), to));
}

static bench *open_bench(void) {
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->random = fig_random_seed(31);
    fig_decode_open(&b->decode, &small);
    must(fig_place_open(&b->engine, b->decode.graphs));
    fig_decode_bind(&b->decode, b->engine);
    assert_int_equal(b->decode.spec.sequence_limit, SEQUENCES);
    read_table(b, "page_table", b->all, sizeof b->all);
    read_table(b, "page_table.window", b->window, sizeof b->window);
    return b;
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_decode_close(&b->decode);
    free(b);
}

static void check_tables(bench *b) {
    int32_t seen[SEQUENCES][PAGES];
    read_table(b, "page_table", seen, sizeof seen);
    assert_memory_equal(seen, b->all, sizeof seen);
    read_table(b, "page_table.window", seen, sizeof seen);
    assert_memory_equal(seen, b->window, sizeof seen);
}

/* Sets entries of a sequence to random pages, in one table or in both. */
static void set(bench *b, int32_t sequence, int32_t first, int32_t count, const char *table) {
    int32_t pages[PAGES];
    for (int32_t i = 0; i < count; i++)
        pages[i] = fig_random_range(&b->random, 0, b->decode.pages - 1);
    must(fig_engine_set_pages(b->engine,
                              FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                          .count = count, .pages = pages, .table = table)));
    const size_t bytes = (size_t)count * sizeof *pages;
    if (table == NULL || strcmp(table, "page_table") == 0)
        memcpy(&b->all[sequence][first], pages, bytes);
    if (table == NULL || strcmp(table, "page_table") != 0)
        memcpy(&b->window[sequence][first], pages, bytes);
}

static void stage(bench *b) {
    static const int32_t lengths[ROWS] = {1, 0, 1, 1, 0, 1};
    must(fig_engine_stage(b->engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)));
}

static void launch(bench *b) {
    must(fig_engine_launch(b->engine));
}

static void wait_for_all(bench *b) {
    must(fig_engine_wait(b->engine, FIG_HANG_US));
}

/* ---- Whether entries travel with a plan or ahead of it -------------------------------------- */

static void a_few_entries_travel_with_the_next_plan(void **state) {
    (void)state;
    bench *b = open_bench();
    stage(b), launch(b), stage(b), launch(b);
    const fig_engine_stats before = fig_gate_stats(b->engine);
    stage(b), launch(b);
    const fig_engine_stats alone = fig_gate_stats(b->engine);
    set(b, 3, 9, 5, NULL);
    set(b, 2, 100, INLINE, "page_table");
    stage(b), launch(b);
    const fig_engine_stats carried = fig_gate_stats(b->engine);
    assert_int_equal(carried.page_bytes, before.page_bytes);
    assert_int_equal(carried.uploaded_bytes - alone.uploaded_bytes,
                     alone.uploaded_bytes - before.uploaded_bytes +
                         (2 * 5 + INLINE) * (int64_t)sizeof(fig_plan_page));
    assert_int_equal(b->engine->tables.waiting_count, 0);
    check_tables(b);
    close_bench(b);
}

static void many_entries_go_ahead_of_the_plans(void **state) {
    (void)state;
    bench *b = open_bench();
    const fig_engine_stats before = fig_gate_stats(b->engine);
    set(b, 1, 0, PAGES, NULL);
    set(b, 4, 7, INLINE + 1, "page_table.window");
    assert_int_equal(b->engine->tables.waiting_count, 0);
    assert_int_equal(fig_gate_stats(b->engine).page_bytes - before.page_bytes,
                     (2 * PAGES + INLINE + 1) * 4);
    check_tables(b);
    close_bench(b);
}

static void an_entry_waits_once_with_its_newest_page(void **state) {
    (void)state;
    bench *b = open_bench();
    for (int i = 0; i < 200; i++)
        set(b, 0, 3, 2, "page_table");
    assert_int_equal(b->engine->tables.waiting_count, 2);
    set(b, 0, 0, 64, "page_table"); /* a bulk copy, which goes ahead of the waiting entries */
    assert_int_equal(b->engine->tables.waiting_count, 2);
    stage(b), launch(b);
    check_tables(b);
    close_bench(b);
}

static void entries_beyond_the_room_of_a_plan_are_not_lost(void **state) {
    (void)state;
    bench *b = open_bench();
    for (int32_t i = 0; i < PAGES; i++)
        set(b, i % ROWS, i, 1, NULL);
    assert_true(fig_page_tables_fit(&b->engine->tables));
    stage(b), launch(b);
    check_tables(b);
    close_bench(b);
}

/* ---- Entries that wait beside staged plans ------------------------------------------------- */

static void entries_sent_ahead_are_not_undone_by_an_earlier_plan(void **state) {
    (void)state;
    bench *b = open_bench();
    set(b, 5, 20, 3, NULL);
    stage(b);
    set(b, 5, 0, PAGES, NULL);
    launch(b), stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

static void a_read_does_not_lose_what_a_staged_plan_would_undo(void **state) {
    (void)state;
    bench *b = open_bench();
    set(b, 5, 20, 3, NULL);
    stage(b);
    set(b, 5, 20, 3, NULL);
    check_tables(b);
    launch(b), stage(b), launch(b);
    check_tables(b);
    close_bench(b);
}

static const fig_device_api *real;
static fig_device_api failing;
static int32_t copies; /* up to and with the one that fails */

static fig_status fail_a_copy(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                              size_t bytes) {
    if (--copies == 0) return FIG_DRIVER;
    return real->copy_in(dev, stream, to, from, bytes);
}

static void let_copy_fail(bench *b, int32_t number) {
    real = b->engine->api;
    failing = *real;
    failing.copy_in = fail_a_copy;
    copies = number;
    b->engine->api = b->engine->bindings.api = &failing;
}

static void let_copies_pass(bench *b) {
    b->engine->api = b->engine->bindings.api = real;
}

/* Three entries wait, and a staged plan carries an older page for the second one. */
static void an_entry_waits_once_if_writing_the_waiting_entries_fails(void **state) {
    (void)state;
    static const uint32_t waiting[] = {3, 2, 2};
    const fig_span nothing = {.size = sizeof nothing, .name = "page_table"};
    for (int32_t n = 1; n <= 3; n++) {
        bench *b = open_bench();
        set(b, 7, 0, 1, "page_table");
        stage(b);
        for (int32_t s = 6; s <= 8; s++)
            set(b, s, 0, 1, "page_table");
        let_copy_fail(b, n);
        assert_int_equal(fig_engine_read(b->engine, &nothing, NULL), FIG_DRIVER);
        let_copies_pass(b);
        assert_int_equal(b->engine->tables.waiting_count, waiting[n - 1]);
        set(b, 7, 0, 1, "page_table");
        launch(b), stage(b), launch(b);
        wait_for_all(b);
        check_tables(b);
        close_bench(b);
    }
}

static void pages_of_a_plan_that_is_taken_back_go_with_the_next(void **state) {
    (void)state;
    bench *b = open_bench();
    set(b, 2, 11, 4, NULL);
    stage(b);
    set(b, 2, 12, 1, NULL); /* a newer page than the one that comes back with the plan */
    must(fig_engine_take_back(b->engine));
    assert_int_equal(b->engine->tables.waiting_count, 8);
    stage(b), launch(b);
    check_tables(b);
    close_bench(b);
}

static void entries_of_several_plans_that_are_taken_back_return(void **state) {
    (void)state;
    bench *b = open_bench();
    const int32_t limit = (int32_t)b->engine->tables.slot_limit;
    for (int n = 0; n < 3; n++) {
        for (int32_t i = 0; i < limit; i++)
            set(b, (n * limit + i) / PAGES, (n * limit + i) % PAGES, 1, "page_table");
        stage(b);
    }
    for (int n = 0; n < 3; n++)
        must(fig_engine_take_back(b->engine));
    assert_int_equal(b->engine->tables.waiting_count, 3 * limit);
    stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

/* Two staged plans carry older pages for more entries than one plan can carry. They must be
 * launched before the next step can be staged. */
static void more_changed_entries_than_a_plan_carries_wait_for_launches(void **state) {
    (void)state;
    bench *b = open_bench();
    const int32_t limit = (int32_t)b->engine->tables.slot_limit;
    static const int32_t lengths[ROWS] = {1, 0, 1, 1, 0, 1};
    const fig_step step = {.size = sizeof step, .rows = ROWS, .kv_lengths = lengths};
    for (int n = 0; n < 2; n++) {
        for (int32_t i = 0; i < limit; i++)
            set(b, (n * limit + i) / PAGES, (n * limit + i) % PAGES, 1, "page_table");
        stage(b);
    }
    for (int32_t s = 0; s <= 2 * limit / PAGES && s < SEQUENCES; s++)
        set(b, s, 0, PAGES, NULL);
    assert_int_equal(fig_engine_stage(b->engine, &step), FIG_BUSY);
    assert_non_null(strstr(fig_message(), "launch the staged steps first"));
    launch(b), launch(b);
    stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

/* ---- Plans that arrive damaged ------------------------------------------------------------- */

static void damage(bench *b, uint64_t number) {
    const fig_ring *ring = &b->engine->ring;
    ring->slots[(number - 1) % ring->slot_count * ring->slot_bytes + sizeof(fig_plan_head)] ^= 1;
}

static void a_damaged_plan_loses_no_entry(void **state) {
    (void)state;
    /* 1: newer pages are copied ahead before the plan is launched */
    for (int ahead = 0; ahead < 2; ahead++) {
        bench *b = open_bench();
        b->engine->check_plans = 1;
        set(b, 3, 5, 2, NULL);
        set(b, 4, 1, 1, "page_table");
        stage(b);
        damage(b, b->engine->ring.next - 1);
        if (ahead) set(b, 3, 0, PAGES, NULL);
        launch(b);
        assert_int_equal(fig_engine_wait(b->engine, -1), FIG_DRIVER);
        assert_string_equal(fig_message(),
                            "1 plan arrived damaged, and 1 step ran no rows for it; the next plan "
                            "carries their page table entries again");
        if (ahead) set(b, 4, 0, PAGES, "page_table");
        stage(b), launch(b);
        wait_for_all(b);
        check_tables(b);
        close_bench(b);
    }
}

/* With a full ring in flight, the engine does not know which plan was damaged. */
static void of_several_plans_the_damaged_one_loses_no_entry(void **state) {
    (void)state;
    for (int bad = 0; bad < 4; bad++) {
        bench *b = open_bench();
        b->engine->check_plans = 1;
        for (int n = 0; n < 4; n++) {
            set(b, n, 3, 2, NULL);
            set(b, 5, 7, 1, NULL); /* with a different page each time */
            stage(b);
        }
        damage(b, b->engine->ring.next - 4 + (uint64_t)bad);
        for (int n = 0; n < 4; n++)
            launch(b);
        assert_int_equal(fig_engine_wait(b->engine, -1), FIG_DRIVER);
        check_tables(b);
        close_bench(b);
    }
}

/* ---- Entries that fig_engine_write() changes ----------------------------------------------- */

/* Sequence 2 has these entries in a plan. Steps read only entry 0, so these may be any numbers. */
enum { WRITTEN = 11, WRITTEN_COUNT = 3 };

static void set_written(bench *b) {
    set(b, 2, WRITTEN, WRITTEN_COUNT, "page_table");
}

/* Changes the second half of the first entry, the whole of the second, and a byte of the third. */
static void write(bench *b) {
    enum { OFFSET = (2 * PAGES + WRITTEN) * 4 + 2, BYTES = 7 };
    uint8_t *bytes = (uint8_t *)b->all + OFFSET;
    for (int i = 0; i < BYTES; i++)
        bytes[i] ^= (uint8_t)fig_random_range(&b->random, 1, 255);
    must(fig_engine_write(
        b->engine, FIG_OPTIONS(fig_span, .name = "page_table", .offset = OFFSET, .bytes = BYTES),
        bytes));
}

static void a_write_is_not_undone_by_a_staged_plan(void **state) {
    (void)state;
    bench *b = open_bench();
    set_written(b), stage(b);
    set(b, 2, WRITTEN, 1, "page_table"), stage(b);
    write(b);
    check_tables(b);
    launch(b), launch(b), stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

static void a_write_is_not_undone_by_a_plan_that_is_taken_back(void **state) {
    (void)state;
    bench *b = open_bench();
    set_written(b), stage(b);
    write(b);
    must(fig_engine_take_back(b->engine));
    check_tables(b);
    stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

static void a_write_is_not_undone_after_a_damaged_plan(void **state) {
    (void)state;
    bench *b = open_bench();
    b->engine->check_plans = 1;
    set_written(b), stage(b);
    damage(b, b->engine->ring.next - 1);
    write(b);
    launch(b);
    assert_int_equal(fig_engine_wait(b->engine, FIG_HANG_US), FIG_DRIVER);
    stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

/* A plan that the device has fetched is not launched to the end, and its record is older than the
 * entries that wait beside it. */
static void a_write_is_not_undone_by_what_waits_beside_a_horizon(void **state) {
    (void)state;
    static const int32_t lengths[ROWS] = {1, 0, 1, 1, 0, 1};
    bench *b = open_bench();
    set_written(b);
    must(fig_engine_stage(
        b->engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths, .horizon = 2)));
    launch(b);
    wait_for_all(b);
    check_tables(b);
    set_written(b);
    write(b);
    launch(b), stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

/* No more entries can wait than plans carry. */
static void a_write_to_all_entries_of_a_full_ring_is_not_undone(void **state) {
    (void)state;
    bench *b = open_bench();
    const fig_page_tables *tables = &b->engine->tables;
    const int32_t limit = (int32_t)tables->slot_limit, slots = (int32_t)b->engine->ring.slot_count;
    assert_true(slots * limit <= SEQUENCES * PAGES);
    for (int32_t i = 0; i < slots * limit; i++) {
        set(b, i / PAGES, i % PAGES, 1, "page_table");
        if (i % limit == limit - 1) stage(b);
    }
    memset(b->all, 0, sizeof b->all);
    must(fig_engine_write(
        b->engine, FIG_OPTIONS(fig_span, .name = "page_table", .bytes = sizeof b->all), b->all));
    assert_int_equal(tables->waiting_count, slots * limit);
    for (int32_t i = 0; i < slots; i++)
        launch(b);
    wait_for_all(b);
    stage(b), launch(b);
    check_tables(b);
    close_bench(b);
}

static void a_write_that_fails_changes_no_plan(void **state) {
    (void)state;
    bench *b = open_bench();
    const fig_span one = {
        .size = sizeof one, .name = "page_table", .offset = (2 * PAGES + WRITTEN) * 4, .bytes = 4};
    set_written(b), stage(b);
    let_copy_fail(b, 1);
    assert_int_equal(fig_engine_write(b->engine, &one, &b->all[0][0]), FIG_DRIVER);
    let_copies_pass(b);
    launch(b), stage(b), launch(b);
    wait_for_all(b);
    check_tables(b);
    close_bench(b);
}

/* The engine has not read yet whether the plan that was launched last arrived undamaged. The test
 * leaves out the copy to the device, which would wait for the plan. */
static void a_write_reaches_a_plan_that_may_be_sent_again(void **state) {
    (void)state;
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        bench *b = open_bench();
        void *table;
        must(fig_engine_address(b->engine, "page_table", &table));
        b->engine->check_plans = 1;
        set_written(b), stage(b);
        if (is_damaged) damage(b, b->engine->ring.next - 1);
        launch(b);
        assert_int_equal(fig_engine_wait(b->engine, FIG_HANG_US), is_damaged ? FIG_DRIVER : FIG_OK);
        int32_t *page = &b->all[2][WRITTEN];
        page[0] ^= is_damaged;
        const fig_page_bytes written = {(uint64_t)(uintptr_t)table +
                                            (2 * PAGES + WRITTEN) * sizeof *page,
                                        sizeof *page, (const uint8_t *)page};
        fig_page_tables_write(&b->engine->tables, &written, b->engine->running);
        assert_int_equal(b->engine->tables.waiting_count, 0);
        check_tables(b);
        close_bench(b);
    }
}

static void waiting_entries_are_written_before_a_table_is_rebound(void **state) {
    (void)state;
    bench *b = open_bench();
    int32_t *own = fig_place_allocate(sizeof b->all);
    memcpy(own, b->all, sizeof b->all);
    set(b, 0, 0, 3, "page_table.window");
    set(b, 0, 0, 3, "page_table");
    must(fig_engine_bind(b->engine, FIG_OPTIONS(fig_binding, .name = "page_table", .address = own,
                                                .bytes = sizeof b->all)));
    memcpy(b->all, own, sizeof b->all); /* binding does not change the caller's table */
    set(b, 1, 1, 2, "page_table");
    stage(b), launch(b);
    check_tables(b);
    assert_memory_equal(own, b->all, sizeof b->all);
    close_bench(b);
    fig_place_free(own);
}

/* ---- Memory that copies read --------------------------------------------------------------- */

enum { PIECE = 16, PIECES = FIG_GRAPHS_BULK_BYTES / PIECE, FENCES = 2 };

/* Watches copies out of the engine's page memory. Copies are numbered from 1. When the host has
 * waited for a fence, all copies before that fence have ended. */
static struct {
    const uint8_t *bulk;
    fig_cuda_api driver; /* the driver's own functions */
    uint32_t copies, ended;
    uint32_t last[PIECES]; /* the last copy that read each piece; 0: none */
    fig_cu_event events[FENCES];
    uint32_t before[FENCES]; /* the number of copies before each fence's event */
    /* the number of pieces that were written while a copy may have read them */
    int reused;
    /* the number of waits for the newest copy, which had only just begun */
    int stalls;
} seen;

static fig_cu_result see_copy(fig_cu_address to, fig_cu_address from, size_t bytes,
                              fig_cu_stream stream) {
    const size_t begin = (size_t)(from - (uintptr_t)seen.bulk);
    seen.copies++;
    for (size_t at = begin; at < begin + bytes && at < FIG_GRAPHS_BULK_BYTES; at += PIECE) {
        seen.reused += seen.last[at / PIECE] > seen.ended;
        seen.last[at / PIECE] = seen.copies;
    }
    return seen.driver.MemcpyAsync(to, from, bytes, stream);
}

static fig_cu_result see_fence(fig_cu_event event, fig_cu_stream stream) {
    int i = 0;
    while (i < FENCES - 1 && seen.events[i] != NULL && seen.events[i] != event)
        i++;
    seen.events[i] = event;
    seen.before[i] = seen.copies;
    return seen.driver.EventRecord(event, stream);
}

static fig_cu_result see_pass(fig_cu_event event) {
    for (int i = 0; i < FENCES; i++) {
        if (seen.events[i] != event) continue;
        if (seen.before[i] > seen.ended) seen.ended = seen.before[i];
        seen.stalls += seen.before[i] == seen.copies;
    }
    return seen.driver.EventSynchronize(event);
}

/* The device reads the pages of a call long after the call, when its stream reaches the copy. */
static void pages_are_not_overwritten_while_a_copy_may_read_them(void **state) {
    (void)state;
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->random = fig_random_seed(5);
    fig_decode_open(&b->decode, &small);
    must(fig_engine_open(&b->engine, b->decode.graphs,
                         FIG_OPTIONS(fig_engine_options, .device = FIG_DEVICE_CUDA)));
    fig_decode_bind(&b->decode, b->engine);
    fig_cuda_api *table = fig_cuda_api_table();
    memset(&seen, 0, sizeof seen);
    seen.driver = *table;
    seen.bulk = b->engine->tables.bulk;
    table->MemcpyAsync = see_copy;
    table->EventRecord = see_fence;
    table->EventSynchronize = see_pass;
    for (int i = 0; i < 4 * PIECES * PIECE / (2 * PAGES * 4); i++)
        set(b, i % SEQUENCES, 0, PAGES, NULL);
    *table = seen.driver;
    assert_int_equal(seen.reused, 0);
    assert_int_equal(seen.stalls, 0);
    assert_true(seen.ended > 0);
    close_bench(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_entries_travel_with_the_next_plan),
        cmocka_unit_test(many_entries_go_ahead_of_the_plans),
        cmocka_unit_test(an_entry_waits_once_with_its_newest_page),
        cmocka_unit_test(entries_beyond_the_room_of_a_plan_are_not_lost),
        cmocka_unit_test(entries_sent_ahead_are_not_undone_by_an_earlier_plan),
        cmocka_unit_test(a_read_does_not_lose_what_a_staged_plan_would_undo),
        cmocka_unit_test(an_entry_waits_once_if_writing_the_waiting_entries_fails),
        cmocka_unit_test(pages_of_a_plan_that_is_taken_back_go_with_the_next),
        cmocka_unit_test(entries_of_several_plans_that_are_taken_back_return),
        cmocka_unit_test(more_changed_entries_than_a_plan_carries_wait_for_launches),
        cmocka_unit_test(a_damaged_plan_loses_no_entry),
        cmocka_unit_test(of_several_plans_the_damaged_one_loses_no_entry),
        cmocka_unit_test(a_write_is_not_undone_by_a_staged_plan),
        cmocka_unit_test(a_write_is_not_undone_by_a_plan_that_is_taken_back),
        cmocka_unit_test(a_write_is_not_undone_after_a_damaged_plan),
        cmocka_unit_test(a_write_is_not_undone_by_what_waits_beside_a_horizon),
        cmocka_unit_test(a_write_to_all_entries_of_a_full_ring_is_not_undone),
        cmocka_unit_test(a_write_that_fails_changes_no_plan),
        cmocka_unit_test(a_write_reaches_a_plan_that_may_be_sent_again),
        cmocka_unit_test(waiting_entries_are_written_before_a_table_is_rebound),
        FIG_CUDA_BENCH_TEST(pages_are_not_overwritten_while_a_copy_may_read_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
