/* numeric.h: converts the numbers of the cache and the activations to and from bits.
 *
 * Owns element sizes, the floats of 16 and 8 bits, and loads and stores by dtype code; a load
 * always gives f32. Conversions are integer arithmetic without branches, so gcc vectorises their
 * loops and nvcc produces the same bits without intrinsics. Invariant: f32 is rounded to a smaller
 * type once, to nearest, ties to even. A number too large for 16 bits becomes infinite. A number
 * too large for 8 bits, or infinity, becomes the largest number of the 8-bit type. A NaN stays a
 * quiet NaN with its sign and the part of its payload that fits. */
#ifndef FIG_KERNELS_NUMERIC_H
#define FIG_KERNELS_NUMERIC_H

#include <string.h>

#include "planner/size.h"
#include "include/figraph.h"

#define FIG_NUMERIC_LOG2_E 1.4426950408889634f

FIG_BOTH float fig_numeric_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FIG_BOTH uint32_t fig_numeric_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns x < limit ? a : b, for numbers below 2^31. It uses arithmetic, because gcc turns a choice
 * between floating-point values into a branch, and does not vectorise branches. */
FIG_BOTH uint32_t fig_numeric_choose(uint32_t x, uint32_t limit, uint32_t a, uint32_t b) {
    uint32_t below = 0u - ((x - limit) >> 31);
    return (a & below) | (b & ~below);
}

FIG_BOTH float fig_numeric_of_bf16(uint16_t code) {
    uint32_t bits = (uint32_t)code << 16;
    uint32_t quiet = (bits & 0x7fffffffu) > 0x7f800000u ? 0x00400000u : 0;
    return fig_numeric_of_bits(bits | quiet);
}

/* Rounds to bf16. Infinity stays unchanged. A number that rounds past the largest one carries into
 * infinity. */
FIG_BOTH uint16_t fig_numeric_bf16(float x) {
    uint32_t bits = fig_numeric_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x0040u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* f16 has 5 exponent bits, biased by 15, and 10 mantissa bits; f32 has 8, biased by 127, and 23. A
 * subnormal is built with the least normal exponent. This exponent implies a leading one, which is
 * then subtracted. The subtraction is exact and reads no f32 subnormal. */
FIG_BOTH float fig_numeric_of_f16(uint16_t code) {
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(code & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude | 0x7f800000u | (magnitude > 31u << 23 ? 0x00400000u : 0);
    float least = fig_numeric_of_bits(113u << 23);
    uint32_t small = fig_numeric_bits(fig_numeric_of_bits(normal + (1u << 23)) - least);
    uint32_t finite = fig_numeric_choose(magnitude, 1u << 23, small, normal);
    return fig_numeric_of_bits(sign | fig_numeric_choose(magnitude, 31u << 23, finite, special));
}

/* In f32 the last place of 0.5 is the unit of f16's subnormals, so adding 0.5 rounds a number to a
 * subnormal of f16. */
FIG_BOTH uint16_t fig_numeric_f16(float x) {
    uint32_t bits = fig_numeric_bits(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t shifted = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t normal = shifted < 0x7c00u ? shifted : 0x7c00u;
    uint32_t half = 126u << 23;
    uint32_t small = fig_numeric_bits(fig_numeric_of_bits(magnitude) + 0.5f) - half;
    uint32_t finite = fig_numeric_choose(magnitude, 113u << 23, small, normal);
    uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    return (uint16_t)(sign | fig_numeric_choose(0x7f800000u, magnitude, nan, finite));
}

/* The code is the upper byte of an f16: its exponent and the upper 2 bits of its mantissa. */
FIG_BOTH float fig_numeric_of_e5m2(uint8_t code) {
    return fig_numeric_of_f16((uint16_t)(code << 8));
}

/* 57344 is the largest number. In f32 the last place of 128 is the unit of the subnormals. */
FIG_BOTH uint8_t fig_numeric_e5m2(float x) {
    uint32_t bits = fig_numeric_bits(x);
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t largest = 0x47600000u;
    uint32_t finite = magnitude < largest ? magnitude : largest;
    uint32_t normal = (finite - (112u << 23) + 0xfffffu + (finite >> 21 & 1)) >> 21;
    uint32_t small = fig_numeric_bits(fig_numeric_of_bits(finite) + 128.0f) - (134u << 23);
    uint32_t rounded = fig_numeric_choose(finite, 113u << 23, small, normal);
    uint32_t nan = 0x7eu | (magnitude >> 21 & 3u);
    return (uint8_t)(sign | fig_numeric_choose(0x7f800000u, magnitude, nan, rounded));
}

/* e4m3 has 4 bits of exponent, biased by 7, and 3 of mantissa. There is no infinity: all ones is
 * NaN, and all codes below it are numbers. */
FIG_BOTH float fig_numeric_of_e4m3(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t magnitude = (uint32_t)(code & 0x7fu) << 20;
    uint32_t normal = magnitude + (120u << 23);
    float least = fig_numeric_of_bits(121u << 23);
    uint32_t small = fig_numeric_bits(fig_numeric_of_bits(normal + (1u << 23)) - least);
    uint32_t finite = fig_numeric_choose(magnitude, 1u << 23, small, normal);
    return fig_numeric_of_bits(sign |
                               fig_numeric_choose(magnitude, 0x7fu << 20, finite, 0x7fc00000u));
}

/* 448 is the largest number. In f32 the last place of 16384 is the unit of the subnormals. */
FIG_BOTH uint8_t fig_numeric_e4m3(float x) {
    uint32_t bits = fig_numeric_bits(x);
    uint32_t sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t largest = 0x43e00000u;
    uint32_t finite = magnitude < largest ? magnitude : largest;
    uint32_t normal = (finite - (120u << 23) + 0x7ffffu + (finite >> 20 & 1)) >> 20;
    uint32_t small = fig_numeric_bits(fig_numeric_of_bits(finite) + 16384.0f) - (141u << 23);
    uint32_t rounded = fig_numeric_choose(finite, 121u << 23, small, normal);
    return (uint8_t)(sign | fig_numeric_choose(0x7f800000u, magnitude, 0x7fu, rounded));
}

/* Returns the bytes of an element, or 0 for a code that names no type. */
FIG_BOTH int32_t fig_numeric_bytes(int32_t dtype) {
    switch (dtype) {
    case FIG_F32:
    case FIG_I32: return 4;
    case FIG_F16:
    case FIG_BF16: return 2;
    case FIG_E4M3:
    case FIG_E5M2: return 1;
    case FIG_I64: return 8;
    default: return 0;
    }
}

/* Returns element `index` of an array of floats. */
FIG_BOTH float fig_numeric_load(const void *array, int32_t dtype, int64_t index) {
    switch (dtype) {
    case FIG_F16: return fig_numeric_of_f16(((const uint16_t *)array)[index]);
    case FIG_BF16: return fig_numeric_of_bf16(((const uint16_t *)array)[index]);
    case FIG_E4M3: return fig_numeric_of_e4m3(((const uint8_t *)array)[index]);
    case FIG_E5M2: return fig_numeric_of_e5m2(((const uint8_t *)array)[index]);
    default: return ((const float *)array)[index];
    }
}

FIG_BOTH void fig_numeric_store(void *array, int32_t dtype, int64_t index, float x) {
    switch (dtype) {
    case FIG_F16: ((uint16_t *)array)[index] = fig_numeric_f16(x); break;
    case FIG_BF16: ((uint16_t *)array)[index] = fig_numeric_bf16(x); break;
    case FIG_E4M3: ((uint8_t *)array)[index] = fig_numeric_e4m3(x); break;
    case FIG_E5M2: ((uint8_t *)array)[index] = fig_numeric_e5m2(x); break;
    default: ((float *)array)[index] = x; break;
    }
}

#ifndef __CUDACC__
/* Loads `count` elements from element `first` on, with the switch on the type outside the loop.
 * Each type has a vectorised loop of its own. These functions are not inlined, because inlined
 * copies of them took 90 KB of libfigraph.so. */
__attribute__((noinline, unused)) static void fig_numeric_load_row(float *restrict to,
                                                                   int32_t count, const void *array,
                                                                   int32_t dtype, int64_t first) {
    const void *from = (const uint8_t *)array + first * fig_numeric_bytes(dtype);
    const uint16_t *restrict words = from;
    const uint8_t *restrict codes = from;
    switch (dtype) {
    case FIG_F16:
        for (int32_t i = 0; i < count; i++)
            to[i] = fig_numeric_of_f16(words[i]);
        break;
    case FIG_BF16:
        for (int32_t i = 0; i < count; i++)
            to[i] = fig_numeric_of_bf16(words[i]);
        break;
    case FIG_E4M3:
        for (int32_t i = 0; i < count; i++)
            to[i] = fig_numeric_of_e4m3(codes[i]);
        break;
    case FIG_E5M2:
        for (int32_t i = 0; i < count; i++)
            to[i] = fig_numeric_of_e5m2(codes[i]);
        break;
    default: memcpy(to, from, (size_t)count * sizeof *to); break;
    }
}

__attribute__((noinline, unused)) static void fig_numeric_store_row(void *array, int32_t dtype,
                                                                    int64_t first,
                                                                    const float *restrict from,
                                                                    int32_t count) {
    void *to = (uint8_t *)array + first * fig_numeric_bytes(dtype);
    uint16_t *restrict words = to;
    uint8_t *restrict codes = to;
    switch (dtype) {
    case FIG_F16:
        for (int32_t i = 0; i < count; i++)
            words[i] = fig_numeric_f16(from[i]);
        break;
    case FIG_BF16:
        for (int32_t i = 0; i < count; i++)
            words[i] = fig_numeric_bf16(from[i]);
        break;
    case FIG_E4M3:
        for (int32_t i = 0; i < count; i++)
            codes[i] = fig_numeric_e4m3(from[i]);
        break;
    case FIG_E5M2:
        for (int32_t i = 0; i < count; i++)
            codes[i] = fig_numeric_e5m2(from[i]);
        break;
    default: memcpy(to, from, (size_t)count * sizeof *from); break;
    }
}
#endif

#endif
