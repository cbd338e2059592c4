/* test_bench_table.c: tests how a table of figures is printed on screens of several widths and in a
 * pipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/figraph/bench/bench_table.h"

static const fig_bench_column columns[] = {
    {"device", 0, -1},      {"cell", 18, -1},   {"heads", 6, -1},       {"head_dim", 8, 0},
    {"page", 4, 0},         {"layout", 6, -1},  {"kv_dtype", 8, -1},    {"family", 7, -1},
    {"limit_us", 8, 2},     {"chain_us", 9, 2}, {"chain_share", 11, 3}, {"alone_us", 9, 2},
    {"alone_share", 11, 3}, {"of_twin", 7, 3},  {"spread", 6, 3},       {NULL, 0, 0}};

static void add(fig_bench_table *table, const char *cell, const char *heads, double chain_us) {
    fig_bench_table_add(table);
    fig_bench_table_word(table, "device", "cuda");
    fig_bench_table_word(table, "cell", "%s", cell);
    fig_bench_table_word(table, "heads", "%s", heads);
    fig_bench_table_number(table, "head_dim", 128);
    fig_bench_table_number(table, "page", 16);
    fig_bench_table_word(table, "layout", "nhd");
    fig_bench_table_word(table, "kv_dtype", "bf16");
    fig_bench_table_word(table, "family", "1x64");
    fig_bench_table_number(table, "limit_us", 114.44);
    fig_bench_table_number(table, "chain_us", chain_us);
    fig_bench_table_number(table, "chain_share", 114.44 / chain_us);
    fig_bench_table_number(table, "alone_us", chain_us + 3);
    fig_bench_table_number(table, "alone_share", 114.44 / (chain_us + 3));
    fig_bench_table_number(table, "spread", 0.002);
}

/* Prints the table with COLUMNS set to `told`, or unset if that is NULL. */
static void print(const fig_bench_table *table, const char *told, char *text, size_t bytes) {
    FILE *file = tmpfile();
    assert_non_null(file);
    if (told != NULL) setenv("COLUMNS", told, 1);
    if (told == NULL) unsetenv("COLUMNS");
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    fig_bench_table_print(table);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
    rewind(file);
    const size_t count = fread(text, 1, bytes - 1, file);
    text[count] = '\0';
    fclose(file);
}

static size_t widest_of(const char *text) {
    size_t most = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > most) most = strcspn(line, "\n");
    return most;
}

static void has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in\n%s", part, text);
}

static void a_table_is_whole_where_no_width_is_given(void **state) {
    (void)state;
    char text[4096], wide[4096];
    fig_bench_table table;
    assert_int_equal(fig_bench_table_open(&table, columns, 2), 0);
    add(&table, "2x32768+62x1024", "32/8", 127.04);
    add(&table, "8x2048", "32/8", 18.5);
    print(&table, NULL, text, sizeof text);
    has(text, " cell               heads  head_dim page layout kv_dtype family  limit_us  chain_us "
              "chain_share  alone_us alone_share of_twin spread\n");
    has(text, " 2x32768+62x1024    32/8        128   16 nhd    bf16     1x64      114.44    127.04 "
              "      0.901    130.04       0.880       -  0.002\n");
    print(&table, "132", wide, sizeof wide);
    assert_string_equal(text, wide);
    fig_bench_table_close(&table);
}

static void a_table_that_does_not_fit_is_folded(void **state) {
    (void)state;
    char text[4096];
    fig_bench_table table;
    assert_int_equal(fig_bench_table_open(&table, columns, 2), 0);
    add(&table, "2x32768+62x1024", "32/8", 127.04);
    add(&table, "8x2048", "32/8", 18.5);
    print(&table, "80", text, sizeof text);
    assert_string_equal(text,
                        "in all rows: heads 32/8, head_dim 128, page 16, layout nhd, kv_dtype "
                        "bf16,\n"
                        "family 1x64\n"
                        "                  limit  chain chain  alone alone       \n"
                        " cell                us     us share     us share spread\n"
                        " 2x32768+62x1024 114.44 127.04 0.901 130.04 0.880  0.002\n"
                        " 8x2048          114.44  18.50 6.186  21.50 5.323  0.002\n");
    fig_bench_table_close(&table);
}

/* Tests the greatest number of columns that can differ within one call, on the narrowest supported
 * screen. */
static void differences_stay_with_their_rows(void **state) {
    (void)state;
    char text[4096];
    fig_bench_table table;
    assert_int_equal(fig_bench_table_open(&table, columns, 2), 0);
    add(&table, "2x32768+62x1024", "32/8", 1934.04);
    add(&table, "8x2048", "64/8", 1018.5);
    fig_bench_table_word(&table, "kv_dtype", "e4m3");
    fig_bench_table_word(&table, "family", "4x128");
    fig_bench_table_number(&table, "of_twin", 0.991);
    print(&table, "80", text, sizeof text);
    assert_true(widest_of(text) <= 80);
    has(text, "in all rows: head_dim 128, page 16, layout nhd\n");
    has(text, "left out, for want of columns: spread\n");
    has(text, " 8x2048          64/8  e4m3  4x128 ");
    has(text, " 0.991\n");
    fig_bench_table_close(&table);
}

/* A table of one row keeps the row's name and figures. */
static void one_row_is_a_table_too(void **state) {
    (void)state;
    char text[4096];
    fig_bench_table table;
    assert_int_equal(fig_bench_table_open(&table, columns, 1), 0);
    add(&table, "8x2048", "32/8", 18.5);
    print(&table, "80", text, sizeof text);
    has(text, " 8x2048 114.44 18.50 6.186 21.50 5.323  0.002\n");
    fig_bench_table_close(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_whole_where_no_width_is_given),
        cmocka_unit_test(a_table_that_does_not_fit_is_folded),
        cmocka_unit_test(differences_stay_with_their_rows),
        cmocka_unit_test(one_row_is_a_table_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
