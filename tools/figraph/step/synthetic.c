/* synthetic.c: makes random numbers, permutations, and elements assembled from their bits.
 *
 * Assembling bits avoids rounding to 16 bits. The library must round correctly, and a checker
 * must not share its rounding code. */
#include "tools/figraph/step/synthetic.h"

#include <assert.h>
#include <string.h>

/* Marsaglia's xorshift; its state is never 0. */
static uint64_t next(fig_synthetic *synthetic) {
    uint64_t x = synthetic->state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return synthetic->state = x;
}

void fig_synthetic_seed(fig_synthetic *synthetic, uint64_t seed) {
    synthetic->state = seed * UINT64_C(0x9e3779b97f4a7c15) ^ UINT64_C(0x2545f4914f6cdd1d);
    if (synthetic->state == 0) synthetic->state = 1;
    for (int i = 0; i < 8; i++)
        next(synthetic);
}

int32_t fig_synthetic_below(fig_synthetic *synthetic, int32_t below) {
    assert(below >= 1);
    return (int32_t)((next(synthetic) >> 32) % (uint64_t)below);
}

void fig_synthetic_permutation(fig_synthetic *synthetic, int32_t *values, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        int32_t j = fig_synthetic_below(synthetic, i + 1);
        values[i] = values[j];
        values[j] = i;
    }
}

typedef struct shape {
    int mantissa_bits, sign_bit;
    uint32_t exponent; /* the largest biased exponent */
} shape;

static uint32_t make_element(fig_synthetic *synthetic, const shape *shape_of) {
    uint64_t random = next(synthetic);
    uint32_t sign = (uint32_t)(random >> 63) << shape_of->sign_bit;
    uint32_t exponent = shape_of->exponent - (uint32_t)(random >> 32 & 0xffff) % 5;
    uint32_t mantissa = (uint32_t)random & ((UINT32_C(1) << shape_of->mantissa_bits) - 1);
    return sign | exponent << shape_of->mantissa_bits | mantissa;
}

void fig_synthetic_fill(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count) {
    static const shape shapes[] = {[FIG_F32] = {23, 31, 127},
                                   [FIG_F16] = {10, 15, 15},
                                   [FIG_BF16] = {7, 15, 127},
                                   [FIG_E4M3] = {3, 7, 14},
                                   [FIG_E5M2] = {2, 7, 22}};
    size_t bytes = fig_synthetic_bytes(dtype);
    uint8_t *to = elements;
    assert(dtype >= FIG_F32 && dtype <= FIG_E5M2);
    for (size_t i = 0; i < count; i++) {
        uint32_t element = make_element(synthetic, &shapes[dtype]);
        uint16_t half = (uint16_t)element;
        uint8_t quarter = (uint8_t)element;
        const void *from = bytes == 4   ? (const void *)&element
                           : bytes == 2 ? (const void *)&half
                                        : (const void *)&quarter;
        memcpy(to + i * bytes, from, bytes);
    }
}

void fig_synthetic_scales(fig_synthetic *synthetic, float *scales, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t exponent = 119 + (uint32_t)fig_synthetic_below(synthetic, 2);
        uint32_t element = exponent << 23 | (uint32_t)fig_synthetic_below(synthetic, 1 << 23);
        memcpy(scales + i, &element, sizeof element);
    }
}

void fig_synthetic_array(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count) {
    enum { LOW = 119, OCTAVES = 8, ONE = 127 };
    uint8_t *to = elements;
    assert(dtype == FIG_F32 || dtype == FIG_BF16 || dtype == FIG_I32);
    for (size_t i = 0; i < count; i++) {
        const int32_t whole = 1 + fig_synthetic_below(synthetic, 16);
        uint32_t element = (uint32_t)fig_synthetic_below(synthetic, 1 << 23);
        if (count == 1) {
            element |= (uint32_t)ONE << 23;
        } else {
            element |= (uint32_t)(LOW + fig_synthetic_below(synthetic, OCTAVES)) << 23;
            element |= (uint32_t)fig_synthetic_below(synthetic, 2) << 31;
        }
        const uint16_t half = (uint16_t)(element >> 16);
        if (dtype == FIG_I32) memcpy(to + i * sizeof whole, &whole, sizeof whole);
        if (dtype == FIG_F32) memcpy(to + i * sizeof element, &element, sizeof element);
        if (dtype == FIG_BF16) memcpy(to + i * sizeof half, &half, sizeof half);
    }
}

size_t fig_synthetic_bytes(fig_dtype dtype) {
    switch (dtype) {
    case FIG_E4M3:
    case FIG_E5M2: return 1;
    case FIG_F16:
    case FIG_BF16: return 2;
    case FIG_F32:
    case FIG_I32: return 4;
    case FIG_I64: return 8;
    }
    return 0;
}
