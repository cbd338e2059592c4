/* test_soak.c: tests that neither memory nor the time per step grows while an engine stages and
 * runs tens of thousands of steps. tests/gpu/soak.c does this with millions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/steps/endure.h"

static const fig_endure_options some = {.stagings = 30000, .steps = 10000};

static void staging_and_taking_back_leaves_nothing_behind(void **state) {
    (void)state;
    fig_endure_stagings(&some);
}

static void stepping_leaves_nothing_behind(void **state) {
    (void)state;
    fig_endure_steps(&some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staging_and_taking_back_leaves_nothing_behind),
        cmocka_unit_test(stepping_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
