/* soak.c: that nothing grows on a GPU while an engine stages and steps.
 *
 *     build/release/tests/gpu/soak [--stagings N] [--steps N]
 *
 * FIG_DEVICE=cuda --stagings 10000000 --steps 1000000 is the long run. Each tenth it prints what
 * the process and the GPU hold and what a turn takes, and it fails where the last tenth holds more
 * than the second, or takes over 5 % longer, beside what two neighbouring tenths differ by. Where a
 * number was given it takes itself to be alone on the GPU, since the driver tells how much memory
 * is free on all of it. Without one, as in tests/gpu/run where other programs run beside it, that
 * is printed and not judged, and a turn may take three times as long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/endure.h"

static fig_endure_options options = {.stagings = 100000, .steps = 50000};

static void staging_and_taking_back_leaves_nothing_behind(void **state) {
    (void)state;
    fig_endure_stagings(&options);
}

static void nor_does_stepping(void **state) {
    (void)state;
    fig_endure_steps(&options);
}

static int read_options(int count, char **words) {
    for (int i = 1; i < count; i += 2) {
        int64_t *option = strcmp(words[i], "--stagings") == 0 ? &options.stagings
                          : strcmp(words[i], "--steps") == 0  ? &options.steps
                                                              : NULL;
        if (option == NULL || i + 1 == count) return 0;
        *option = atoll(words[i + 1]);
        options.alone = 1;
    }
    return options.stagings >= 10000 && options.steps >= 10000;
}

int main(int count, char **words) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staging_and_taking_back_leaves_nothing_behind),
        cmocka_unit_test(nor_does_stepping),
    };
    if (!read_options(count, words)) {
        fprintf(stderr, "soak [--stagings N] [--steps N], 10000 of each at least\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
