/* test_grid.c: runs a seeded sample of cases from every section of tests/grid. `make test-grid`
 * runs all cases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "tests/grid/grid.h"
#include "tests/support/kernels/reference.h"

/* With sanitizers everything takes many times as long. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { CASES = 3, TRIES = 200, WORK_LIMIT = 3000000 };
#else
enum { CASES = 12, TRIES = 400, WORK_LIMIT = 60000000 };
#endif

static uint64_t seed;

/* Draws a case of at most WORK_LIMIT work. If no such case is drawn, returns the one with the least
 * work. */
static int64_t draw_case(const grid_section *section, fig_random *random) {
    const int64_t cases = grid_section_cases(section);
    int64_t least = 0, least_work = INT64_MAX;
    for (int i = 0; i < TRIES && least_work > WORK_LIMIT; i++) {
        int64_t index = fig_random_range(random, 0, (int32_t)cases - 1);
        int64_t work = grid_section_work(section, index);
        if (work >= least_work) continue;
        least = index;
        least_work = work;
    }
    return least;
}

static void a_sample_of_the_section_is_the_truth(void **state) {
    const grid_section *section = *state;
    fig_random random = fig_random_seed(seed);
    double worst = 0;
    int64_t work = 0;
    int done = 0;
    for (; done < CASES && (done == 0 || work < CASES * (int64_t)WORK_LIMIT); done++) {
        grid_report report = {.truth_s = 0.01};
        int64_t index = draw_case(section, &random);
        grid_section_run(section, index, &report);
        if (grid_failed(&report))
            fail_msg("case %lld: %s\n%s", (long long)index, report.failure, report.shape);
        for (int32_t m = 0; m < report.measure_count; m++)
            if (report.measures[m].worst > worst) worst = report.measures[m].worst;
        work += grid_section_work(section, index);
    }
    print_message("%d of %lld cases, worst error %.3f of what is tolerated\n", done,
                  (long long)grid_section_cases(section), worst);
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[64];
    static const grid_section *sections[64];
    seed = fig_reference_seed(argc, argv);
    const int32_t count = grid_section_count();
    assert(count <= 64);
    for (int32_t i = 0; i < count; i++) {
        sections[i] = grid_section_at(i);
        tests[i] =
            (struct CMUnitTest){.name = sections[i]->name,
                                .test_func = a_sample_of_the_section_is_the_truth,
                                .initial_state = (void *)(uintptr_t)(const void *)sections[i]};
    }
    return _cmocka_run_group_tests("grid", tests, (size_t)count, NULL, NULL);
}
