/* test_numeric.c: tests that 16-bit and 8-bit floats are read and rounded as their formats define.
 *
 * The expected values are computed in double: mantissa * 2^exponent, rounded by rint() in units of
 * the last place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tests/support/kernels/reference.h"

static uint64_t seed;

typedef struct float_format {
    const char *name;
    int mantissa_bits, least_exponent;
    uint32_t sign;    /* the sign bit */
    uint32_t largest; /* the code of the largest number */
    uint32_t nan;     /* the bits that are set in every NaN that round() returns */
    int has_infinity; /* 1: the code after the largest number's is infinity */
    int saturates;    /* 1: numbers beyond the range round to the largest number */
    float (*read)(uint32_t code);
    uint32_t (*round)(float x);
} float_format;

static float read_f16(uint32_t code) {
    return fig_numeric_of_f16((uint16_t)code);
}
static uint32_t round_f16(float x) {
    return fig_numeric_f16(x);
}
static float read_bf16(uint32_t code) {
    return fig_numeric_of_bf16((uint16_t)code);
}
static uint32_t round_bf16(float x) {
    return fig_numeric_bf16(x);
}
static float read_e4m3(uint32_t code) {
    return fig_numeric_of_e4m3((uint8_t)code);
}
static uint32_t round_e4m3(float x) {
    return fig_numeric_e4m3(x);
}
static float read_e5m2(uint32_t code) {
    return fig_numeric_of_e5m2((uint8_t)code);
}
static uint32_t round_e5m2(float x) {
    return fig_numeric_e5m2(x);
}

enum { F16, BF16, E4M3, E5M2, FORMAT_COUNT };
static const float_format formats[FORMAT_COUNT] = {
    [F16] = {"f16", 10, -14, 0x8000, 0x7bff, 0x7e00, 1, 0, read_f16, round_f16},
    [BF16] = {"bf16", 7, -126, 0x8000, 0x7f7f, 0x7fc0, 1, 0, read_bf16, round_bf16},
    [E4M3] = {"e4m3", 3, -6, 0x80, 0x7e, 0x7f, 0, 1, read_e4m3, round_e4m3},
    [E5M2] = {"e5m2", 2, -14, 0x80, 0x7b, 0x7e, 1, 1, read_e5m2, round_e5m2}};

static uint32_t code_count(const float_format *format) {
    return 2 * format->sign;
}

static int is_infinity(const float_format *format, uint32_t code) {
    return format->has_infinity && (code & ~format->sign) == format->largest + 1;
}

static int is_nan(const float_format *format, uint32_t code) {
    return (code & ~format->sign) > format->largest && !is_infinity(format, code);
}

/* Returns the value of a code that is not a NaN. */
static double value_of(const float_format *format, uint32_t code) {
    uint32_t magnitude = code & ~format->sign;
    int exponent = (int)(magnitude >> format->mantissa_bits);
    double mantissa = magnitude & ((1u << format->mantissa_bits) - 1);
    if (exponent > 0) mantissa += 1u << format->mantissa_bits;
    if (exponent == 0) exponent = 1;
    double x = ldexp(mantissa, exponent - 1 + format->least_exponent - format->mantissa_bits);
    if (is_infinity(format, code)) x = INFINITY;
    return code & format->sign ? -x : x;
}

/* Returns the format's number nearest to x. rint() rounds ties to even. */
static double nearest(const float_format *format, double x) {
    double rounded = x;
    if (x != 0 && !isinf(x)) {
        int exponent = ilogb(x);
        if (exponent < format->least_exponent) exponent = format->least_exponent;
        double unit = ldexp(1, exponent - format->mantissa_bits);
        rounded = rint(x / unit) * unit;
    }
    double largest = value_of(format, format->largest);
    if (fabs(rounded) <= largest) return rounded;
    return copysign(format->saturates ? largest : INFINITY, x);
}

static int same(double a, double b) {
    return a == b && signbit(a) == signbit(b);
}

static void check_rounding(const float_format *format, float x) {
    uint32_t code = format->round(x);
    double want = nearest(format, x), got = is_nan(format, code) ? NAN : value_of(format, code);
    if (same(got, want)) return;
    fail_msg("%s of %a (0x%08x): got 0x%04x = %a, want %a exactly; seed 0x%llx", format->name,
             (double)x, fig_numeric_bits(x), code, got, want, (unsigned long long)seed);
}

static void every_code_reads_as_its_value(void **state) {
    (void)state;
    for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
        for (uint32_t code = 0; code < code_count(f); code++) {
            double got = (double)f->read(code);
            if (is_nan(f, code) ? isnan(got) : same(got, value_of(f, code))) continue;
            fail_msg("%s 0x%04x: got %a, want %a exactly", f->name, code, got, value_of(f, code));
        }
    }
}

static void every_code_survives_unless_it_saturates_and_a_nan_becomes_quiet(void **state) {
    (void)state;
    for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
        for (uint32_t code = 0; code < code_count(f); code++) {
            uint32_t want = is_nan(f, code) ? code | f->nan : code;
            if (is_infinity(f, code) && f->saturates) want = (code & f->sign) | f->largest;
            uint32_t got = f->round(f->read(code));
            if (got == want) continue;
            fail_msg("%s 0x%04x: came back as 0x%04x, want 0x%04x", f->name, code, got, want);
        }
    }
}

/* e4m3 has one NaN per sign, so its NaNs have no payload. */
static void a_nan_stays_a_quiet_nan_with_its_sign_and_upper_payload(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < 1 << 20; i++) {
        uint32_t payload = (uint32_t)fig_random_bits(&random) & 0x007fffff;
        uint32_t sign = (uint32_t)fig_random_bits(&random) >> 31;
        if (i < 23) payload = 1u << i;
        if (payload == 0) continue;
        float x = fig_numeric_of_bits(sign << 31 | 0x7f800000 | payload);
        for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
            uint32_t want = sign * f->sign | f->nan | payload >> (23 - f->mantissa_bits);
            uint32_t got = f->round(x);
            if (got == want) continue;
            fail_msg("%s of NaN 0x%08x: got 0x%04x, want 0x%04x; seed 0x%llx", f->name,
                     fig_numeric_bits(x), got, want, (unsigned long long)seed);
        }
    }
}

static void midpoints_go_to_the_even_neighbour_and_beside_them_to_the_nearest(void **state) {
    (void)state;
    for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
        for (uint32_t code = 0; code < f->largest; code++) {
            double low = value_of(f, code), high = value_of(f, code + 1);
            float middle = (float)((low + high) / 2);
            assert_true((double)middle == (low + high) / 2);
            uint32_t even = code & 1 ? code + 1 : code;
            assert_int_equal(f->round(middle), even);
            assert_int_equal(f->round(-middle), even | f->sign);
            assert_int_equal(f->round(nextafterf(middle, 0)), code);
            assert_int_equal(f->round(nextafterf(middle, INFINITY)), code + 1);
            check_rounding(f, nextafterf((float)high, 0));
            check_rounding(f, nextafterf(-(float)high, -INFINITY));
        }
    }
}

static void numbers_past_the_largest_become_infinite_or_saturate(void **state) {
    (void)state;
    for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
        double last = value_of(f, f->largest), before = value_of(f, f->largest - 1);
        float half_past = (float)(last + (last - before) / 2);
        uint32_t past = f->saturates ? f->largest : f->largest + 1;
        assert_int_equal(f->round(nextafterf(half_past, 0)), f->largest);
        assert_int_equal(f->round(half_past), past);
        assert_int_equal(f->round(-half_past), past | f->sign);
        assert_int_equal(f->round(INFINITY), past);
        assert_int_equal(f->round(-INFINITY), past | f->sign);
        /* Tests every exponent above the format's largest. */
        for (float x = half_past; x < INFINITY; x *= 1.5f)
            assert_int_equal(f->round(x), past);
    }
}

static void half_the_least_subnormal_and_less_is_zero_with_its_sign(void **state) {
    (void)state;
    for (const float_format *f = formats; f < formats + FORMAT_COUNT; f++) {
        float half = (float)(value_of(f, 1) / 2);
        assert_int_equal(f->round(half), 0);
        assert_int_equal(f->round(-half), f->sign);
        assert_int_equal(f->round(nextafterf(half, 1)), 1);
        assert_int_equal(f->round(0x1p-149f), 0);
        assert_int_equal(f->round(0.0f), 0);
        assert_int_equal(f->round(-0.0f), f->sign);
    }
}

static void every_16_bit_number_rounds_to_8_bits_as_double_arithmetic_does(void **state) {
    (void)state;
    for (int from = F16; from <= BF16; from++) {
        for (uint32_t code = 0; code <= 0xffff; code++) {
            for (int to = E4M3; to <= E5M2; to++) {
                float x = formats[from].read(code);
                if (!is_nan(&formats[from], code)) {
                    check_rounding(&formats[to], x);
                } else {
                    assert_true(is_nan(&formats[to], formats[to].round(x)));
                }
            }
        }
    }
}

/* Tests every upper half of an f32, each with lower halves around a tie. */
static void every_exponent_and_upper_mantissa_rounds_as_double_arithmetic_does(void **state) {
    (void)state;
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t upper = 0; upper <= 0xffff; upper++) {
        for (size_t i = 0; i < sizeof lower / sizeof lower[0]; i++) {
            float x = fig_numeric_of_bits(upper << 16 | lower[i]);
            for (int f = 0; f < FORMAT_COUNT && !isnan(x); f++)
                check_rounding(&formats[f], x);
        }
    }
}

/* A sanitizer sees no other code in more of them. */
#ifdef FIG_CHECK_THREADS /* builds with sanitizers define it */
enum { FLOATS = 1 << 17 };
#else
enum { FLOATS = 1 << 20 };
#endif

static void random_floats_round_as_double_arithmetic_does(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < FLOATS; i++) {
        float any = fig_numeric_of_bits((uint32_t)fig_random_bits(&random));
        /* f16 has only an eighth of f32's exponents, so some numbers are drawn from its range. */
        float near = ldexpf(fig_random_float(&random), fig_random_range(&random, -26, 17));
        for (int f = 0; f < FORMAT_COUNT; f++) {
            if (!isnan(any)) check_rounding(&formats[f], any);
            check_rounding(&formats[f], near);
        }
    }
}

static void rows_convert_as_single_elements_do_and_no_further(void **state) {
    (void)state;
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16, FIG_E4M3, FIG_E5M2};
    fig_random random = fig_random_seed(seed);
    for (int32_t count = 0; count <= 70; count++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
            fig_reference_array array = fig_reference_array_make(dtypes[d], 80);
            float row[80], back[80];
            for (int i = 0; i < 80; i++)
                row[i] = back[i] = fig_random_normal(&random);
            fig_reference_array_allow(&array, 5, count);
            fig_numeric_store_row(array.data, dtypes[d], 5, row, count);
            fig_reference_array_check(&array, "stored row");
            fig_numeric_load_row(back, count, array.data, dtypes[d], 5);
            for (int i = 0; i < 80; i++) {
                float want = row[i];
                if (i < count) {
                    fig_numeric_store(array.data, dtypes[d], 5 + i, row[i]);
                    want = fig_numeric_load(array.data, dtypes[d], 5 + i);
                }
                if (back[i] == want) continue;
                fail_msg("dtype %d, row of %d, element %d: got %a, want %a exactly; seed 0x%llx",
                         dtypes[d], count, i, (double)back[i], (double)want,
                         (unsigned long long)seed);
            }
            fig_reference_array_free(&array);
        }
    }
}

static void every_dtype_has_its_bytes_and_no_other_code_has(void **state) {
    (void)state;
    static const int32_t bytes[16] = {[FIG_F32] = 4,  [FIG_F16] = 2, [FIG_BF16] = 2, [FIG_E4M3] = 1,
                                      [FIG_E5M2] = 1, [FIG_I32] = 4, [FIG_I64] = 8};
    for (int32_t dtype = 0; dtype < 16; dtype++)
        assert_int_equal(fig_numeric_bytes(dtype), bytes[dtype]);
    assert_int_equal(fig_numeric_bytes(-1), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_reads_as_its_value),
        cmocka_unit_test(every_code_survives_unless_it_saturates_and_a_nan_becomes_quiet),
        cmocka_unit_test(a_nan_stays_a_quiet_nan_with_its_sign_and_upper_payload),
        cmocka_unit_test(midpoints_go_to_the_even_neighbour_and_beside_them_to_the_nearest),
        cmocka_unit_test(numbers_past_the_largest_become_infinite_or_saturate),
        cmocka_unit_test(half_the_least_subnormal_and_less_is_zero_with_its_sign),
        cmocka_unit_test(every_16_bit_number_rounds_to_8_bits_as_double_arithmetic_does),
        cmocka_unit_test(every_exponent_and_upper_mantissa_rounds_as_double_arithmetic_does),
        cmocka_unit_test(random_floats_round_as_double_arithmetic_does),
        cmocka_unit_test(rows_convert_as_single_elements_do_and_no_further),
        cmocka_unit_test(every_dtype_has_its_bytes_and_no_other_code_has),
    };
    seed = fig_reference_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
