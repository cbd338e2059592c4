/* wgmma.cuh: wraps the matrix products of a warpgroup, on compute capability 9.0.
 *
 * A product adds a * b to d, which is 64 x N, f32, in registers. `b` lies in shared memory, `a` in
 * shared memory or in registers. The rows of b are kv tokens. With K the product runs along these
 * rows (d += a b^T), with V across them (d += a b). Thread t of the warpgroup holds elements
 * [r][c], [r][c + 1], [r + 8][c] and [r + 8][c + 1] of d, where r = t / 32 * 16 + t / 4 % 8 and
 * c = t % 4 * 2. Its next four registers hold the elements 8 columns further on, and so forth.
 * Invariant: between fig_wgmma_begin() and the wait no code touches d. */
#ifndef FIG_KERNELS_WGMMA_CUH
#define FIG_KERNELS_WGMMA_CUH

#include <stdint.h>

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Tags for the types of a and b. */
struct fig_wgmma_bf16 {};
struct fig_wgmma_f16 {};

static __device__ __forceinline__ void fig_wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void fig_wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Describes a matrix in shared memory whose columns of `width` bytes, 128 or 64, are swizzled.
 * stride: distance in bytes between groups of 8 rows of one column. lead: distance in bytes between
 * two columns, read only if the product runs across the rows. */
static __device__ __forceinline__ uint64_t fig_wgmma_matrix(uint32_t address, int32_t width,
                                                            int32_t stride, int32_t lead) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | (uint64_t)(width == 128 ? 1 : 2) << 62;
}

/* clang-format off */
#define FIG_WGMMA_T8(a, b, c, d, e, f, g, h)                                                       \
    "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define FIG_WGMMA_T32                                                                              \
    FIG_WGMMA_T8(0, 1, 2, 3, 4, 5, 6, 7) "," FIG_WGMMA_T8(8, 9, 10, 11, 12, 13, 14, 15) ","        \
    FIG_WGMMA_T8(16, 17, 18, 19, 20, 21, 22, 23) "," FIG_WGMMA_T8(24, 25, 26, 27, 28, 29, 30, 31)
#define FIG_WGMMA_T48                                                                              \
    FIG_WGMMA_T32 "," FIG_WGMMA_T8(32, 33, 34, 35, 36, 37, 38, 39) ","                             \
    FIG_WGMMA_T8(40, 41, 42, 43, 44, 45, 46, 47)
#define FIG_WGMMA_T64                                                                              \
    FIG_WGMMA_T48 "," FIG_WGMMA_T8(48, 49, 50, 51, 52, 53, 54, 55) ","                             \
    FIG_WGMMA_T8(56, 57, 58, 59, 60, 61, 62, 63)
#define FIG_WGMMA_T128                                                                             \
    FIG_WGMMA_T64 "," FIG_WGMMA_T8(64, 65, 66, 67, 68, 69, 70, 71) ","                             \
    FIG_WGMMA_T8(72, 73, 74, 75, 76, 77, 78, 79) "," FIG_WGMMA_T8(80, 81, 82, 83, 84, 85, 86, 87)  \
    "," FIG_WGMMA_T8(88, 89, 90, 91, 92, 93, 94, 95) ","                                           \
    FIG_WGMMA_T8(96, 97, 98, 99, 100, 101, 102, 103) ","                                           \
    FIG_WGMMA_T8(104, 105, 106, 107, 108, 109, 110, 111) ","                                       \
    FIG_WGMMA_T8(112, 113, 114, 115, 116, 117, 118, 119) ","                                       \
    FIG_WGMMA_T8(120, 121, 122, 123, 124, 125, 126, 127)

#define FIG_WGMMA_R8(d, i)                                                                         \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
    "+f"(d[i + 6]), "+f"(d[i + 7])
#define FIG_WGMMA_R32(d)                                                                           \
    FIG_WGMMA_R8(d, 0), FIG_WGMMA_R8(d, 8), FIG_WGMMA_R8(d, 16), FIG_WGMMA_R8(d, 24)
#define FIG_WGMMA_R48(d) FIG_WGMMA_R32(d), FIG_WGMMA_R8(d, 32), FIG_WGMMA_R8(d, 40)
#define FIG_WGMMA_R64(d) FIG_WGMMA_R48(d), FIG_WGMMA_R8(d, 48), FIG_WGMMA_R8(d, 56)
#define FIG_WGMMA_R128(d)                                                                          \
    FIG_WGMMA_R64(d), FIG_WGMMA_R8(d, 64), FIG_WGMMA_R8(d, 72), FIG_WGMMA_R8(d, 80),               \
    FIG_WGMMA_R8(d, 88), FIG_WGMMA_R8(d, 96), FIG_WGMMA_R8(d, 104), FIG_WGMMA_R8(d, 112),          \
    FIG_WGMMA_R8(d, 120)

/* fig_wgmma_along: d += a b^T, with a and b in shared memory. fig_wgmma_along_r: the same, with a
 * in registers. fig_wgmma_across: d += a b, with a in registers. fig_wgmma_across_s: the same, with
 * a in shared memory. If is_sum is 0, each sets d instead of adding to it. N0 to N5 are REGS,
 * REGS + 1, and so on. */
#define FIG_WGMMA_PRODUCTS(tag, TYPE, N, REGS, N0, N1, N2, N3, N4, N5)                             \
    FIG_WGMMA_BY_MEMORY(along, "0", tag, TYPE, N, REGS, N0, N1, N2)                                \
    FIG_WGMMA_BY_MEMORY(across_s, "1", tag, TYPE, N, REGS, N0, N1, N2)                             \
    FIG_WGMMA_BY_REGISTERS(along_r, "0", tag, TYPE, N, REGS, N0, N1, N2, N3, N4, N5)               \
    FIG_WGMMA_BY_REGISTERS(across, "1", tag, TYPE, N, REGS, N0, N1, N2, N3, N4, N5)
#define FIG_WGMMA_BY_MEMORY(name, TURNED, tag, TYPE, N, REGS, N0, N1, N2)                          \
    static __device__ __forceinline__ void fig_wgmma_##name(tag, float (&d)[REGS], uint64_t a,     \
                                                            uint64_t b, int32_t is_sum) {          \
        asm volatile("{.reg .pred p; setp.ne.b32 p,%" #N2 ",0;"                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" FIG_WGMMA_T##REGS "},%" #N0 ",%" #N1 ",p,1,1,0," TURNED ";}"             \
                     : FIG_WGMMA_R##REGS(d) : "l"(a), "l"(b), "r"(is_sum));                        \
    }
#define FIG_WGMMA_BY_REGISTERS(name, TURNED, tag, TYPE, N, REGS, N0, N1, N2, N3, N4, N5)           \
    static __device__ __forceinline__ void fig_wgmma_##name(                                       \
        tag, float (&d)[REGS], const uint32_t *a, uint64_t b, int32_t is_sum) {                    \
        asm volatile("{.reg .pred p; setp.ne.b32 p,%" #N5 ",0;"                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" FIG_WGMMA_T##REGS "},{%" #N0 ",%" #N1 ",%" #N2 ",%" #N3 "},%" #N4        \
                     ",p,1,1," TURNED ";}"                                                         \
                     : FIG_WGMMA_R##REGS(d)                                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(is_sum));           \
    }

/* fig_wgmma_set: d = a b^T of one step, with a and b in shared memory, for 64 columns. The compiler
 * knows that d need not hold anything before. */
#define FIG_WGMMA_W8(d, i)                                                                         \
    "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]),    \
    "=f"(d[i + 6]), "=f"(d[i + 7])
#define FIG_WGMMA_SET(tag, TYPE)                                                                   \
    static __device__ __forceinline__ void fig_wgmma_set(tag, float (&d)[32], uint64_t a,          \
                                                         uint64_t b) {                             \
        asm volatile("{.reg .pred p; setp.ne.b32 p,0,0;"                                           \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                   \
                     " {" FIG_WGMMA_T32 "},%32,%33,p,1,1,0,0;}"                                    \
                     : FIG_WGMMA_W8(d, 0), FIG_WGMMA_W8(d, 8), FIG_WGMMA_W8(d, 16),                \
                       FIG_WGMMA_W8(d, 24)                                                         \
                     : "l"(a), "l"(b));                                                            \
    }

/* Waits until at most LEFT of the committed groups are in flight. The compiler cannot move a use of
 * d ahead of the wait. */
#define FIG_WGMMA_WAIT(REGS, NEXT)                                                                 \
    template <int LEFT> static __device__ __forceinline__ void fig_wgmma_wait(float (&d)[REGS]) {  \
        asm volatile("wgmma.wait_group.sync.aligned %" #NEXT ";"                                   \
                     : FIG_WGMMA_R##REGS(d) : "n"(LEFT) : "memory");                               \
    }

#define FIG_WGMMA_SIZES(tag, TYPE)                                                                 \
    FIG_WGMMA_PRODUCTS(tag, TYPE, 64, 32, 32, 33, 34, 35, 36, 37)                                  \
    FIG_WGMMA_PRODUCTS(tag, TYPE, 96, 48, 48, 49, 50, 51, 52, 53)                                  \
    FIG_WGMMA_PRODUCTS(tag, TYPE, 128, 64, 64, 65, 66, 67, 68, 69)                                 \
    FIG_WGMMA_PRODUCTS(tag, TYPE, 256, 128, 128, 129, 130, 131, 132, 133)

FIG_WGMMA_SIZES(fig_wgmma_bf16, "bf16")
FIG_WGMMA_SIZES(fig_wgmma_f16, "f16")
FIG_WGMMA_SET(fig_wgmma_bf16, "bf16")
FIG_WGMMA_SET(fig_wgmma_f16, "f16")
FIG_WGMMA_WAIT(32, 32)
FIG_WGMMA_WAIT(48, 48)
FIG_WGMMA_WAIT(64, 64)
FIG_WGMMA_WAIT(128, 128)
/* clang-format on */

#endif
#endif
