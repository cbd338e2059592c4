/* barriers.cuh: wraps barriers in shared memory and named barriers.
 *
 * A barrier in shared memory ends a phase when as many threads as it counts have arrived, and the
 * copy engine has brought as many bytes as it expects. Tests that run a kernel on a CPU have
 * versions of their own. Invariant: the file holds only instructions. */
#ifndef FIG_KERNELS_BARRIERS_CUH
#define FIG_KERNELS_BARRIERS_CUH

#include "kernels/common/fragment.cuh"

static __device__ __forceinline__ void fig_ring_barrier_init(uint64_t *barrier, int32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(fig_fragment_shared(barrier)),
                 "r"(count)
                 : "memory");
}

static __device__ __forceinline__ void fig_ring_arrive(uint32_t barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void fig_ring_wait(uint32_t barrier, uint32_t phase) {
    uint32_t is_over = 0;
    while (!is_over) {
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(phase)
                     : "memory");
#else
        asm volatile("{ .reg .pred p; .reg .b64 state; .reg .b32 parity;\n"
                     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(phase)
                     : "memory");
#endif
    }
}

/* Waits at a named barrier until `threads` threads of the block have arrived. All warps that wait
 * at the same time must wait at the same place in the code. */
static __device__ __forceinline__ void fig_ring_meet(int32_t barrier, int32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* Arrives at the barrier without waiting for the others. */
static __device__ __forceinline__ void fig_ring_pass(int32_t barrier, int32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

#endif
