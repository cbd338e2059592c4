/* test_text.c: tests that control characters do not reach a terminal, and that ordinary text stays
 * unchanged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tools/figraph/terminal/text.h"

static void control_characters_are_not_shown(void **state) {
    (void)state;
    static const struct {
        const char *given, *shown;
    } cases[] = {
        {"", ""},
        {"tests/golden/mixed.fig", "tests/golden/mixed.fig"},
        {"caf\xc3\xa9 \xe2\x80\x99 \xf0\x9f\x8e\x89", "caf\xc3\xa9 \xe2\x80\x99 \xf0\x9f\x8e\x89"},
        {"\x1b[2J", "?[2J"},
        {"a\nb\tc\x7f", "a?b?c?"},
        {"\x9b"
         "2J\x80\x9f",
         "?2J??"},
        {"\xc2\x9b"
         "2J",
         "?2J"},
        {"\xc2\x85\xc2\xa0", "?\xc2\xa0"},
        {"\xc3", "?"},
        {"\xe2\x80", "??"},
        {"\xc0\x9b\xed\xa0\x80\xf5", "??????"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i].given);
        fig_text_clean(text);
        assert_string_equal(text, cases[i].shown);
    }
}

static void no_single_byte_from_0x80_on_is_shown(void **state) {
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        char text[2] = {(char)byte, '\0'};
        fig_text_clean(text);
        assert_true((text[0] != '?') == (byte >= 0x20 && byte < 0x7f && byte != '?'));
    }
}

static void a_number_is_written_as_people_write_it(void **state) {
    (void)state;
    static const char *const numbers[] = {"0", "5", "-5", "1.5", "1e9", "1E-3", "12,", "0,x"};
    static const char *const others[] = {"",   "+5", " 5",  "0x10", "0x1p3", "inf",  "nan", ".5",
                                         "5 ", "-",  "--5", "5x",   ",",     "-inf", "1d",  "5\n"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_true(fig_text_is_decimal(numbers[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(fig_text_is_decimal(others[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_not_shown),
        cmocka_unit_test(no_single_byte_from_0x80_on_is_shown),
        cmocka_unit_test(a_number_is_written_as_people_write_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
