/* vector.cuh: sixteen bytes of an array at a time, and the numbers that lie in them.
 *
 * Owns how a vector becomes numbers and numbers become one, and loads that begin where they
 * stand. Leaves to each kernel where addresses allow vectors, and
 * what it takes elsewhere. A dtype is a constant, once inlined, but for fig_vector_of_half.
 * Invariant: numbers and codes become each other as fig_numeric_load and fig_numeric_store have it,
 * so that no bit of a result says whether it came by vectors; but a NaN that fig_vector_read or
 * fig_vector_of meets may become the one NaN that this GPU's arithmetic makes of any. */
#ifndef FIG_KERNELS_VECTOR_CUH
#define FIG_KERNELS_VECTOR_CUH

#include "kernels/numeric.h"

enum {
    FIG_VECTOR_BYTES = sizeof(uint4),
    FIG_VECTOR_LANE_LIMIT = 8 /* numbers of 16 bits, the least that a kernel writes */
};

/* Numbers in a vector. */
static __device__ __forceinline__ int32_t fig_vector_lanes(int32_t dtype) {
    return FIG_VECTOR_BYTES / fig_numeric_bytes(dtype);
}

/* Of 16 bits, where dtype, FIG_F16 or FIG_BF16, is known as the kernel runs. */
static __device__ __forceinline__ float fig_vector_of_half(int32_t dtype, uint32_t code) {
    return dtype == FIG_F16 ? fig_numeric_of_f16((uint16_t)code)
                            : fig_numeric_of_bf16((uint16_t)code);
}

static __device__ __forceinline__ float fig_vector_lane(const uint4 &vector, int32_t dtype,
                                                        int32_t lane) {
    const uint32_t words[] = {vector.x, vector.y, vector.z, vector.w};
    const int32_t bytes = fig_numeric_bytes(dtype), of_word = 4 / bytes;
    const uint32_t code = words[lane / of_word] >> lane % of_word * 8 * bytes;
    switch (dtype) {
    case FIG_F16: return fig_numeric_of_f16((uint16_t)code);
    case FIG_BF16: return fig_numeric_of_bf16((uint16_t)code);
    case FIG_E4M3: return fig_numeric_of_e4m3((uint8_t)code);
    case FIG_E5M2: return fig_numeric_of_e5m2((uint8_t)code);
    default: return fig_numeric_of_bits(code);
    }
}

/* The number in the lower half of a word. One instruction where numeric.h, which has to leave a
 * NaN's bits alone, takes fifteen of f16: at thousands of rows those would be the limit. */
static __device__ __forceinline__ float fig_vector_low(uint32_t word, int32_t dtype) {
    float x;
    if (dtype == FIG_BF16) return fig_numeric_of_bits(word << 16);
    asm("{.reg .b16 low;\n\tcvt.u16.u32 low, %1;\n\tcvt.f32.f16 %0, low;}" : "=f"(x) : "r"(word));
    return x;
}

static __device__ __forceinline__ float fig_vector_high(uint32_t word, int32_t dtype) {
    if (dtype == FIG_BF16) return fig_numeric_of_bits(word & 0xffff0000u);
    return fig_vector_low(word >> 16, dtype);
}

/* The first `count` of its numbers; of 16 bits or more. */
static __device__ __forceinline__ void fig_vector_read(float *to, int32_t count,
                                                       const uint4 &vector, int32_t dtype) {
    const uint32_t words[] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int32_t i = 0; i < count; i++) {
        if (dtype == FIG_F32) {
            to[i] = fig_numeric_of_bits(words[i % 4]);
        } else {
            to[i] = i % 2 == 0 ? fig_vector_low(words[i / 2], dtype)
                               : fig_vector_high(words[i / 2], dtype);
        }
    }
}

/* Two numbers of 16 bits, rounded. */
static __device__ __forceinline__ uint32_t fig_vector_pair(float low, float high, int32_t dtype) {
    uint32_t word;
    if (dtype == FIG_F16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
}

/* Rounded; of 16 bits or more. What is behind the last is 0. */
static __device__ __forceinline__ uint4 fig_vector_of(const float *from, int32_t count,
                                                      int32_t dtype) {
    uint32_t words[] = {0, 0, 0, 0};
#pragma unroll
    for (int32_t i = 0; i < count; i++) {
        if (dtype == FIG_F32) words[i % 4] = fig_numeric_bits(from[i]);
        if (dtype != FIG_F32 && i % 2 == 0)
            words[i / 2] = fig_vector_pair(from[i], i + 1 < count ? from[i + 1] : 0.0f, dtype);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* a + b, rounded. */
static __device__ __forceinline__ uint4 fig_vector_sum(uint4 a, uint4 b, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], more[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, a, dtype);
    fig_vector_read(more, lanes, b, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] += more[i];
    return fig_vector_of(numbers, lanes, dtype);
}

/* A row's part that is normalised by `scale`, times its weights. */
static __device__ __forceinline__ uint4 fig_vector_normed(uint4 x, uint4 weight, float scale,
                                                          float offset, int32_t dtype) {
    const int32_t lanes = fig_vector_lanes(dtype);
    float numbers[FIG_VECTOR_LANE_LIMIT], weights[FIG_VECTOR_LANE_LIMIT];
    fig_vector_read(numbers, lanes, x, dtype);
    fig_vector_read(weights, lanes, weight, dtype);
#pragma unroll
    for (int32_t i = 0; i < lanes; i++)
        numbers[i] *= scale * (weights[i] + offset);
    return fig_vector_of(numbers, lanes, dtype);
}

/* A vector that is on its way from here on. The compiler may not move this load, as it would
 * one whose vector is used behind a branch only: to where it begins when the branch is decided. */
static __device__ __forceinline__ uint4 fig_vector_fetch(const void *from) {
    uint4 vector;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
                 : "l"(from));
    return vector;
}

/* Likewise a number; twice volatile, since the assembler moves short loads behind branches too. */
static __device__ __forceinline__ int32_t fig_vector_fetch_number(const int32_t *from) {
    int32_t number;
    asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(number) : "l"(from));
    return number;
}

#endif
