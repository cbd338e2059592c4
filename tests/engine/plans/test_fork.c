/* test_fork.c: tests that a fork gives a sequence the whole pages of another one, and that the
 * engine refuses forks of entries that it does not know.
 *
 * The test keeps its own copy of the page table, and compares the device's table with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "include/figraph_unstable.h"
#include "tests/support/gate.h"
#include "tests/support/kernels/decode.h"
#include "tests/support/place.h"

enum { ROWS = 6, SEQUENCES = 9, KV_LIMIT = 512, PAGE = 4, PAGES = KV_LIMIT / PAGE };

static const fig_decode_options small = {.dtype = FIG_F32,
                                         .layers = 2,
                                         .page_size = PAGE,
                                         .batch_limit = ROWS,
                                         .kv_limit = KV_LIMIT,
                                         .window = 40,
                                         .window_layers = 2};
static const char *const names[] = {"page_table", "page_table.window"};

typedef struct bench {
    fig_decode decode;
    fig_engine *engine;
    fig_random random;
    int32_t tables[2][SEQUENCES][PAGES];
    int32_t known[2][SEQUENCES]; /* entries up to the last one that was set */
} bench;

static void must(fig_status status) {
    if (status != FIG_OK) fail_msg("%s", fig_message());
}

/* Opens an engine whose tables are its own, and hold zeros. */
static bench *open_bench(void) {
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->random = fig_random_seed(41);
    fig_decode_open(&b->decode, &small);
    must(fig_place_open(&b->engine, b->decode.graphs));
    fig_decode_bind(&b->decode, b->engine);
    assert_int_equal(b->decode.spec.sequence_limit, SEQUENCES);
    for (int t = 0; t < 2; t++) {
        must(fig_engine_bind(b->engine, FIG_OPTIONS(fig_binding, .name = names[t])));
        memset(b->tables[t], 0, sizeof b->tables[t]);
    }
    return b;
}

static void close_bench(bench *b) {
    fig_engine_close(b->engine);
    fig_decode_close(&b->decode);
    free(b);
}

static void check_tables(bench *b) {
    static int32_t seen[SEQUENCES][PAGES];
    for (int t = 0; t < 2; t++) {
        const fig_span all = {.size = sizeof all, .name = names[t], .bytes = sizeof seen};
        must(fig_engine_read(b->engine, &all, seen));
        assert_memory_equal(seen, b->tables[t], sizeof seen);
    }
}

static void set(bench *b, int t, int32_t sequence, int32_t first, int32_t count) {
    int32_t *entries = &b->tables[t][sequence][first];
    for (int32_t i = 0; i < count; i++)
        entries[i] = fig_random_range(&b->random, 0, b->decode.pages - 1);
    must(fig_engine_set_pages(b->engine,
                              FIG_OPTIONS(fig_pages, .sequence = sequence, .first = first,
                                          .count = count, .pages = entries, .table = names[t])));
    if (first + count > b->known[t][sequence]) b->known[t][sequence] = first + count;
}

/* Sets the first entries of a sequence in both tables. */
static void set_both(bench *b, int32_t sequence, int32_t count) {
    set(b, 0, sequence, 0, count);
    set(b, 1, sequence, 0, count);
}

static fig_status try_fork(bench *b, int32_t source, int32_t target, int32_t length) {
    return fig_engine_fork(
        b->engine, FIG_OPTIONS(fig_fork, .source = source, .target = target, .length = length));
}

static void fork_table(bench *b, int t, const fig_fork *fork) {
    const int32_t count = fork->length / PAGE;
    memcpy(b->tables[t][fork->target], b->tables[t][fork->source], (size_t)count * 4);
    if (count > b->known[t][fork->target]) b->known[t][fork->target] = count;
}

static void fork_both(bench *b, int32_t source, int32_t target, int32_t length) {
    const fig_fork fork = {.source = source, .target = target, .length = length};
    must(try_fork(b, source, target, length));
    fork_table(b, 0, &fork);
    fork_table(b, 1, &fork);
}

static void expect(fig_status seen, fig_status status, const char *sentence) {
    assert_int_equal(seen, status);
    assert_string_equal(fig_message(), sentence);
}

static void the_whole_pages_of_a_length_are_copied(void **state) {
    (void)state;
    bench *b = open_bench();
    set_both(b, 0, 40);
    set_both(b, 1, 100);
    fork_both(b, 0, 2, 3);              /* no page is whole */
    fork_both(b, 0, 3, 10 * PAGE);      /* in the next plan's slot */
    fork_both(b, 1, 4, 99 * PAGE + 3);  /* ahead of it */
    fork_both(b, 4, 0, 50 * PAGE);      /* of a fork, over older entries */
    fork_both(b, 1, 5, 100 * PAGE + 3); /* the next token has no page, and a fork needs none */
    must(fig_engine_fork(b->engine, FIG_OPTIONS(fig_fork, .source = 5, .target = 6, .length = 30,
                                                .table = "page_table.window")));
    fork_table(b, 1, &(fig_fork){.source = 5, .target = 6, .length = 30});
    check_tables(b);
    close_bench(b);
}

static void a_fork_of_entries_that_were_never_set_is_refused(void **state) {
    (void)state;
    bench *b = open_bench();
    set_both(b, 0, 10);
    expect(try_fork(b, 0, 1, 11 * PAGE), FIG_INVALID,
           "fork: length is 44, but entry 10 of sequence 0 was never set, or the call that set it "
           "failed");
    expect(try_fork(b, 2, 1, PAGE), FIG_INVALID,
           "fork: length is 4, but entry 0 of sequence 2 was never set, or the call that set it "
           "failed");
    set(b, 0, 0, 10, 1); /* one table has the page, the other has not: neither changes */
    assert_int_equal(try_fork(b, 0, 1, 11 * PAGE), FIG_INVALID);
    check_tables(b);
    assert_int_equal(fig_engine_fork(b->engine, FIG_OPTIONS(fig_fork, .table = "nothing")),
                     FIG_INVALID);
    assert_string_equal(fig_message(), "fork: the program has no page table called nothing");
    close_bench(b);
}

/* Entries before the last one that was set hold page 0 until they are set. */
static void an_entry_before_the_last_one_that_was_set_counts_as_page_0(void **state) {
    (void)state;
    bench *b = open_bench();
    set(b, 0, 0, 5, 1);
    set(b, 1, 0, 5, 1);
    fork_both(b, 0, 1, 6 * PAGE);
    assert_int_equal(try_fork(b, 0, 1, 7 * PAGE), FIG_INVALID);
    check_tables(b);
    close_bench(b);
}

static void a_write_sets_no_entries_but_its_own(void **state) {
    (void)state;
    bench *b = open_bench();
    const int32_t page = b->tables[0][3][70] = 5;
    const fig_fork fork = {
        .size = sizeof fork, .source = 3, .target = 4, .length = 71 * PAGE, .table = names[0]};
    fig_fork longer = fork;
    longer.length += PAGE;
    must(fig_engine_write(b->engine,
                          FIG_OPTIONS(fig_span, .name = names[0],
                                      .offset = (3 * PAGES + 70) * sizeof page,
                                      .bytes = sizeof page),
                          &page));
    expect(fig_engine_fork(b->engine, &longer), FIG_INVALID,
           "fork: length is 288, but entry 71 of sequence 3 was never set, or the call that set it "
           "failed");
    must(fig_engine_fork(b->engine, &fork));
    fork_table(b, 0, &fork);
    check_tables(b);
    close_bench(b);
}

static fig_status refuse_copy(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                              size_t bytes) {
    (void)dev, (void)stream, (void)to, (void)from, (void)bytes;
    return FIG_DRIVER;
}

/* A write of three of an entry's bytes fails. The engine then does not know the fourth either. */
static void an_entry_of_a_failed_write_is_unknown_until_it_is_written_whole(void **state) {
    (void)state;
    bench *b = open_bench();
    const fig_device_api *real = b->engine->api;
    fig_device_api refusing = *real;
    fig_span span = {.size = sizeof span, .name = names[0], .offset = 4 + 1, .bytes = 3};
    int32_t *entry = &b->tables[0][0][1];
    set_both(b, 0, 3);
    check_tables(b); /* so that no entry waits */
    refusing.copy_in = refuse_copy;
    b->engine->api = b->engine->bindings.api = &refusing;
    assert_int_equal(fig_engine_write(b->engine, &span, (uint8_t *)entry + 1), FIG_DRIVER);
    b->engine->api = b->engine->bindings.api = real;
    must(fig_engine_write(b->engine, &span, (uint8_t *)entry + 1));
    expect(try_fork(b, 0, 1, 3 * PAGE), FIG_INVALID,
           "fork: length is 12, but entry 1 of sequence 0 was never set, or the call that set it "
           "failed");
    span.offset = 4;
    span.bytes = 4;
    must(fig_engine_write(b->engine, &span, entry));
    fork_both(b, 0, 1, 3 * PAGE);
    check_tables(b);
    close_bench(b);
}

static void a_fork_waits_for_staged_steps(void **state) {
    (void)state;
    static const int32_t lengths[ROWS] = {1, 0, 1, 1, 0, 1};
    bench *b = open_bench();
    set_both(b, 0, 10);
    must(fig_engine_stage(b->engine, FIG_OPTIONS(fig_step, .rows = ROWS, .kv_lengths = lengths)));
    expect(try_fork(b, 0, 1, PAGE), FIG_ORDER,
           "fork: launches still due from earlier steps: 1; launch them or take them back first");
    must(fig_engine_launch(b->engine));
    fork_both(b, 0, 1, PAGE);
    check_tables(b);
    close_bench(b);
}

static void a_table_that_others_may_change_is_refused(void **state) {
    (void)state;
    bench *b = open_bench();
    void *address;
    int32_t *own = fig_place_allocate(sizeof b->tables[0]);
    fig_binding binding = {
        .size = sizeof binding, .name = names[0], .address = own, .bytes = sizeof b->tables[0]};
    memset(own, 0, sizeof b->tables[0]);
    set_both(b, 0, 10);
    must(fig_engine_bind(b->engine, &binding));
    expect(try_fork(b, 0, 1, PAGE), FIG_UNSUPPORTED,
           "fork: page table page_table: you bound it to memory of yours");
    set(b, 1, 0, 0, 10);
    must(fig_engine_fork(b->engine,
                         FIG_OPTIONS(fig_fork, .target = 1, .length = PAGE, .table = names[1])));
    /* New memory holds zeros instead of the earlier entries. */
    must(fig_engine_bind(b->engine, FIG_OPTIONS(fig_binding, .name = names[0])));
    assert_int_equal(try_fork(b, 0, 1, PAGE), FIG_INVALID);
    set(b, 0, 0, 0, 10);
    must(try_fork(b, 0, 1, PAGE));
    must(fig_engine_address(b->engine, names[0], &address));
    expect(try_fork(b, 0, 1, PAGE), FIG_UNSUPPORTED,
           "fork: page table page_table: you have its address and may write there");
    set(b, 0, 0, 0, 10);
    assert_int_equal(try_fork(b, 0, 1, PAGE), FIG_UNSUPPORTED);
    fig_place_free(own);
    close_bench(b);
}

/* Entries that fig_engine_write() sets count as well, whatever bytes it begins and ends with. */
static void written_entries_are_known(void **state) {
    (void)state;
    bench *b = open_bench();
    static int32_t bytes[2 * PAGES];
    set_both(b, 0, 3);
    for (int turn = 0; turn < 40; turn++) {
        const int t = turn % 2;
        uint8_t *table = (uint8_t *)b->tables[t];
        const int32_t offset = fig_random_range(&b->random, 0, (int32_t)sizeof b->tables[t] - 900);
        const int32_t count = fig_random_range(&b->random, 0, 900);
        for (int32_t i = 0; i < 2 * PAGES; i++)
            bytes[i] = 0x01010101 * fig_random_range(&b->random, 0, 1);
        must(fig_engine_write(b->engine,
                              FIG_OPTIONS(fig_span, .name = names[t], .offset = (uint64_t)offset,
                                          .bytes = (uint64_t)count),
                              bytes));
        memcpy(table + offset, bytes, (size_t)count);
    }
    check_tables(b);
    for (uint32_t n = 0, t = 0; n < b->engine->program->tensor_count; n++) {
        const fig_page_order *order = &b->engine->tables.mirrors.of[n].order;
        if (order->entries == NULL) continue;
        const int is_window =
            strcmp(fig_program_view_tensor_name(b->engine->program, n + 1), names[1]) == 0;
        assert_memory_equal(order->entries, b->tables[is_window], sizeof b->tables[0]);
        assert_true(t++ < 2);
    }
    close_bench(b);
}

static void tables_are_right_after_anything(void **state) {
    (void)state;
    bench *b = open_bench();
    for (int n = 0; n < fig_place_cases(2000); n++) {
        const int32_t s = fig_random_range(&b->random, 0, SEQUENCES - 1);
        const int32_t first = fig_random_range(
            &b->random, 0, b->known[0][s] < PAGES - 1 ? b->known[0][s] : PAGES - 1);
        const int32_t most = fig_random_range(&b->random, 0, 3) == 0 ? PAGES - first : 3;
        const int32_t count =
            fig_random_range(&b->random, 1, most < PAGES - first ? most : PAGES - first);
        const int32_t source = fig_random_range(&b->random, 0, SEQUENCES - 1);
        if (fig_random_range(&b->random, 0, 2) > 0 || source == s) {
            set(b, 0, s, first, count);
            set(b, 1, s, first, count);
        } else {
            fork_both(b, source, s, fig_random_range(&b->random, 0, b->known[0][source] * PAGE));
        }
        if (n % 50 == 0) check_tables(b);
    }
    check_tables(b);
    close_bench(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_pages_of_a_length_are_copied),
        cmocka_unit_test(a_fork_of_entries_that_were_never_set_is_refused),
        cmocka_unit_test(an_entry_before_the_last_one_that_was_set_counts_as_page_0),
        cmocka_unit_test(a_write_sets_no_entries_but_its_own),
        cmocka_unit_test(an_entry_of_a_failed_write_is_unknown_until_it_is_written_whole),
        cmocka_unit_test(a_fork_waits_for_staged_steps),
        cmocka_unit_test(a_table_that_others_may_change_is_refused),
        cmocka_unit_test(written_entries_are_known),
        cmocka_unit_test(tables_are_right_after_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
