/* latent_words.cuh: wraps the machine instructions that latent_leave.cuh needs: those for pairs of
 * 16-bit values, and the end of a launch.
 *
 * tests/kernels/latent/latent_leave_block.cpp, which runs latent_leave.cuh on a CPU, has versions
 * of its own. Invariant: the low half of a pair is the value of the lower dimension. */
#ifndef FIG_KERNELS_LATENT_WORDS_CUH
#define FIG_KERNELS_LATENT_WORDS_CUH

#include "kernels/attention/fragment.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_latent_words_pair(float low, float high) {
    uint32_t pair;
    if (DTYPE == FIG_BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    }
    return pair;
}

/* Returns the values of a pair of f16. */
static __device__ __forceinline__ float2 fig_latent_words_floats(uint32_t pair) {
    return __half22float2(*(const __half2 *)&pair);
}

/* Transposes a matrix of 8 x 8 values of 16 bits. The lane's pair holds values 2 (lane % 4) and
 * 2 (lane % 4) + 1 of row lane / 4. All lanes of the warp take part. */
static __device__ __forceinline__ uint32_t fig_latent_words_across(uint32_t pair) {
    uint32_t across;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(across) : "r"(pair));
    return across;
}

/* If it waits in vain, ends the launch with an error by a store to address 0. With a trap instead,
 * the assembler would give the products too few registers. */
static __device__ __forceinline__ void fig_latent_words_end_if(int32_t is_vain) {
    asm volatile("{ .reg .pred p; .reg .b64 none; mov.b64 none, 0; setp.ne.b32 p, %0, 0;\n"
                 "@p st.global.u32 [none], 0; }" ::"r"(is_vain)
                 : "memory");
}

#endif
#endif
