/* test_truth.c: tests that the float64 reference reads and rounds numbers as the kernels do, and
 * that truth_ulp() is the distance between neighbouring numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/common/numeric.h"
#include "tools/figraph/truth/truth.h"

typedef struct small_float {
    fig_dtype dtype;
    uint32_t code_count;
    uint32_t largest; /* the code of the largest number */
} small_float;

static const small_float floats[] = {{FIG_F16, 0x10000, 0x7bff},
                                     {FIG_BF16, 0x10000, 0x7f7f},
                                     {FIG_E4M3, 0x100, 0x7e},
                                     {FIG_E5M2, 0x100, 0x7b}};
enum { FLOAT_COUNT = sizeof floats / sizeof floats[0] };

/* A code, and the next code. */
typedef struct code_pair {
    uint16_t words[2];
} code_pair;

static code_pair pair_of(const small_float *f, uint32_t code) {
    code_pair pair = {{(uint16_t)code, (uint16_t)(code + 1)}};
    uint8_t bytes[2] = {(uint8_t)code, (uint8_t)(code + 1)};
    if (f->code_count == 0x100) memcpy(pair.words, bytes, sizeof bytes);
    return pair;
}

static void truth_and_the_kernels_read_every_code_alike(void **state) {
    (void)state;
    for (const small_float *f = floats; f < floats + FLOAT_COUNT; f++) {
        for (uint32_t code = 0; code < f->code_count; code++) {
            code_pair pair = pair_of(f, code);
            double want = truth_load(pair.words, f->dtype, 0);
            double got = (double)fig_numeric_load(pair.words, (int32_t)f->dtype, 0);
            assert_true(want == got || (isnan(want) && isnan(got)));
        }
    }
}

/* Reads a row of all codes but the first three. */
static void a_row_is_read_like_its_single_codes(void **state) {
    (void)state;
    static uint16_t codes[0x10000];
    static double row[0x10000];
    for (const small_float *f = floats; f < floats + FLOAT_COUNT; f++) {
        for (uint32_t code = 0; code < f->code_count; code++) {
            if (f->code_count == 0x100) {
                ((uint8_t *)codes)[code] = (uint8_t)code;
            } else {
                codes[code] = (uint16_t)code;
            }
        }
        const int32_t count = (int32_t)f->code_count - 3;
        row[count] = 1234;
        truth_load_row(codes, f->dtype, 3, count, row);
        for (int32_t i = 0; i < count; i++) {
            const double want = truth_load(codes, f->dtype, i + 3);
            assert_true(row[i] == want || (isnan(row[i]) && isnan(want)));
        }
        assert_true(row[count] == 1234);
    }
}

static void truth_ulp_is_the_distance_between_neighbouring_codes(void **state) {
    (void)state;
    for (const small_float *f = floats; f < floats + FLOAT_COUNT; f++) {
        for (uint32_t code = 0; code < f->largest; code++) {
            code_pair pair = pair_of(f, code);
            double low = truth_load(pair.words, f->dtype, 0);
            double high = truth_load(pair.words, f->dtype, 1);
            assert_true(truth_ulp(f->dtype, low) == high - low);
            assert_true(truth_ulp(f->dtype, -low) == high - low);
        }
        assert_true(truth_ulp(f->dtype, 0) == truth_ulp(f->dtype, 0x1p-1074));
        assert_true(isinf(truth_ulp(f->dtype, -INFINITY)));
        assert_true(truth_ulp(f->dtype, NAN) == truth_ulp(f->dtype, 0));
    }
}

/* Stores numbers of both signs up to the largest, including ties between neighbours and numbers on
 * either side of a tie, and a number that becomes infinity. */
static void truth_stores_the_nearest_number_as_the_kernels_do(void **state) {
    (void)state;
    for (const small_float *f = floats; f < floats + 2; f++) {
        for (uint32_t code = 0; code < f->largest; code++) {
            const code_pair pair = pair_of(f, code);
            const double low = truth_load(pair.words, f->dtype, 0);
            const double unit = truth_load(pair.words, f->dtype, 1) - low;
            for (int eighths = 0; eighths <= 8; eighths++) {
                const double x = (code & 1 ? -1 : 1) * (low + unit * eighths / 8);
                const float single = (float)x;
                /* want has room for an f32, but only 16 bits are used here */
                uint16_t want[2], got;
                if ((double)single != x) continue; /* kernels round f32 numbers */
                fig_numeric_store_row(want, (int32_t)f->dtype, 0, &single, 1);
                truth_store(&got, f->dtype, 0, x);
                assert_int_equal(got, want[0]);
            }
        }
        const double beyond = 2 * truth_load(&(uint16_t){(uint16_t)f->largest}, f->dtype, 0);
        uint16_t got;
        truth_store(&got, f->dtype, 0, beyond);
        assert_int_equal(got, f->largest + 1);
    }
    static const float singles[] = {0, -0.0f, 1, -1.5f, 0x1p-149f, -0x1.fffffep127f};
    for (int i = 0; i < 6; i++) {
        float got;
        truth_store(&got, FIG_F32, 0, (double)singles[i]);
        assert_memory_equal(&got, &singles[i], sizeof got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truth_and_the_kernels_read_every_code_alike),
        cmocka_unit_test(a_row_is_read_like_its_single_codes),
        cmocka_unit_test(truth_ulp_is_the_distance_between_neighbouring_codes),
        cmocka_unit_test(truth_stores_the_nearest_number_as_the_kernels_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
