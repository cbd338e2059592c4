/* test_numeric.c: 16-bit floats read and round as IEEE 754 says.
 *
 * The second truth is arithmetic in double: a value is mantissa * 2^exponent, and rounding is
 * rint() of it in units of its last place. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/numeric.h"
#include "tests/support/twin.h"

static uint64_t seed;

typedef struct float_format {
    const char *name;
    int mantissa_bits, least_exponent;
    uint16_t infinity; /* exponent all ones, mantissa 0 */
    float (*read)(uint16_t code);
    uint16_t (*round)(float x);
} float_format;

static float read_f16(uint16_t code) {
    return fig_numeric_of_f16(code);
}
static uint16_t round_f16(float x) {
    return fig_numeric_f16(x);
}
static float read_bf16(uint16_t code) {
    return fig_numeric_of_bf16(code);
}
static uint16_t round_bf16(float x) {
    return fig_numeric_bf16(x);
}

static const float_format formats[] = {{"f16", 10, -14, 0x7c00, read_f16, round_f16},
                                       {"bf16", 7, -126, 0x7f80, read_bf16, round_bf16}};
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

/* Of a code whose value is finite or infinite. */
static double value_of(const float_format *format, uint32_t code) {
    uint32_t magnitude = code & 0x7fff;
    int exponent = (int)(magnitude >> format->mantissa_bits);
    double mantissa = magnitude & ((1u << format->mantissa_bits) - 1);
    if (exponent > 0) mantissa += 1u << format->mantissa_bits;
    if (exponent == 0) exponent = 1;
    double x = ldexp(mantissa, exponent - 1 + format->least_exponent - format->mantissa_bits);
    if (magnitude == format->infinity) x = INFINITY;
    return code & 0x8000 ? -x : x;
}

/* The nearest number that the format has. rint() takes ties to even. */
static double nearest(const float_format *format, double x) {
    if (x == 0 || isinf(x)) return x;
    int exponent = ilogb(x);
    if (exponent < format->least_exponent) exponent = format->least_exponent;
    double unit = ldexp(1, exponent - format->mantissa_bits);
    double rounded = rint(x / unit) * unit;
    double largest = value_of(format, format->infinity - 1u);
    return fabs(rounded) > largest ? copysign(INFINITY, x) : rounded;
}

static int same(double a, double b) {
    return a == b && signbit(a) == signbit(b);
}

static void check_rounding(const float_format *format, float x) {
    uint16_t code = format->round(x);
    double want = nearest(format, x), got = value_of(format, code);
    if ((code & 0x7fff) > format->infinity) got = NAN;
    if (same(got, want)) return;
    fail_msg("%s of %a (0x%08x): got 0x%04x = %a, want %a exactly; seed 0x%llx", format->name,
             (double)x, fig_numeric_bits(x), code, got, want, (unsigned long long)seed);
}

static void every_code_reads_as_its_value(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (uint32_t code = 0; code <= 0xffff; code++) {
            double got = (double)formats[f].read((uint16_t)code);
            double want = value_of(&formats[f], code);
            int nan = (code & 0x7fff) > formats[f].infinity;
            if (nan ? isnan(got) : same(got, want)) continue;
            fail_msg("%s 0x%04x: got %a, want %a exactly", formats[f].name, code, got, want);
        }
    }
}

static void every_code_comes_back_and_a_nan_comes_back_quiet(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        uint16_t quiet = (uint16_t)(1u << (formats[f].mantissa_bits - 1));
        for (uint32_t code = 0; code <= 0xffff; code++) {
            int nan = (code & 0x7fff) > formats[f].infinity;
            uint32_t want = nan ? code | quiet : code;
            uint32_t got = formats[f].round(formats[f].read((uint16_t)code));
            if (got == want) continue;
            fail_msg("%s 0x%04x: came back as 0x%04x, want 0x%04x", formats[f].name, code, got,
                     want);
        }
    }
}

static void a_nan_stays_a_quiet_nan_with_its_sign_and_upper_payload(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < 1 << 20; i++) {
        uint32_t payload = (uint32_t)fig_random_bits(&random) & 0x007fffff;
        uint32_t sign = (uint32_t)fig_random_bits(&random) & 0x80000000;
        if (i < 23) payload = 1u << i;
        if (payload == 0) continue;
        float x = fig_numeric_of_bits(sign | 0x7f800000 | payload);
        for (int f = 0; f < FORMAT_COUNT; f++) {
            int bits = formats[f].mantissa_bits;
            uint32_t kept = payload >> (23 - bits) | 1u << (bits - 1);
            uint32_t want = sign >> 16 | formats[f].infinity | kept;
            uint32_t got = formats[f].round(x);
            if (got == want) continue;
            fail_msg("%s of NaN 0x%08x: got 0x%04x, want 0x%04x; seed 0x%llx", formats[f].name,
                     fig_numeric_bits(x), got, want, (unsigned long long)seed);
        }
    }
}

static void midpoints_go_to_the_even_neighbour_and_beside_them_to_the_nearest(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (uint32_t code = 0; code + 1 < formats[f].infinity; code++) {
            double low = value_of(&formats[f], code), high = value_of(&formats[f], code + 1);
            float middle = (float)((low + high) / 2);
            assert_true((double)middle == (low + high) / 2);
            uint32_t even = code & 1 ? code + 1 : code;
            assert_int_equal(formats[f].round(middle), even);
            assert_int_equal(formats[f].round(-middle), even | 0x8000);
            assert_int_equal(formats[f].round(nextafterf(middle, 0)), code);
            assert_int_equal(formats[f].round(nextafterf(middle, INFINITY)), code + 1);
            check_rounding(&formats[f], nextafterf((float)high, 0));
            check_rounding(&formats[f], nextafterf(-(float)high, -INFINITY));
        }
    }
}

static void what_rounds_past_the_largest_is_infinite(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        uint16_t largest = (uint16_t)(formats[f].infinity - 1);
        double last = value_of(&formats[f], largest), before = value_of(&formats[f], largest - 1u);
        float half_past = (float)(last + (last - before) / 2);
        assert_int_equal(formats[f].round(nextafterf(half_past, 0)), largest);
        assert_int_equal(formats[f].round(half_past), formats[f].infinity);
        assert_int_equal(formats[f].round(-half_past), formats[f].infinity | 0x8000);
        assert_int_equal(formats[f].round(INFINITY), formats[f].infinity);
        assert_int_equal(formats[f].round(-INFINITY), formats[f].infinity | 0x8000);
        /* Every exponent past the format's own. */
        for (float x = half_past; x < INFINITY; x *= 1.5f)
            assert_int_equal(formats[f].round(x), formats[f].infinity);
    }
}

static void half_the_least_subnormal_and_less_is_zero_with_its_sign(void **state) {
    (void)state;
    for (int f = 0; f < FORMAT_COUNT; f++) {
        float half = (float)(value_of(&formats[f], 1) / 2);
        assert_int_equal(formats[f].round(half), 0);
        assert_int_equal(formats[f].round(-half), 0x8000);
        assert_int_equal(formats[f].round(nextafterf(half, 1)), 1);
        assert_int_equal(formats[f].round(0x1p-149f), 0);
        assert_int_equal(formats[f].round(0.0f), 0);
        assert_int_equal(formats[f].round(-0.0f), 0x8000);
    }
}

static void random_floats_round_as_double_arithmetic_does(void **state) {
    (void)state;
    fig_random random = fig_random_seed(seed);
    for (int i = 0; i < 1 << 20; i++) {
        float any = fig_numeric_of_bits((uint32_t)fig_random_bits(&random));
        /* Of all exponents, f16 has an eighth: draw some there too. */
        float near = ldexpf(fig_random_float(&random), fig_random_range(&random, -26, 17));
        for (int f = 0; f < FORMAT_COUNT; f++) {
            if (!isnan(any)) check_rounding(&formats[f], any);
            check_rounding(&formats[f], near);
        }
    }
}

static void rows_convert_as_single_elements_do_and_no_further(void **state) {
    (void)state;
    static const int32_t dtypes[] = {FIG_F32, FIG_F16, FIG_BF16};
    fig_random random = fig_random_seed(seed);
    for (int32_t count = 0; count <= 70; count++) {
        for (int d = 0; d < 3; d++) {
            fig_twin_array array = fig_twin_array_make(dtypes[d], 80);
            float row[80], back[80];
            for (int i = 0; i < 80; i++)
                row[i] = back[i] = fig_random_normal(&random);
            fig_twin_array_allow(&array, 5, count);
            fig_numeric_store_row(array.data, dtypes[d], 5, row, count);
            fig_twin_array_check(&array, "stored row");
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
            fig_twin_array_free(&array);
        }
    }
}

static void every_dtype_has_its_bytes_and_no_other_code_has(void **state) {
    (void)state;
    static const int32_t bytes[16] = {
        [FIG_F32] = 4, [FIG_F16] = 2, [FIG_BF16] = 2, [FIG_I32] = 4, [FIG_I64] = 8};
    for (int32_t dtype = 0; dtype < 16; dtype++)
        assert_int_equal(fig_numeric_bytes(dtype), bytes[dtype]);
    assert_int_equal(fig_numeric_bytes(-1), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_reads_as_its_value),
        cmocka_unit_test(every_code_comes_back_and_a_nan_comes_back_quiet),
        cmocka_unit_test(a_nan_stays_a_quiet_nan_with_its_sign_and_upper_payload),
        cmocka_unit_test(midpoints_go_to_the_even_neighbour_and_beside_them_to_the_nearest),
        cmocka_unit_test(what_rounds_past_the_largest_is_infinite),
        cmocka_unit_test(half_the_least_subnormal_and_less_is_zero_with_its_sign),
        cmocka_unit_test(random_floats_round_as_double_arithmetic_does),
        cmocka_unit_test(rows_convert_as_single_elements_do_and_no_further),
        cmocka_unit_test(every_dtype_has_its_bytes_and_no_other_code_has),
    };
    seed = fig_twin_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
