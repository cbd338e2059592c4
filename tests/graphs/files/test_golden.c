/* test_golden.c: tests that a file of an earlier library still computes the same numbers.
 *
 * tests/golden/NAME.numbers holds the results that NAME.fig had in the library that made it, for
 * the inputs of golden.c. The file is one zstd frame. For each tensor it has the count of numbers
 * that changed, and then the index and the bits of each, both u32. Since then the library may split
 * the work at other places, which changes the last bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <zstd.h>

#include "kernels/common/numeric.h"
#include "tests/support/files/golden.h"

enum { STORED_LIMIT = 1 << 20, NUMBERS_LIMIT = 1 << 20 };

typedef struct numbers {
    uint32_t words[NUMBERS_LIMIT / 4];
    size_t count, next;
} numbers;

static void read_numbers(numbers *of, const char *path) {
    static uint8_t stored[STORED_LIMIT];
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s is not there", path);
    const size_t bytes = fread(stored, 1, sizeof stored, file);
    fclose(file);
    const size_t raw = ZSTD_decompress(of->words, sizeof of->words, stored, bytes);
    assert_false(ZSTD_isError(raw));
    of->count = raw / sizeof of->words[0];
    of->next = 0;
}

static uint32_t next_of(numbers *of) {
    assert_true(of->next < of->count);
    return of->words[of->next++];
}

static uint32_t bits_at(const fig_golden_tensor *tensor, const uint8_t *array, int64_t index) {
    uint32_t bits = 0;
    memcpy(&bits, array + (size_t)index * tensor->number_bytes,
           tensor->number_bytes < sizeof bits ? tensor->number_bytes : sizeof bits);
    return bits;
}

static float value_of(fig_dtype dtype, uint32_t bits) {
    switch (dtype) {
    case FIG_F32: return fig_numeric_of_bits(bits);
    case FIG_BF16: return fig_numeric_of_bf16((uint16_t)bits);
    case FIG_F16: return fig_numeric_of_f16((uint16_t)bits);
    case FIG_E4M3: return fig_numeric_of_e4m3((uint8_t)bits);
    default: return (float)(int32_t)bits;
    }
}

/* Returns one unit in the last place, relative to the number. The unit of f32 is larger, since f32
 * results are sums of several numbers. */
static double unit_of(fig_dtype dtype) {
    switch (dtype) {
    case FIG_F32: return 1e-5;
    case FIG_BF16: return 0x1p-7;
    case FIG_F16: return 0x1p-10;
    case FIG_E4M3: return 0x1p-3;
    default: return 0;
    }
}

static void compare(const fig_golden_tensor *tensor, int64_t index, uint32_t due_bits) {
    const fig_dtype dtype = tensor->info.dtype;
    const uint32_t bits = bits_at(tensor, tensor->made, index);
    if (bits == due_bits) return;
    const double made = value_of(dtype, bits), due = value_of(dtype, due_bits);
    const double tolerance = 2 * unit_of(dtype) * fmax(fabs(due), 0.0625);
    if (!(fabs(made - due) <= tolerance))
        fail_msg("%s: number %lld is %g, it was %g, tolerance %g", tensor->info.name,
                 (long long)index, made, due, tolerance);
}

/* Numbers that the file does not list must be unchanged. */
static void compare_tensor(const fig_golden_tensor *tensor, numbers *due) {
    uint32_t left = next_of(due);
    uint32_t index = left > 0 ? next_of(due) : UINT32_MAX;
    for (int64_t i = 0; i < tensor->count; i++) {
        if (i != index) {
            compare(tensor, i, bits_at(tensor, tensor->given, i));
            continue;
        }
        compare(tensor, i, next_of(due));
        index = --left > 0 ? next_of(due) : UINT32_MAX;
    }
    assert_int_equal(left, 0);
}

static void files_compute_what_they_did(void **state) {
    (void)state;
    static const struct {
        const char *file, *numbers;
        int32_t tensors;
    } all[] = {
        {"tests/golden/mixed.fig", "tests/golden/mixed.numbers", 16},
        {"tests/golden/breadth.fig", "tests/golden/breadth.numbers", 37},
        {"tests/golden/families.fig", "tests/golden/families.numbers", 36},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        static fig_golden golden;
        static numbers due;
        read_numbers(&due, all[i].numbers);
        fig_golden_run(&golden, all[i].file);
        assert_int_equal(golden.tensor_count, all[i].tensors);
        for (int32_t t = 0; t < golden.tensor_count; t++)
            compare_tensor(&golden.tensors[t], &due);
        assert_int_equal(due.next, due.count);
        fig_golden_close(&golden);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_compute_what_they_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
