/* fragment.cuh: multiplies 16 x 16 numbers of the cache by 16 x 8 numbers within one warp.
 *
 * Owns the tensor core instructions and the instructions that move 8 x 8 blocks between shared
 * memory and the lanes. Comments name a lane by g = lane / 4 and t = lane % 4. Lane (g, t) holds
 * rows g and g + 8 of the left operand, at columns 2t, 2t + 1, 2t + 8 and 2t + 9. It holds column g
 * of the right operand, at rows 2t, 2t + 1, 2t + 8 and 2t + 9. It holds rows g and g + 8 of the
 * sums, at columns 2t and 2t + 1. The conversion of 8-bit codes to f16 is exact. Invariant: whole
 * warps call all functions. */
#ifndef FIG_KERNELS_FRAGMENT_CUH
#define FIG_KERNELS_FRAGMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "include/figraph.h"

/* Returns the type in which the tensor cores multiply values of the cache. */
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

/* Loads four blocks with rows of 16 bytes. Lane 8b + r passes the shared address of row r of
 * block b. */
static __device__ __forceinline__ void fig_fragment_load(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* Loads four blocks like fig_fragment_load(), and transposes each. */
static __device__ __forceinline__ void fig_fragment_load_turned(uint32_t (&to)[4],
                                                                uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/* Returns the transpose of a block that the lanes hold. */
static __device__ __forceinline__ uint32_t fig_fragment_turn(uint32_t block) {
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(block));
    return turned;
}

/* Packs two numbers, the first in the low half. */
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

/* Packs two numbers like the function above, but rounds them towards 0. */
template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_fragment_pair_below(float first, float second) {
    if (DTYPE == FIG_BF16)
        return __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
    uint32_t pair;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

/* Converts two e4m3 codes in the low half of a word to f16. Shifts put exponent and mantissa in
 * their f16 places. That result is too small by a factor of 2^8, so a multiplication follows.
 * Without a special case NaN, the code of all ones, would become 480. */
static __device__ __forceinline__ uint32_t fig_fragment_shift_e4m3(uint32_t codes) {
    uint32_t apart = __byte_perm(codes, 0, 0x1404);
    uint32_t bits = (apart >> 1 & 0x3f803f80u) | (apart & 0x80008000u);
    uint32_t times = 0x5c005c00u, least = 0x5f005f00u;
    __half2 value = __hmul2(*(const __half2 *)&bits, *(const __half2 *)&times);
    uint32_t nan = __hgt2_mask(__habs2(value), *(const __half2 *)&least);
    return *(const uint32_t *)&value | (nan & 0x7fff7fffu);
}

/* Converts the four codes of a word to f16: `low` gets bytes 0 and 1, `high` bytes 2 and 3. The
 * conversion instruction itself selects the half of the word. Only older chips need the shifts. */
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

/* Converts the four codes of a word like the function above, but to DTYPE. bf16 also holds each
 * value exactly. */
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

/* Converts the four codes of a word in other pairs: `even` gets bytes 0 and 2, `odd` bytes 1 and
 * 3. */
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
