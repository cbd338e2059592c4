/* test_tune_fit.c: tests that fitting finds the figures from which times were computed, and never
 * finds one below 0; that it finds `once` and `tile_ns` from probes; that figures are adjusted
 * until they choose well; and that times are read as they were written. */
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
#define POINT(BYTES, PIECES, SEGMENTS, NS)                                                         \
    { .bytes = BYTES, .pieces = PIECES, .segments = SEGMENTS, .ns = NS }

static fig_tune_costs drawn(fig_random *random) {
    return (fig_tune_costs){.size = sizeof(fig_tune_costs),
                            .start_ns = fig_random_range(random, 0, 9000),
                            .bytes_per_us = fig_random_range(random, 5000, 60000),
                            .piece_ns = fig_random_range(random, 0, 500),
                            .segment_ns = fig_random_range(random, 0, 2000)};
}

/* Makes points like those of a measured grid. Each time has a random relative error of up to
 * `noise`. */
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

/* Steps of many one-token rows take a multiple of what the figures of other steps tell. */
static void probes_do_not_bend_the_figures(void **state) {
    (void)state;
    fig_random random = fig_random_seed(11);
    for (int draw = 0; draw < 100; draw++) {
        const fig_tune_costs due = drawn(&random);
        fig_tune_costs found = {.size = sizeof found};
        fig_tune_point points[POINTS];
        make_points(&random, &due, 0, points);
        for (int p = 0; p < POINTS; p += 3) {
            points[p].is_probe = 1;
            points[p].ns *= 12;
        }
        assert_true(fig_tune_fit(points, POINTS, &found) >= 0);
        assert_true(abs(found.bytes_per_us - due.bytes_per_us) <= due.bytes_per_us / 1000 + 1);
        assert_true(abs(found.piece_ns - due.piece_ns) <= 2);
        assert_true(abs(found.segment_ns - due.segment_ns) <= 3);
    }
}

/* If a figure would be negative, it is set to 0, and the others are fitted without it. */
static void figures_below_0_become_0(void **state) {
    (void)state;
    fig_tune_costs found = {.size = sizeof found};
    fig_tune_point points[POINTS];
    for (int p = 0; p < POINTS; p++)
        points[p] = (fig_tune_point)POINT(1e6 * (p + 1), 1 + p % 7, 1 + p % 5, 0);
    for (int p = 0; p < POINTS; p++)
        points[p].ns = points[p].bytes / 30 - 500 * points[p].pieces + 9000;
    assert_true(fig_tune_fit(points, POINTS, &found) > 0);
    assert_int_equal(found.piece_ns, 0);
    assert_in_range(found.bytes_per_us, 29000, 31000);
}

static void few_points_give_figures_too_and_none_gives_none(void **state) {
    (void)state;
    fig_tune_costs found = {.size = sizeof found, .bytes_per_us = 1};
    const fig_tune_point points[] = {POINT(3e6, 1, 1, 100000), POINT(6e6, 1, 1, 200000)};
    assert_true(fig_tune_fit(points, 0, &found) < 0);
    assert_true(fig_tune_fit(points, 1, &found) >= 0);
    assert_int_equal(found.bytes_per_us, 30000);
    assert_true(fig_tune_fit(points, 2, &found) < 1e-6);
}

/* ---- Units */

enum { PROBES = 14 };

/* Makes probes: steps of one-token rows beside a long row, for 132 workers. Memory limits some of
 * them. */
static void make_probes(fig_random *random, const fig_tune_costs *due, double noise,
                        fig_tune_point points[PROBES]) {
    for (int p = 0; p < PROBES; p++) {
        const double begins = p < 4 ? 1 << p : 1 + p % 5, tiles = p < 4 ? begins : 1 + 3 * (p % 4);
        const double off = noise * (fig_random_range(random, 0, 2000) / 1000.0 - 1);
        points[p] = (fig_tune_point){.bytes = tiles * 32768,
                                     .pieces = p < 4 ? 1 : 40,
                                     .segments = begins,
                                     .tiles = tiles,
                                     .begins = begins,
                                     .tile_bytes = 32768,
                                     .is_by_units = 1,
                                     .is_probe = 1};
        points[p].ns = fig_tune_fit_predict(due, &points[p]) * (1 + off);
        points[p].is_by_units = p >= 4;
    }
}

static fig_tune_costs drawn_units(fig_random *random) {
    fig_tune_costs due = drawn(random);
    due.bytes_per_us = fig_random_range(random, 20000, 60000);
    due.once = fig_random_range(random, 8, 60);
    due.tile_ns = fig_random_range(random, 700, 2500);
    return due;
}

static fig_tune_costs with_units(const fig_tune_costs *of, int32_t once, int32_t tile_ns) {
    fig_tune_costs costs = *of;
    costs.once = once;
    costs.tile_ns = tile_ns;
    return costs;
}

static void units_are_found_again(void **state) {
    (void)state;
    fig_random random = fig_random_seed(6);
    for (int draw = 0; draw < 200; draw++) {
        const fig_tune_costs due = drawn_units(&random);
        const fig_tune_costs standing = with_units(&due, 30, 1000);
        fig_tune_costs found = with_units(&due, 0, 0);
        fig_tune_point points[PROBES];
        make_probes(&random, &due, 0, points);
        assert_true(fig_tune_fit_units(points, PROBES, &standing, &found));
        assert_true(abs(found.once - due.once) <= 1);
        assert_true(abs(found.tile_ns - due.tile_ns) <= 2 + due.tile_ns / 50);
        assert_int_equal(found.start_ns, due.start_ns);
    }
}

static double worst_off(const fig_tune_point *points, const fig_tune_costs *costs) {
    return fig_tune_fit_off(costs, points + 4, PROBES - 4);
}

static void units_from_times_that_are_off_are_near(void **state) {
    (void)state;
    fig_random random = fig_random_seed(7);
    for (int draw = 0; draw < 200; draw++) {
        const fig_tune_costs due = drawn_units(&random), standing = with_units(&due, 5, 4000);
        fig_tune_costs found = with_units(&due, 0, 0);
        fig_tune_point points[PROBES];
        make_probes(&random, &due, 0.05, points);
        assert_true(fig_tune_fit_units(points, PROBES, &standing, &found));
        assert_true(found.once >= 1 && found.once <= FIG_TUNE_FIT_ONCE_MOST);
        assert_true(worst_off(points, &found) < 0.06);
    }
}

/* Returns the sum of squared relative errors of all probes, where each time is predicted by
 * units. */
static double squares_by_units(const fig_tune_point points[PROBES], const fig_tune_costs *costs) {
    double sum = 0;
    for (int p = 0; p < PROBES; p++) {
        fig_tune_point point = points[p];
        point.is_by_units = 1;
        const double off = fig_tune_fit_predict(costs, &point) / point.ns - 1;
        sum += off * off;
    }
    return sum;
}

/* The times are so wrong that the fit may be worse than the file's figures, which are then kept. */
static void units_that_predict_worse_are_not_kept(void **state) {
    (void)state;
    fig_random random = fig_random_seed(8);
    fig_tune_point points[PROBES];
    int kept = 0;
    for (int draw = 0; draw < 200; draw++) {
        const fig_tune_costs standing = drawn_units(&random);
        fig_tune_costs found = with_units(&standing, 0, 0);
        make_probes(&random, &standing, 0.9, points);
        assert_true(fig_tune_fit_units(points, PROBES, &standing, &found));
        assert_true(squares_by_units(points, &found) <= squares_by_units(points, &standing));
        kept += found.once == standing.once && found.tile_ns == standing.tile_ns;
    }
    assert_in_range(kept, 1, 199);
    const fig_tune_costs due = drawn_units(&random);
    fig_tune_costs found = with_units(&due, 0, 0);
    make_probes(&random, &due, 0, points);
    assert_true(fig_tune_fit_units(points, PROBES, &due, &found));
    assert_true(squares_by_units(points, &found) <= squares_by_units(points, &due));
}

static void few_probes_leave_the_tables_units(void **state) {
    (void)state;
    fig_random random = fig_random_seed(9);
    const fig_tune_costs due = drawn_units(&random);
    fig_tune_costs found = due;
    fig_tune_point points[PROBES];
    make_probes(&random, &due, 0, points);
    assert_false(fig_tune_fit_units(points, 3, &due, &found));
    assert_int_equal(found.once, 0);
    assert_int_equal(found.tile_ns, 0);
    /* Rows of a single length cannot separate the cost of a tile from that of a segment. */
    found = due;
    assert_false(fig_tune_fit_units(points, 4, &due, &found));
    assert_int_equal(found.once, 0);
    for (int p = 0; p < PROBES; p++)
        points[p].is_probe = 0;
    assert_false(fig_tune_fit_units(points, PROBES, &due, &found));
    assert_int_equal(found.tile_ns, 0);
}

/* ---- The choice between variants */

enum { VARIANTS = 3, CELLS = 20, TRIALS = VARIANTS * CELLS };

/* Makes the points of CELLS steps in VARIANTS variants; each time has a random relative error of up
 * to `noise`. The steps are so small that the memory's rate does not hide the other figures. */
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

/* Here each fitted time is good, but the slower variant looks slightly cheaper. */
static void figures_that_choose_wrongly_are_adjusted(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{POINT(0, 0, 0, 1100), 0, 0}, {POINT(0, 0, 0, 1000), 0, 1}};
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

/* The loss is a sum over cells, and each cell compares only the variants that were measured in
 * it. */
static void the_loss_is_the_sum_over_cells(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{POINT(0, 0, 0, 300), 4, 0}, {POINT(0, 0, 0, 200), 4, 1},
                             {POINT(0, 9, 0, 500), 5, 0}, {POINT(0, 9, 0, 900), 5, 1},
                             {POINT(0, 0, 0, 800), 6, 1}, {POINT(0, 0, 9, 150), 7, 1},
                             {POINT(0, 0, 9, 100), 7, 0}};
    const fig_tune_costs costs[] = {{.start_ns = 1, .bytes_per_us = 1, .segment_ns = 9},
                                    {.start_ns = 2, .bytes_per_us = 1, .piece_ns = 3}};
    const fig_tune_trials trials = {rows, 7};
    /* Cell 4: the chosen variant takes 300, the fastest 200. Cell 5: it is the fastest. Cell 6: it
     * is the only one. Cell 7: it takes 150, the fastest 100. */
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

/* Uses similar variants, and times with random errors. */
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

/* Without the limit, the adjusted figure would exceed what the library accepts. */
static void no_figure_is_leaned_past_its_limit(void **state) {
    (void)state;
    fig_tune_trial rows[] = {{POINT(0, 0, 0, 2e8), 0, 0}};
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

static void malformed_lines_are_refused(void **state) {
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
        cmocka_unit_test(probes_do_not_bend_the_figures),
        cmocka_unit_test(figures_below_0_become_0),
        cmocka_unit_test(few_points_give_figures_too_and_none_gives_none),
        cmocka_unit_test(units_are_found_again),
        cmocka_unit_test(units_from_times_that_are_off_are_near),
        cmocka_unit_test(units_that_predict_worse_are_not_kept),
        cmocka_unit_test(few_probes_leave_the_tables_units),
        cmocka_unit_test(figures_that_choose_wrongly_are_adjusted),
        cmocka_unit_test(the_loss_is_the_sum_over_cells),
        cmocka_unit_test(figures_that_choose_right_stay),
        cmocka_unit_test(leaning_loses_less_and_no_figure_goes_far),
        cmocka_unit_test(no_figure_is_leaned_past_its_limit),
        cmocka_unit_test(times_read_as_they_were_written),
        cmocka_unit_test(malformed_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
