/* test_tune_fit.c: figures are found again from times that they made, and none is below 0; times
 * are read as they were written. */
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
#include "tools/figraph/report.h"
#include "tools/figraph/tune_fit.h"
#include "tools/figraph/tune_times.h"

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
        cmocka_unit_test(times_read_as_they_were_written),
        cmocka_unit_test(lines_that_are_no_times_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
