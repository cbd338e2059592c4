/* narrow_products.cuh: wraps the products of a warpgroup whose columns are few vectors.
 *
 * A product adds a b^T to d, which is 64 x 16 or 64 x 32, f32, in registers. Both operands lie in
 * shared memory and are described by fig_wgmma_matrix(). A row of b is a vector.
 * The thread's elements of d are those of wgmma.cuh. Invariant: that of wgmma.cuh. */
#ifndef FIG_KERNELS_NARROW_PRODUCTS_CUH
#define FIG_KERNELS_NARROW_PRODUCTS_CUH

#include "kernels/wide/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Waits for all products. */
static __device__ __forceinline__ void fig_narrow_products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Keeps the compiler from moving uses of d before this call. */
template <int32_t REGS>
static __device__ __forceinline__ void fig_narrow_products_pin(float (&d)[REGS]) {
#pragma unroll
    for (int32_t i = 0; i < REGS; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* clang-format off */
#define FIG_NARROW_T8 FIG_WGMMA_T8(0, 1, 2, 3, 4, 5, 6, 7)
#define FIG_NARROW_T16 FIG_NARROW_T8 "," FIG_WGMMA_T8(8, 9, 10, 11, 12, 13, 14, 15)
#define FIG_NARROW_R8(d) FIG_WGMMA_R8(d, 0)
#define FIG_NARROW_R16(d) FIG_WGMMA_R8(d, 0), FIG_WGMMA_R8(d, 8)
#define FIG_NARROW_W8(d) FIG_WGMMA_W8(d, 0)
#define FIG_NARROW_W16(d) FIG_WGMMA_W8(d, 0), FIG_WGMMA_W8(d, 8)

/* fig_narrow_products_along, fig_narrow_products_turned: d += a b^T and d += a^T b^T of one step.
 * fig_narrow_products_set: d = a b^T of one step. The compiler knows that d need not hold anything
 * before. N0 and N1 are REGS and REGS + 1. */
#define FIG_NARROW_PRODUCT(name, TURNED, tag, TYPE, N, REGS, N0, N1)                               \
    static __device__ __forceinline__ void fig_narrow_products_##name(                             \
        tag, float (&d)[REGS], uint64_t a, uint64_t b) {                                           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" FIG_NARROW_T##REGS "},%" #N0 ",%" #N1 ",1,1,1," TURNED ",0;"             \
                     : FIG_NARROW_R##REGS(d) : "l"(a), "l"(b));                                    \
    }
#define FIG_NARROW_SET(tag, TYPE, N, REGS, N0, N1)                                                 \
    static __device__ __forceinline__ void fig_narrow_products_set(                                \
        tag, float (&d)[REGS], uint64_t a, uint64_t b) {                                           \
        asm volatile("{.reg .pred p; setp.ne.b32 p,0,0;"                                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" FIG_NARROW_T##REGS "},%" #N0 ",%" #N1 ",p,1,1,0,0;}"                     \
                     : FIG_NARROW_W##REGS(d) : "l"(a), "l"(b));                                    \
    }
#define FIG_NARROW_PRODUCTS(tag, TYPE, N, REGS, N0, N1)                                            \
    FIG_NARROW_PRODUCT(along, "0", tag, TYPE, N, REGS, N0, N1)                                     \
    FIG_NARROW_PRODUCT(turned, "1", tag, TYPE, N, REGS, N0, N1)                                    \
    FIG_NARROW_SET(tag, TYPE, N, REGS, N0, N1)

FIG_NARROW_PRODUCTS(fig_wgmma_bf16, "bf16", 16, 8, 8, 9)
FIG_NARROW_PRODUCTS(fig_wgmma_bf16, "bf16", 32, 16, 16, 17)
FIG_NARROW_PRODUCTS(fig_wgmma_f16, "f16", 16, 8, 8, 9)
FIG_NARROW_PRODUCTS(fig_wgmma_f16, "f16", 32, 16, 16, 17)
/* clang-format on */

#endif
#endif
