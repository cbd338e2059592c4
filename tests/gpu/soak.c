/* soak.c: tests on a GPU that neither memory nor time per step grows while an engine stages and
 * steps.
 *
 *     build/release/tests/gpu/soak [--stagings N] [--steps N]
 *
 * FIG_DEVICE=cuda --stagings 10000000 --steps 1000000 is the long run. After each tenth it prints
 * the memory of the process and of the GPU, and the time of a staging or step. It fails if more
 * memory is in use after the last tenth than after the second, or if the last tenth takes over 5 %
 * longer than the noise between neighbouring tenths explains. If an option is given, nothing else
 * may use the GPU, since the driver reports the free memory of the whole GPU. Without options, as
 * in tests/gpu/run beside other programs, free memory is printed but not judged, and times may
 * triple. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/steps/endure.h"

static fig_endure_options options = {.stagings = 100000, .steps = 50000};

static void staging_and_taking_back_leaves_nothing_behind(void **state) {
    (void)state;
    fig_endure_stagings(&options);
}

static void stepping_leaves_nothing_behind(void **state) {
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
        cmocka_unit_test(stepping_leaves_nothing_behind),
    };
    if (!read_options(count, words)) {
        fprintf(stderr, "soak [--stagings N] [--steps N], 10000 of each at least\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
