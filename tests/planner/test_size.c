/* test_size.c: tests that no computation of a size wraps around unnoticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "planner/size.h"

static void a_sum_that_fits_is_given(void **state) {
    (void)state;
    size_t out = 0;
    assert_int_equal(fig_size_add(&out, SIZE_MAX - 1, 1), 0);
    assert_true(out == SIZE_MAX);
}

static void a_sum_that_wraps_is_refused_and_out_left_alone(void **state) {
    (void)state;
    size_t out = 7;
    assert_int_equal(fig_size_add(&out, SIZE_MAX, 1), 1);
    assert_int_equal(fig_size_add(&out, SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1), 1);
    assert_int_equal(out, 7);
}

static void a_product_that_fits_is_given(void **state) {
    (void)state;
    size_t out = 7;
    assert_int_equal(fig_size_multiply(&out, (size_t)1 << 32, UINT32_MAX), 0);
    assert_true(out == (size_t)UINT32_MAX << 32);
    assert_int_equal(fig_size_multiply(&out, SIZE_MAX, 0), 0);
    assert_int_equal(out, 0);
}

static void a_product_that_wraps_is_refused_and_out_left_alone(void **state) {
    (void)state;
    size_t out = 7;
    assert_int_equal(fig_size_multiply(&out, (size_t)1 << 32, (size_t)1 << 32), 1);
    assert_int_equal(out, 7);
}

static void align_goes_up_to_the_unit_and_no_further(void **state) {
    (void)state;
    for (uint64_t bytes = 0; bytes <= 64; bytes++) {
        uint64_t expected = bytes;
        while (expected % 16 != 0)
            expected++;
        assert_int_equal(fig_size_align(bytes, 16), expected);
    }
    assert_true(fig_size_align((UINT64_C(1) << 40) + 1, 4096) == (UINT64_C(1) << 40) + 4096);
}

static void ceil_div_counts_a_part_as_a_whole(void **state) {
    (void)state;
    for (int32_t a = 0; a <= 40; a++) {
        for (int32_t b = 1; b <= 12; b++) {
            int32_t expected = 0;
            while (expected * b < a)
                expected++;
            assert_int_equal(fig_size_ceil_div(a, b), expected);
        }
    }
    assert_int_equal(fig_size_ceil_div(INT32_MAX, 2), 1 << 30);
    assert_int_equal(fig_size_ceil_div(INT32_MAX, INT32_MAX), 1);
}

static void min_takes_the_smaller(void **state) {
    (void)state;
    assert_int_equal(fig_size_min(3, 4), 3);
    assert_int_equal(fig_size_min(4, 3), 3);
    assert_int_equal(fig_size_min(-1, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_that_fits_is_given),
        cmocka_unit_test(a_sum_that_wraps_is_refused_and_out_left_alone),
        cmocka_unit_test(a_product_that_fits_is_given),
        cmocka_unit_test(a_product_that_wraps_is_refused_and_out_left_alone),
        cmocka_unit_test(align_goes_up_to_the_unit_and_no_further),
        cmocka_unit_test(ceil_div_counts_a_part_as_a_whole),
        cmocka_unit_test(min_takes_the_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
