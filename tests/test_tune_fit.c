/* test_tune_fit.c: figures are found again from times that they made, and none is below 0; they are
 * leaned to where they choose well; times are read as they were written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/support/random.h"
#include "tools/figraph/terminal/report.h"
#include "tools/figraph/tune/tune_lean.h"
#include "tools/figraph/tune/tune_times.h"

enum { POINTS = 40 };

static fig_tune_costs drawn(fig_random *random) {
    return (fig_tune_costs){.size = sizeof(fig_tune_costs),
                            .start_ns = fig_random_range(random, 0, 9000),
                            .bytes_per_us = fig_random_range(random, 5000, 60000),
                            .piece_ns = fig_random_range(random, 0, 500),
                            .segment_ns = fig_random_range(random, 0, 2000)};
}

/* Points of a grid like those that are measured, each off by up to `noise` of what it takes. */
static void make_points(fig_random *random, const fig_tune_costs *costs, double noise,
                        fig_tune_point points[POINTS]) {
    for (int p = 0; p < POINTS; p++) {
        points[p] = (fig_tune_point){.bytes = fig_random_range(random, 1, 4000) * 8192.0,
                                     .pieces = fig_random_range(random, 1, 64),
                                     .segments = fig_random_range(random, 1, 20)};
        const double off = noise * (fig_random_range(random, 0, 2000) / 1000.0 - 1);
        points[p].ns = fig_tune_fit_predict(costs, &points[p]) * (1 + off);
    }
}

static void figures_are_found_again(void **state) {
    (void)state;
    fig_random random = fig_random_seed(2);
    for (int draw = 0; draw < 500; draw++) {
        const fig_tune_costs due = drawn(&random);
        fig_tune_costs found = {.size = sizeof found};
        fig_tune_point points[POINTS];
        make_points(&random, &due, 0, points);
        const double off = fig_tune_fit(points, POINTS, &found);
        assert_true(off >= 0 && off < 1e-3);
        assert_true(abs(found.start_ns - due.start_ns) <= 2 + due.start_ns / 100);
        assert_true(abs(found.bytes_per_us - due.bytes_per_us) <= due.bytes_per_us / 1000 + 1);
        assert_true(abs(found.piece_ns - due.piece_ns) <= 2);
        assert_true(abs(found.segment_ns - due.segment_ns) <= 3);
    }
}

static void times_that_are_off_give_figures_that_are_near_and_none_below_0(void **state) {
    (void)state;
    fig_random random = fig_random_seed(3);
    for (int draw = 0; draw < 500; draw++) {
        const fig_tune_costs due = drawn(&random);
        fig_tune_costs found = {.size = sizeof found};
        fig_tune_point points[POINTS];
        make_points(&random, &due, 0.1, points);
        const double off = fig_tune_fit(points, POINTS, &found);
        assert_true(off > 0 && off < 0.08);
        assert_true(found.start_ns >= 0 && found.piece_ns >= 0 && found.segment_ns >= 0);
        assert_true(abs(found.bytes_per_us - due.bytes_per_us) < due.bytes_per_us / 5);
    }
}

/* A figure that the times would have below 0 is 0, and the others are fitted without it. */
static void what_would_be_below_0_is_0(void **state) {
    (void)state;
    fig_tune_costs found = {.size = sizeof found};
    fig_tune_point points[POINTS];
    for (int p = 0; p < POINTS; p++)
        points[p] = (fig_tune_point){1e6 * (p + 1), 1 + p % 7, 1 + p % 5, 0};
    for (int p = 0; p < POINTS; p++)
        points[p].ns = points[p].bytes / 30 - 500 * points[p].pieces + 9000;
    assert_true(fig_tune_fit(points, POINTS, &found) > 0);
    assert_int_equal(found.piece_ns, 0);
    assert_in_range(found.bytes_per_us, 29000, 31000);
}

static void few_points_give_figures_too_and_none_gives_none(void **state) {
    (void)state;
    fig_tune_costs found = {.size = sizeof found, .bytes_per_us = 1};
    const fig_tune_point points[] = {{3e6, 1, 1, 100000}, {6e6, 1, 1, 200000}};
    assert_true(fig_tune_fit(points, 0, &found) < 0);
    assert_true(fig_tune_fit(points, 1, &found) >= 0);
    assert_int_equal(found.bytes_per_us, 30000);
    assert_true(fig_tune_fit(points, 2, &found) < 1e-6);
}

/* ---- The choice between variants */

enum { VARIANTS = 3, CELLS = 20, TRIALS = VARIANTS * CELLS };

/* The points of CELLS steps, each in VARIANTS variants and off by up to `noise` of what it takes:
 * steps so small that the rate does not hide the other figures. */
static void make_trials(fig_random *random, const fig_tune_costs *costs, double noise,
                        fig_tune_trial rows[TRIALS]) {
    fig_tune_point points[POINTS];
    const uint64_t seed = fig_random_bits(random);
    for (int v = 0; v < VARIANTS; v++) {
        fig_random same = fig_random_seed(seed);
        make_points(&same, &costs[v], 0, points);
        for (int cell = 0; cell < CELLS; cell++) {
            const double off = noise * (fig_random_range(random, 0, 2000) / 1000.0 - 1);
            points[cell].bytes /= 100;
            points[cell].ns = fig_tune_fit_predict(&costs[v], &points[cell]) * (1 + off);
            rows[cell * VARIANTS + v] = (fig_tune_trial){points[cell], cell, v};
        }
    }
}

static void fit_all(const fig_tune_trial rows[TRIALS], fig_tune_costs costs[VARIANTS]) {
    fig_tune_point points[CELLS];
    for (int v = 0; v < VARIANTS; v++) {
        for (int cell = 0; cell < CELLS; cell++)
            points[cell] = rows[cell * VARIANTS + v].point;
        assert_true(fig_tune_fit(points, CELLS, &costs[v]) >= 0);
    }
}

/* The fit has the slower one cheaper, by a little; as near to what it took it is not. */
static void what_chooses_wrongly_is_leaned_to_where_it_chooses_right(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{{0, 0, 0, 1100}, 0, 0}, {{0, 0, 0, 1000}, 0, 1}};
    const fig_tune_trials trials = {rows, 2};
    const fig_tune_costs fitted[] = {{.start_ns = 950, .bytes_per_us = 7},
                                     {.start_ns = 1000, .bytes_per_us = 7}};
    fig_tune_costs leaned[2];
    assert_true(fabs(fig_tune_lean_lost(&trials, fitted) - log(1.1)) < 1e-9);
    fig_tune_lean(&trials, fitted, 2, leaned);
    assert_true(fig_tune_lean_lost(&trials, leaned) == 0);
    assert_in_range(leaned[0].start_ns, 1090, 1110);
    assert_int_equal(leaned[1].start_ns, 1000);
}

/* Each cell by itself: what is lost is a sum, of those alone that a cell was measured in. */
static void what_is_lost_is_the_sum_over_cells(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{{0, 0, 0, 300}, 4, 0}, {{0, 0, 0, 200}, 4, 1}, {{0, 9, 0, 500}, 5, 0},
                             {{0, 9, 0, 900}, 5, 1}, {{0, 0, 0, 800}, 6, 1}, {{0, 0, 9, 150}, 7, 1},
                             {{0, 0, 9, 100}, 7, 0}};
    const fig_tune_costs costs[] = {{.start_ns = 1, .bytes_per_us = 1, .segment_ns = 9},
                                    {.start_ns = 2, .bytes_per_us = 1, .piece_ns = 3}};
    const fig_tune_trials trials = {rows, 7};
    /* 300 of 200, the fastest, the only one, and 150 of 100. */
    assert_true(fabs(fig_tune_lean_lost(&trials, costs) - log(1.5 * 1.5)) < 1e-9);
    const fig_tune_trials none = {rows, 0};
    assert_true(fig_tune_lean_lost(&none, costs) == 0);
}

static void figures_that_choose_right_stay(void **state) {
    (void)state;
    fig_random random = fig_random_seed(4);
    for (int draw = 0; draw < 50; draw++) {
        fig_tune_costs due[VARIANTS], leaned[VARIANTS];
        fig_tune_trial rows[TRIALS];
        const fig_tune_trials trials = {rows, TRIALS};
        for (int v = 0; v < VARIANTS; v++)
            due[v] = drawn(&random);
        make_trials(&random, due, 0, rows);
        fig_tune_lean(&trials, due, VARIANTS, leaned);
        assert_memory_equal(leaned, due, sizeof due);
    }
}

static void assert_is_near(int32_t leaned, int32_t fitted) {
    assert_true(leaned >= 0 && 4 * abs(leaned - fitted) <= fitted + 4);
}

/* Variants that are much alike, over times that are off. */
static void leaning_loses_less_and_no_figure_goes_far(void **state) {
    (void)state;
    fig_random random = fig_random_seed(5);
    double before = 0, after = 0;
    for (int draw = 0; draw < 50; draw++) {
        fig_tune_costs due[VARIANTS], fitted[VARIANTS], leaned[VARIANTS];
        fig_tune_trial rows[TRIALS];
        const fig_tune_trials trials = {rows, TRIALS};
        due[0] = due[1] = due[2] = drawn(&random);
        due[1].start_ns += 1000;
        due[2].segment_ns += 200;
        memcpy(fitted, due, sizeof fitted);
        make_trials(&random, due, 0.1, rows);
        fit_all(rows, fitted);
        fig_tune_lean(&trials, fitted, VARIANTS, leaned);
        for (int v = 0; v < VARIANTS; v++) {
            assert_int_equal(leaned[v].bytes_per_us, fitted[v].bytes_per_us);
            assert_is_near(leaned[v].start_ns, fitted[v].start_ns);
            assert_is_near(leaned[v].piece_ns, fitted[v].piece_ns);
            assert_is_near(leaned[v].segment_ns, fitted[v].segment_ns);
        }
        assert_true(fig_tune_lean_lost(&trials, leaned) <= fig_tune_lean_lost(&trials, fitted));
        before += fig_tune_lean_lost(&trials, fitted);
        after += fig_tune_lean_lost(&trials, leaned);
    }
    assert_true(after < 0.8 * before);
}

/* Where it would be leaned past what the library takes. */
static void no_figure_is_leaned_past_its_limit(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{{0, 0, 0, 2e8}, 0, 0}};
    const fig_tune_trials trials = {rows, 1};
    const fig_tune_costs fitted = {.start_ns = FIG_TUNE_FIT_MOST - 1, .bytes_per_us = 1};
    fig_tune_costs leaned;
    fig_tune_lean(&trials, &fitted, 1, &leaned);
    assert_int_equal(leaned.start_ns, FIG_TUNE_FIT_MOST);
}

/* ---- Times */

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void times_read_as_they_were_written(void **state) {
    (void)state;
    static const fig_tune_time rows[] = {
        {"h200", "1x32768+39x512", "pair", 32, 8, 128, 1, 0, 35.25, 38.125},
        {"host", "8x2048", "head", 16, 4, 64, 2, 4096, 0.001, 12345.678}};
    char path[] = "/tmp/test_tune_fit.XXXXXX";
    fig_tune_times written = {NULL, 0, 0}, read = {NULL, 0, 0};
    close(mkstemp(path));
    for (int i = 0; i < 100; i++)
        assert_int_equal(fig_tune_times_add(&written, &rows[i % 2]), FIG_EXIT_FINE);
    assert_int_equal(fig_tune_times_write(&written, path), FIG_EXIT_FINE);
    assert_int_equal(fig_tune_times_read(&read, path), FIG_EXIT_FINE);
    assert_int_equal(read.count, 100);
    for (int i = 0; i < 100; i++)
        assert_memory_equal(&read.rows[i], &rows[i % 2], sizeof rows[0]);
    fig_tune_times_finish(&written);
    fig_tune_times_finish(&read);
    unlink(path);
}

static void lines_that_are_no_times_are_refused(void **state) {
    (void)state;
#define HEADER "chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us\n"
#define DATED "chip,heads,head_dim,value_bytes,window,cell,variant,chain_us,alone_us,date\n"
    static const char *const bad[] = {
        "",
        "chip,heads\n",
        HEADER "h200,32/8,128,2,0,8x2048,head,1\n",
        HEADER "h200,32/8,128,2,0,8x2048,head,1,2,3\n",
        HEADER "h200,32-8,128,2,0,8x2048,head,1,2\n",
        HEADER "h200,32/8,128,2,0,8x2048,head,0,2\n",
        HEADER "h200,32/8,128,2,0,8x2048,head,1,inf\n",
        HEADER "h200,32/8,128,2,0,8x2048,head,nan,1\n",
        HEADER "h200,32/8,128,2,0,,head,1,1\n",
        DATED "h200,32/8,128,2,0,8x2048,head,1,2\n",
        HEADER "longer-than-fifteen,32/8,128,2,0,8x2048,head,1,1\n",
        HEADER "h200,32/8,128,2,0,8x2048,longer-than-eleven,1,1\n",
    };
    char path[] = "/tmp/test_tune_fit.XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fig_tune_times times = {NULL, 0, 0};
        write_text(path, bad[i]);
        if (fig_tune_times_read(&times, path) != FIG_EXIT_BAD) fail_msg("%s is read", bad[i]);
        fig_tune_times_finish(&times);
    }
    fig_tune_times times = {NULL, 0, 0};
    write_text(path, HEADER "h200,32/8,128,2,0,8x2048,head,1,1\r\n");
    assert_int_equal(fig_tune_times_read(&times, path), FIG_EXIT_FINE);
    fig_tune_times_finish(&times);
    unlink(path);
    assert_int_equal(fig_tune_times_read(&times, path), FIG_EXIT_BAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_found_again),
        cmocka_unit_test(times_that_are_off_give_figures_that_are_near_and_none_below_0),
        cmocka_unit_test(what_would_be_below_0_is_0),
        cmocka_unit_test(few_points_give_figures_too_and_none_gives_none),
        cmocka_unit_test(what_chooses_wrongly_is_leaned_to_where_it_chooses_right),
        cmocka_unit_test(what_is_lost_is_the_sum_over_cells),
        cmocka_unit_test(figures_that_choose_right_stay),
        cmocka_unit_test(leaning_loses_less_and_no_figure_goes_far),
        cmocka_unit_test(no_figure_is_leaned_past_its_limit),
        cmocka_unit_test(times_read_as_they_were_written),
        cmocka_unit_test(lines_that_are_no_times_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
