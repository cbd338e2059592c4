/* test_ledger.c: tests what a grid's ledger keeps, and which lines it accepts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/grid/ledger.h"

static char path[] = "/tmp/figraph_ledger_XXXXXX";
static const ledger_block passed = {.count = BLOCK_CASES};
static const ledger_block failed = {.first = BLOCK_CASES, .count = BLOCK_CASES, .failed = 1};

static int write_ledger(void **state) {
    (void)state;
    ledger l;
    ledger_block block = passed;
    grid_report report = {.truth_s = 0};
    remove(path);
    if (ledger_open(&l, path, 1) != 0) return 1;
    grid_measured(&report, "attention, kv e4m3", 0.25);
    ledger_merge(&block, &report);
    ledger_add(&l, &block);
    ledger_add(&l, &failed);
    ledger_close(&l);
    return 0;
}

static void a_reopened_ledger_knows_the_passed_blocks(void **state) {
    (void)state;
    ledger l;
    assert_int_equal(ledger_open(&l, path, 1), 0);
    assert_int_equal(ledger_has(&l, &passed), 1);
    assert_int_equal(ledger_has(&l, &failed), 0);
    assert_int_equal(l.block_count, 1);
    assert_string_equal(l.blocks[0].measures[0].name, "attention, kv e4m3");
    assert_true(l.blocks[0].measures[0].worst == 0.25);
    ledger_close(&l);
}

/* Overwrites a few bytes at an offset. A negative offset counts from the end. */
static void overwrite(long offset, const char *text) {
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_ledger_of_another_grid_is_thrown_away(void **state) {
    (void)state;
    ledger l;
    overwrite((long)strlen("grid "), "0123456789abcdef");
    assert_int_equal(ledger_open(&l, path, 1), 0);
    assert_int_equal(l.block_count, 0);
    assert_int_equal(ledger_has(&l, &passed), 0);
    ledger_close(&l);
}

static void a_line_without_an_end_is_dropped(void **state) {
    (void)state;
    ledger l;
    assert_int_equal(truncate(path, (off_t)strlen("grid 0123456789abcdef\nblock 0 0 8 0 0.0")), 0);
    assert_int_equal(ledger_open(&l, path, 1), 0);
    assert_int_equal(l.block_count, 0);
    ledger_close(&l);
}

/* Blocks are numbered through all sections, so even short sections get their part of the share. */
static void a_share_has_every_nth_block(void **state) {
    (void)state;
    ledger l;
    int64_t blocks = 0;
    assert_int_equal(ledger_open(&l, path, 7), 0);
    for (int32_t i = 0; i < grid_section_count(); i++) {
        const int64_t cases = grid_section_cases(grid_section_at(i));
        for (int64_t first = 0; first < cases; first += BLOCK_CASES, blocks++)
            assert_int_equal(ledger_wants(&l, &(ledger_block){.section = i, .first = first}),
                             blocks % 7 == 0);
    }
    ledger_close(&l);
}

static int forget(void **state) {
    (void)state;
    return remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_reopened_ledger_knows_the_passed_blocks, write_ledger),
        cmocka_unit_test_setup(a_ledger_of_another_grid_is_thrown_away, write_ledger),
        cmocka_unit_test_setup(a_line_without_an_end_is_dropped, write_ledger),
        cmocka_unit_test_setup(a_share_has_every_nth_block, write_ledger),
    };
    const int file = mkstemp(path);
    if (file < 0) return 1;
    close(file);
    return cmocka_run_group_tests(tests, NULL, forget);
}
