/* test_print.c: tests that JSON is valid for any input, and that text stays within its columns. */
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/figraph/inspect/print.h"
#include "tests/support/random.h"
#include "tests/support/files/sink.h"

static fig_print print_to(fig_sink *s) {
    memset(s, 0, sizeof *s);
    return (fig_print){.write = fig_sink_take, .user = s, .columns = 80};
}

/* ---- JSON */

static void any_bytes_make_a_valid_string(void **state) {
    (void)state;
    fig_sink s;
    fig_print print = print_to(&s);
    char bytes[256];
    for (int i = 0; i < 255; i++)
        bytes[i] = (char)(i + 1);
    bytes[255] = '\0';
    fig_print_open(&print, NULL, '{');
    fig_print_string(&print, bytes, bytes);
    fig_print_close(&print, '}');
    json_error_t error;
    json_t *root = json_loadb(s.text, s.count, 0, &error);
    if (root == NULL) fail_msg("line %d: %s", error.line, error.text);
    void *member = json_object_iter(root);
    assert_non_null(member);
    const char *key = json_object_iter_key(member);
    const char *value = json_string_value(json_object_iter_value(member));
    assert_string_equal(key, value);
    /* A byte outside ASCII becomes the character with that code, which takes two bytes in UTF-8. */
    assert_int_equal(strlen(value), 127 + 2 * 128);
    assert_memory_equal(value, bytes, 127);
    json_decref(root);
}

static void brackets_of_any_depth_and_filling_are_valid(void **state) {
    (void)state;
    fig_sink s;
    fig_print print = print_to(&s);
    fig_print_open(&print, NULL, '[');
    for (int depth = 0; depth < 8; depth++) {
        fig_print_open(&print, NULL, '{');
        fig_print_open(&print, "empty", '[');
        fig_print_close(&print, ']');
        fig_print_null(&print, "null");
        fig_print_open(&print, "next", '[');
        fig_print_integer(&print, NULL, INT64_MIN);
        fig_print_integer(&print, NULL, INT64_MAX);
    }
    for (int depth = 0; depth < 8; depth++) {
        fig_print_close(&print, ']');
        fig_print_word64(&print, "word", UINT64_MAX);
        fig_print_hex(&print, "hex", "\x01\xfe", 2);
        fig_print_close(&print, '}');
    }
    fig_print_close(&print, ']');
    json_error_t error;
    json_t *root = json_loadb(s.text, s.count, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) fail_msg("line %d: %s in %s", error.line, error.text, s.text);
    const json_t *outer = json_array_get(root, 0);
    assert_int_equal(json_array_size(json_object_get(outer, "empty")), 0);
    assert_string_equal(json_string_value(json_object_get(outer, "word")), "0xffffffffffffffff");
    assert_string_equal(json_string_value(json_object_get(outer, "hex")), "01fe");
    const json_t *next = json_object_get(outer, "next");
    assert_int_equal(json_array_size(next), 3);
    assert_true(json_integer_value(json_array_get(next, 0)) == INT64_MIN);
    assert_true(json_integer_value(json_array_get(next, 1)) == INT64_MAX);
    json_decref(root);
}

static void numbers_that_are_not_finite_become_null(void **state) {
    (void)state;
    fig_sink s;
    fig_print print = print_to(&s);
    fig_print_open(&print, NULL, '[');
    fig_print_real(&print, NULL, INFINITY);
    fig_print_real(&print, NULL, -INFINITY);
    fig_print_real(&print, NULL, NAN);
    fig_print_real(&print, NULL, -1.5f);
    fig_print_close(&print, ']');
    json_t *root = json_loads(s.text, 0, NULL);
    assert_non_null(root);
    for (size_t i = 0; i < 3; i++)
        assert_true(json_is_null(json_array_get(root, i)));
    assert_true(json_real_value(json_array_get(root, 3)) == -1.5);
    json_decref(root);
}

/* ---- Numbers */

static void a_float_reads_back_as_itself(void **state) {
    (void)state;
    fig_random random = fig_random_seed(3);
    char text[FIG_PRINT_NUMBER];
    for (int i = 0; i < 200000; i++) {
        const uint32_t bits = (uint32_t)fig_random_bits(&random);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        const float back = strtof(fig_print_float(text, value), NULL);
        if (back != value)
            fail_msg("%a is printed as %s, which is %a", (double)value, text, (double)back);
    }
    assert_string_equal(fig_print_float(text, 0.1f), "0.1");
    assert_string_equal(fig_print_float(text, 500000.0f), "500000");
    assert_string_equal(fig_print_float(text, 0.088388346f), "0.088388346");
}

/* Few machines have a locale with a decimal comma, so the test makes one: LC_NUMERIC in glibc's
 * file format. */
static const struct {
    uint32_t magic, count, offsets[6];
    char point[4], separator[4], grouping[4];
    uint32_t wide_point, wide_separator;
    char codeset[8];
} comma = {0x20031115 ^ 1, 6, {32, 36, 40, 44, 48, 52}, ",", "", "", ',', 0, "UTF-8"};

/* Returns 1 if numbers have a decimal comma from here on. */
static int set_comma(void) {
    char folder[] = "/tmp/fig_locale_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/comma", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(&comma, 1, sizeof comma, file), sizeof comma);
    assert_int_equal(fclose(file), 0);
    setenv("LOCPATH", folder, 1);
    const int is_set = setlocale(LC_NUMERIC, "comma") != NULL;
    unsetenv("LOCPATH");
    remove(path);
    snprintf(path, sizeof path, "%s/comma", folder);
    rmdir(path);
    rmdir(folder);
    return is_set;
}

static void a_locale_with_a_comma_changes_no_number(void **state) {
    (void)state;
    char text[FIG_PRINT_NUMBER];
    if (!set_comma()) {
        printf("skipped: this C library reads no locale of the test's\n");
        skip();
    }
    snprintf(text, sizeof text, "%g", 0.25);
    assert_string_equal(text, "0,25");
    fig_print_float(text, 0.25f);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "0.25");
}

static void counts_have_their_thousands_apart(void **state) {
    (void)state;
    char text[FIG_PRINT_NUMBER];
    assert_string_equal(fig_print_count(text, 0), "0");
    assert_string_equal(fig_print_count(text, 999), "999");
    assert_string_equal(fig_print_count(text, 1000), "1 000");
    assert_string_equal(fig_print_count(text, 131072), "131 072");
    assert_string_equal(fig_print_count(text, UINT64_MAX), "18 446 744 073 709 551 615");
}

static void sizes_have_a_unit_and_one_decimal(void **state) {
    (void)state;
    char text[FIG_PRINT_NUMBER];
    assert_string_equal(fig_print_bytes(text, 0), "0 B");
    assert_string_equal(fig_print_bytes(text, 10239), "10 239 B");
    assert_string_equal(fig_print_bytes(text, 10240), "10.0 KiB");
    assert_string_equal(fig_print_bytes(text, 1024 * 1024 - 1), "1 023.9 KiB");
    assert_string_equal(fig_print_bytes(text, 1024 * 1024), "1.0 MiB");
    assert_string_equal(fig_print_bytes(text, 1610612736), "1.5 GiB");
    assert_string_equal(fig_print_bytes(text, UINT64_MAX), "16 777 215.9 TiB");
}

/* ---- Columns */

static size_t longest_line(const fig_sink *s) {
    size_t longest = 0, column = 0;
    for (size_t i = 0; i < s->count; i++) {
        column = s->text[i] == '\n' ? 0 : column + 1;
        if (column > longest) longest = column;
    }
    return longest;
}

static void cells_stand_side_by_side_as_many_as_fit(void **state) {
    (void)state;
    static const char *const expected[] = {
        "       a     1                             bc    2\n"
        "       long  a value that does not fit in one cell of the two there are\n"
        "       d     3\n"
        "       e     a value that does not fit in one cell of the two there are\n",
        "       a     1                             bc    2\n"
        "       long  a value that does not fit in one cell of the two there are        d     3\n"
        "       e     a value that does not fit in one cell of the two there are\n"};
    for (int i = 0; i < 2; i++) {
        fig_sink s;
        fig_print print = print_to(&s);
        print.columns = i == 0 ? 80 : 106;
        fig_print_cell(&print, 4, "a", "1");
        fig_print_cell(&print, 4, "bc", "2");
        fig_print_cell(&print, 4, "long",
                       "a value that does not fit in one cell of the two there are");
        fig_print_cell(&print, 4, "d", "3");
        fig_print_cell(&print, 4, "e",
                       "a value that does not fit in one cell of the two there are");
        fig_print_end_line(&print);
        fig_print_end_line(&print);
        assert_string_equal(s.text, expected[i]);
    }
}

static void words_break_before_the_last_column(void **state) {
    (void)state;
    for (uint32_t columns = 40; columns <= 200; columns += 40) {
        fig_sink s;
        fig_print print = print_to(&s);
        print.columns = columns;
        for (int i = 0; i < 100; i++)
            fig_print_word(&print, 10, i == 0 ? "word" : i % 9 == 0 ? " -> then" : ", another");
        fig_print_end_line(&print);
        assert_null(strstr(s.text, "\n          ,"));
        assert_null(strstr(s.text, "\n           "));
        assert_non_null(strstr(s.text, ",\n"));
        assert_true(longest_line(&s) <= columns);
        assert_true(longest_line(&s) > columns - 10);
    }
}

static void no_line_ends_within_a_number(void **state) {
    (void)state;
    for (uint32_t columns = 40; columns < 80; columns++) {
        fig_sink s;
        fig_print print = print_to(&s);
        print.columns = columns;
        for (int i = 0; i < 30; i++)
            fig_print_words(&print, 7, " 131 072 tokens");
        assert_true(longest_line(&s) <= columns);
        assert_null(strstr(s.text, "131\n"));
    }
}

static void sentences_break_between_words_and_keep_their_commas(void **state) {
    (void)state;
    for (uint32_t columns = 40; columns < 80; columns++) {
        fig_sink s;
        fig_print print = print_to(&s);
        print.columns = columns;
        fig_print_text(&print, "label: ");
        for (int i = 0; i < 30; i++)
            fig_print_words(&print, 7, "%stheta %d", i > 0 ? ", " : "", i);
        fig_print_end_line(&print);
        assert_true(longest_line(&s) <= columns);
        assert_true(longest_line(&s) > columns - 10);
        assert_null(strstr(s.text, "\n,"));
        assert_null(strstr(s.text, " \n"));
        assert_null(strstr(s.text, "       ,"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_make_a_valid_string),
        cmocka_unit_test(brackets_of_any_depth_and_filling_are_valid),
        cmocka_unit_test(numbers_that_are_not_finite_become_null),
        cmocka_unit_test(a_float_reads_back_as_itself),
        cmocka_unit_test(a_locale_with_a_comma_changes_no_number),
        cmocka_unit_test(counts_have_their_thousands_apart),
        cmocka_unit_test(sizes_have_a_unit_and_one_decimal),
        cmocka_unit_test(cells_stand_side_by_side_as_many_as_fit),
        cmocka_unit_test(words_break_before_the_last_column),
        cmocka_unit_test(no_line_ends_within_a_number),
        cmocka_unit_test(sentences_break_between_words_and_keep_their_commas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
