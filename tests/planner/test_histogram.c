/* test_histogram.c: tests that each time falls into one bin, that a bin is an eighth of its octave,
 * and that a percentile agrees, up to an eighth of an octave, with the percentile of a sorted
 * array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "planner/histogram.h"
#include "tests/support/random.h"

enum { LAST = FIG_HISTOGRAM_BINS - 1 };

/* Finds the first time of each bin, in order: 16 bins of 1 ns, then 8 bins in each octave. */
static void walk_bins(int64_t firsts[FIG_HISTOGRAM_BINS + 1]) {
    int64_t time = 0, width = 1;
    for (int32_t bin = 0; bin <= FIG_HISTOGRAM_BINS; bin++) {
        if (bin >= 16 && bin % 8 == 0) width *= 2;
        firsts[bin] = time;
        time += width;
    }
}

static void every_bin_begins_where_the_one_before_ends(void **state) {
    (void)state;
    int64_t firsts[FIG_HISTOGRAM_BINS + 1];
    walk_bins(firsts);
    for (int32_t bin = 0; bin < FIG_HISTOGRAM_BINS; bin++) {
        assert_int_equal(fig_histogram_bin(firsts[bin]), bin);
        assert_int_equal(fig_histogram_bin(firsts[bin + 1] - 1), bin);
    }
    /* Times of 14 s and more fall into the last bin, which has no upper end. */
    assert_in_range(firsts[LAST], 14000000000, 17200000000);
    assert_int_equal(fig_histogram_bin(firsts[LAST + 1]), LAST);
    assert_int_equal(fig_histogram_bin(INT64_MAX), LAST);
    assert_int_equal(fig_histogram_bin(-1), 0);
    assert_int_equal(fig_histogram_bin(INT64_MIN), 0);
}

static void longer_times_are_in_no_earlier_bin(void **state) {
    (void)state;
    fig_random random = fig_random_seed(1);
    int32_t before = 0;
    for (int64_t ns = 0; ns < 1 << 20; ns++) {
        const int32_t bin = fig_histogram_bin(ns);
        assert_in_range(bin, before, before + 1);
        before = bin;
    }
    for (int draw = 0; draw < 100000; draw++) {
        const int64_t a = (int64_t)(fig_random_bits(&random) >> fig_random_range(&random, 1, 63));
        const int64_t b = (int64_t)(fig_random_bits(&random) >> fig_random_range(&random, 1, 63));
        const int32_t bin_a = fig_histogram_bin(a), bin_b = fig_histogram_bin(b);
        assert_true(a <= b ? bin_a <= bin_b : bin_a >= bin_b);
    }
}

/* The last bin has no upper end, so the longest time takes its place. */
static void a_percentile_past_all_bins_is_the_longest_time(void **state) {
    (void)state;
    fig_histogram histogram = {0};
    fig_histogram_add(&histogram, 5);
    fig_histogram_add(&histogram, INT64_C(100000000000));
    assert_int_equal(fig_histogram_percentile(&histogram, 50), 5);
    assert_true(fig_histogram_percentile(&histogram, 51) == INT64_C(100000000000));
}

static void an_empty_histogram_has_no_time(void **state) {
    (void)state;
    const fig_histogram empty = {0};
    assert_int_equal(fig_histogram_percentile(&empty, 0), 0);
    assert_int_equal(fig_histogram_percentile(&empty, 50), 0);
    assert_int_equal(fig_histogram_percentile(&empty, 100), 0);
}

static void added_times_are_counted(void **state) {
    (void)state;
    fig_histogram histogram = {0};
    static const int64_t times[] = {700, 5, 700, -3, 1000000};
    for (int i = 0; i < 5; i++)
        fig_histogram_add(&histogram, times[i]);
    assert_int_equal(histogram.count, 5);
    assert_int_equal(histogram.sum, 700 + 5 + 700 + 0 + 1000000);
    assert_int_equal(histogram.least, 0);
    assert_int_equal(histogram.most, 1000000);
    assert_int_equal(histogram.bins[fig_histogram_bin(700)], 2);
    assert_int_equal(histogram.bins[0], 1);
    fig_histogram later = {0};
    fig_histogram_add(&later, 700);
    fig_histogram_add(&later, 600);
    assert_int_equal(later.least, 600);
    assert_int_equal(later.most, 700);
}

static int compare(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* Returns the smallest time in a sorted array such that at least `percent` of all times are not
 * greater. */
static int64_t percentile_of(const int64_t *times, int32_t count, double percent) {
    int32_t n = 0;
    while (n + 1 < count && (double)(n + 1) < (double)count * percent / 100)
        n++;
    return times[n];
}

static void a_percentile_is_within_an_eighth_of_the_sorted_array_s(void **state) {
    (void)state;
    enum { TIMES_MOST = 300 };
    static const double percents[] = {0, 0.1, 1, 5, 25, 50, 75, 90, 99, 99.9, 100};
    for (uint64_t seed = 0; seed < 2000; seed++) {
        fig_random random = fig_random_seed(seed);
        fig_histogram histogram = {0};
        int64_t times[TIMES_MOST];
        const int32_t count = fig_random_range(&random, 1, TIMES_MOST);
        const int bits = fig_random_range(&random, 1, 33);
        for (int32_t i = 0; i < count; i++) {
            times[i] = (int64_t)(fig_random_bits(&random) >> (64 - bits));
            fig_histogram_add(&histogram, times[i]);
        }
        qsort(times, (size_t)count, sizeof times[0], compare);
        for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
            const int64_t truth = percentile_of(times, count, percents[i]);
            const int64_t said = fig_histogram_percentile(&histogram, percents[i]);
            if (said < truth || said > truth + truth / 8 || said > times[count - 1])
                fail_msg("seed %d, %g percent: %lld, sorted %lld", (int)seed, percents[i],
                         (long long)said, (long long)truth);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bin_begins_where_the_one_before_ends),
        cmocka_unit_test(longer_times_are_in_no_earlier_bin),
        cmocka_unit_test(a_percentile_past_all_bins_is_the_longest_time),
        cmocka_unit_test(an_empty_histogram_has_no_time),
        cmocka_unit_test(added_times_are_counted),
        cmocka_unit_test(a_percentile_is_within_an_eighth_of_the_sorted_array_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
