/* vector.cuh: handles sixteen bytes of an array at a time, and the numbers in them.
 *
 * Owns the conversion between vectors and numbers, and loads that the compiler does not move. Each
 * kernel decides where addresses allow vectors, and handles the rest itself. A dtype is a constant
 * once the compiler has inlined the function, except in fig_vector_of_half(). Invariant:
 * conversions give the same bits as fig_numeric_load() and fig_numeric_store(), so a result does
 * not depend on the use of vectors. The only exception is a NaN in fig_vector_read() or
 * fig_vector_of(), which may become the GPU's default NaN. */
#ifndef FIG_KERNELS_VECTOR_CUH
#define FIG_KERNELS_VECTOR_CUH

#include "kernels/common/numeric.h"

enum {
    FIG_VECTOR_BYTES = sizeof(uint4),
    FIG_VECTOR_LANE_LIMIT = 8 /* numbers of 16 bits, the smallest type that a kernel writes */
};

/* Returns the count of numbers in a vector. */
static __device__ __forceinline__ int32_t fig_vector_lanes(int32_t dtype) {
    return FIG_VECTOR_BYTES / fig_numeric_bytes(dtype);
}

/* Returns the number of a 16-bit code, for a dtype FIG_F16 or FIG_BF16 that is known only at run
 * time. */
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

/* Returns the number in the lower half of a word. This is one instruction. numeric.h needs fifteen
 * for f16, because it must keep a NaN's bits; with thousands of rows fifteen instructions would
 * limit the speed. */
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

/* Reads the first `count` numbers of a vector, each of 16 bits or more. */
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

/* Rounds two numbers to 16 bits each and returns them as one word. */
static __device__ __forceinline__ uint32_t fig_vector_pair(float low, float high, int32_t dtype) {
    uint32_t word;
    if (dtype == FIG_F16) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
}

/* Rounds numbers to a vector of a type of 16 bits or more. Missing numbers are 0. */
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

/* Returns a + b, rounded. */
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

/* Normalises a part of a row by `scale` and multiplies by its weights. */
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

/* Starts the load of a vector here. The compiler would otherwise move a load whose result is only
 * used after a branch to the place where the branch is decided. */
static __device__ __forceinline__ uint4 fig_vector_fetch(const void *from) {
    uint4 vector;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
                 : "l"(from));
    return vector;
}

/* Starts the load of a word here. */
static __device__ __forceinline__ uint32_t fig_vector_fetch_word(const uint32_t *from) {
    uint32_t word;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
    return word;
}

/* Starts the load of a number here. The load itself is volatile too, because the assembler also
 * moves short loads past branches. */
static __device__ __forceinline__ int32_t fig_vector_fetch_number(const int32_t *from) {
    int32_t number;
    asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(number) : "l"(from));
    return number;
}

/* Loads a number of the plan through L1, after the caller has waited for the preceding launch. It
 * is for numbers that many warps need: without L1, thousands of blocks would read them from one
 * slice of L2, which would limit the launch. */
static __device__ __forceinline__ int32_t fig_vector_fetch_common(const int32_t *from) {
    int32_t number;
    asm volatile("ld.relaxed.cta.global.s32 %0, [%1];" : "=r"(number) : "l"(from));
    return number;
}

#endif
