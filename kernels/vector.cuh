/* vector.cuh: sixteen bytes of an array at a time, and the numbers that lie in them.
 *
 * Owns how a vector becomes numbers and numbers become one, and the vectors that a thread has on
 * their way before it waits for the first. Leaves to each kernel where addresses allow vectors, and
 * what it takes elsewhere. A dtype is a constant, once inlined, but for fig_vector_of_half.
 * Invariant: numbers and codes become each other as fig_numeric_load and fig_numeric_store have it,
 * so that no bit of a result says whether it came by vectors. */
#ifndef FIG_KERNELS_VECTOR_CUH
#define FIG_KERNELS_VECTOR_CUH

#include "kernels/numeric.h"

enum {
    FIG_VECTOR_BYTES = sizeof(uint4),
    FIG_VECTOR_LANE_LIMIT = 8, /* numbers of 16 bits, the least that a kernel writes */
    FIG_VECTOR_BATCH = 4       /* on their way at once */
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

/* The first `count` of its numbers. */
static __device__ __forceinline__ void fig_vector_read(float *to, int32_t count,
                                                       const uint4 &vector, int32_t dtype) {
#pragma unroll
    for (int32_t i = 0; i < count; i++)
        to[i] = fig_vector_lane(vector, dtype, i);
}

/* Rounded; of 16 bits or more. What is behind the last is 0. */
static __device__ __forceinline__ uint4 fig_vector_of(const float *from, int32_t count,
                                                      int32_t dtype) {
    uint32_t words[] = {0, 0, 0, 0};
#pragma unroll
    for (int32_t i = 0; i < count; i++) {
        const int32_t shift = 16 * (i % 2);
        if (dtype == FIG_F32) words[i % 4] = fig_numeric_bits(from[i]);
        if (dtype == FIG_F16) words[i / 2] |= (uint32_t)fig_numeric_f16(from[i]) << shift;
        if (dtype == FIG_BF16) words[i / 2] |= (uint32_t)fig_numeric_bf16(from[i]) << shift;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Those of a row at `first`, first + APART, ...; what lies at and behind `count` is not read,
 * and 0. */
template <int32_t APART>
static __device__ __forceinline__ void
fig_vector_load(uint4 (&to)[FIG_VECTOR_BATCH], const void *row, int32_t first, int32_t count) {
#pragma unroll
    for (int32_t j = 0; j < FIG_VECTOR_BATCH; j++) {
        const int32_t at = first + j * APART;
        to[j] = at < count ? ((const uint4 *)row)[at] : make_uint4(0, 0, 0, 0);
    }
}

/* Item j of a batch: chosen, since an index would put the batch into memory. That keeps loops over
 * batches rolled and code short: a step runs it once, and fetches most of it first. */
template <typename item>
static __device__ __forceinline__ item fig_vector_choose(const item (&batch)[FIG_VECTOR_BATCH],
                                                         int32_t j) {
    item chosen = batch[0];
#pragma unroll
    for (int32_t i = 1; i < FIG_VECTOR_BATCH; i++)
        if (i == j) chosen = batch[i];
    return chosen;
}

#endif
