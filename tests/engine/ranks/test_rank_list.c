/* test_rank_list.c: tests how messages name ranks. */
#include "engine/ranks/rank_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "include/figraph_ranks.h"

static void assert_roll(const char *digits, const char *words) {
    uint8_t is_in[64];
    char text[FIG_RANK_LIST_BYTES];
    for (size_t i = 0; i < strlen(digits); i++)
        is_in[i] = digits[i] == '1';
    fig_rank_list_write(text, is_in, (int32_t)strlen(digits));
    assert_string_equal(text, words);
}

static void ranks_are_named_one_by_one_and_in_runs(void **state) {
    (void)state;
    assert_roll("0010", "rank 2");
    assert_roll("1010", "ranks 0 and 2");
    assert_roll("1100", "ranks 0 and 1");
    assert_roll("1110", "ranks 0 to 2");
    assert_roll("1011", "ranks 0, 2 and 3");
    assert_roll("1011100001", "ranks 0, 2 to 4 and 9");
    assert_roll("101010101010", "ranks 0, 2, 4, 6, 8 and 10");
    assert_roll("1010101010101010", "ranks 0, 2, 4, 6, 8, 10 and 2 more");
}

static void the_longest_list_fits(void **state) {
    (void)state;
    uint8_t is_in[FIG_RANKS_LIMIT];
    char text[FIG_RANK_LIST_BYTES];
    for (int32_t i = 0; i < FIG_RANKS_LIMIT; i++)
        is_in[i] = i >= 100 && i % 4 != 3;
    fig_rank_list_write(text, is_in, FIG_RANKS_LIMIT);
    assert_string_equal(text, "ranks 100 to 102, 104 to 106, 108 to 110, 112 to 114, 116 to 118, "
                              "120 to 122 and 99 more");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_named_one_by_one_and_in_runs),
        cmocka_unit_test(the_longest_list_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
