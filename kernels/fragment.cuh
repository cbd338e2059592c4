/* fragment.cuh: what one warp multiplies at once: 16 x 16 numbers of the cache by 16 x 8.
 *
 * Owns the instructions of the tensor cores and those that move 8 x 8 blocks between shared memory
 * and the lanes. A lane is g = lane / 4 and t = lane % 4. Of the left side it holds rows g and
 * g + 8 at columns 2t, 2t + 1, 2t + 8 and 2t + 9; of the right side column g at those rows; of the
 * sums rows g and g + 8 at columns 2t and 2t + 1. Codes of 8 bits become f16, which is exact.
 * Invariant: all functions are called by whole warps. */
#ifndef FIG_KERNELS_FRAGMENT_CUH
#define FIG_KERNELS_FRAGMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "include/figraph.h"

/* What numbers of a cache are multiplied as. */
static __device__ constexpr int32_t fig_fragment_dtype(int32_t kv_dtype) {
    return kv_dtype == FIG_BF16 ? FIG_BF16 : FIG_F16;
}

static __device__ __forceinline__ uint32_t fig_fragment_shared(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* sums += left * right */
template <int32_t DTYPE>
static __device__ __forceinline__ void
fig_fragment_multiply(float (&sums)[4], uint32_t left0, uint32_t left1, uint32_t left2,
                      uint32_t left3, uint32_t right0, uint32_t right1) {
    if (DTYPE == FIG_BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(left0), "r"(left1), "r"(left2), "r"(left3), "r"(right0), "r"(right1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(left0), "r"(left1), "r"(left2), "r"(left3), "r"(right0), "r"(right1));
    }
}

/* Four blocks: lane 8b + r knows where row r of block b lies, 16 bytes of shared memory. */
static __device__ __forceinline__ void fig_fragment_load(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* The same, rows and columns exchanged. */
static __device__ __forceinline__ void fig_fragment_load_turned(uint32_t (&to)[4],
                                                                uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* Exchanges rows and columns of a block that lies in the lanes. */
static __device__ __forceinline__ uint32_t fig_fragment_turn(uint32_t block) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(block));
    return turned;
}

/* Two numbers, the first in the low half. */
template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_fragment_pair(float first, float second) {
    uint32_t pair;
    if (DTYPE == FIG_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    }
    return pair;
}

/* The same, each the next towards 0. */
template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_fragment_pair_below(float first, float second) {
    if (DTYPE == FIG_BF16)
        return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
    uint32_t pair;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

/* Two e4m3 in the low half of a word to f16 by shifts, which put exponent and mantissa where f16
 * has them, 2^8 too small, and a code of all ones would be 480. */
static __device__ __forceinline__ uint32_t fig_fragment_shift_e4m3(uint32_t codes) {
    uint32_t apart = __byte_perm(codes, 0, 0x1404);
    uint32_t bits = (apart >> 1 & 0x3f803f80u) | (apart & 0x80008000u);
    uint32_t times = 0x5c005c00u, least = 0x5f005f00u;
    __half2 value = __hmul2(*(const __half2 *)&bits, *(const __half2 *)&times);
    uint32_t nan = __hgt2_mask(__habs2(value), *(const __half2 *)&least);
    return *(const uint32_t *)&value | (nan & 0x7fff7fffu);
}

/* Four codes of a word to f16: bytes 0 and 1, bytes 2 and 3. The halves of a word are named where
 * it is converted, as one instruction takes either; only the older chips need shifts. */
template <int32_t KV_DTYPE>
static __device__ __forceinline__ void fig_fragment_widen(uint32_t codes, uint32_t *low,
                                                          uint32_t *high) {
    if (KV_DTYPE == FIG_E5M2) {
        *low = __byte_perm(codes, 0, 0x1404);
        *high = __byte_perm(codes, 0, 0x3424);
        return;
    }
#if __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 first, second; mov.b32 {first, second}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, first; cvt.rn.f16x2.e4m3x2 %1, second; }"
        : "=r"(*low), "=r"(*high)
        : "r"(codes));
#else
    *low = fig_fragment_shift_e4m3(codes);
    *high = fig_fragment_shift_e4m3(codes >> 16);
#endif
}

/* The same as numbers of DTYPE: bf16 holds each of them, too. */
template <int32_t KV_DTYPE, int32_t DTYPE>
static __device__ __forceinline__ void fig_fragment_widen_as(uint32_t codes, uint32_t *low,
                                                             uint32_t *high) {
    fig_fragment_widen<KV_DTYPE>(codes, low, high);
    if (DTYPE == FIG_F16) return;
    const float2 first = __half22float2(*(const __half2 *)low);
    const float2 second = __half22float2(*(const __half2 *)high);
    *low = fig_fragment_pair<FIG_BF16>(first.x, first.y);
    *high = fig_fragment_pair<FIG_BF16>(second.x, second.y);
}

/* Bytes 0 and 2, bytes 1 and 3. */
template <int32_t KV_DTYPE>
static __device__ __forceinline__ void fig_fragment_widen_apart(uint32_t codes, uint32_t *even,
                                                                uint32_t *odd) {
    if (KV_DTYPE == FIG_E5M2) {
        *even = __byte_perm(codes, 0, 0x2404);
        *odd = __byte_perm(codes, 0, 0x3414);
    } else {
        fig_fragment_widen<KV_DTYPE>(__byte_perm(codes, 0, 0x3120), even, odd);
    }
}

#endif
