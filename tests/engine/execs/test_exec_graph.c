/* test_exec_graph.c: tests where a graph has its look-ahead, the kernel that prefetches the next
 * plan. */
#include "engine/execs/exec_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The fetch is launch 0. */
static void a_look_ahead_is_over_before_the_last_launch(void **state) {
    (void)state;
    static const uint32_t cases[][2] = {{1, 0},  {2, 0},  {4, 0},  {5, 0},
                                        {16, 0}, {17, 8}, {18, 9}, {66, 33}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fig_exec_graph_place_of_look(cases[i][0]), cases[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_ahead_is_over_before_the_last_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
