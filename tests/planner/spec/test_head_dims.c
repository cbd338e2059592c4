/* test_head_dims.c: tests that the messages about head_dim list exactly the supported ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "planner/spec/head_dims.h"

enum { LIMIT = 1024 };

/* Writes the head_dims that `has` accepts, such as "64, 80 and 96". `last` comes before the last
 * one. */
static void list(int (*has)(int64_t head_dim), const char *last, char *text, size_t bytes) {
    int count = 0, listed = 0;
    size_t used = 0;
    for (int64_t dims = 0; dims <= LIMIT; dims++)
        count += has(dims);
    for (int64_t dims = 0; dims <= LIMIT; dims++) {
        if (!has(dims)) continue;
        const char *before = listed == 0 ? "" : listed == count - 1 ? last : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", before, (int)dims);
        listed++;
    }
}

static void sentences_name_what_is_in_the_list(void **state) {
    (void)state;
    char text[128];
    list(fig_head_dims_has, " and ", text, sizeof text);
    assert_string_equal(text, FIG_HEAD_DIMS_TEXT);
    list(fig_head_dims_has, " or ", text, sizeof text);
    assert_string_equal(text, FIG_HEAD_DIMS_ANY_TEXT);
    list(fig_head_dims_has_short, " or ", text, sizeof text);
    assert_string_equal(text, FIG_HEAD_DIMS_SHORT_TEXT);
    list(fig_head_dims_has_short_codes, " or ", text, sizeof text);
    assert_string_equal(text, FIG_HEAD_DIMS_SHORT_CODES_TEXT);
    list(fig_head_dims_has_whole, " or ", text, sizeof text);
    assert_string_equal(text, FIG_HEAD_DIMS_WHOLE_TEXT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentences_name_what_is_in_the_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
