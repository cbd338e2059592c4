/* block.cuh: what every kernel shares: its place among other launches, and sums over a block.
 *
 * The law of programmatic edges: every block waits before it writes or exits. What is read before
 * the wait is the plan, and what no launch of the step writes. A launch right behind one that makes
 * the plan reads nothing before its wait, and triggers after it. Every other may trigger at once:
 * some launch on the way from the plan to it is such a one, and so the plan was there before it
 * began. Only the Hopper image has such edges; in the plain one both calls are nothing. Invariant:
 * fig_block_* are called by all threads of a block. */
#ifndef FIG_KERNELS_BLOCK_CUH
#define FIG_KERNELS_BLOCK_CUH

#include <stdint.h>

enum { FIG_BLOCK_WARP = 32, FIG_BLOCK_WARP_LIMIT = 32 };

/* What the launches before have written is there from here on. */
static __device__ __forceinline__ void fig_block_wait(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the launches behind begin as far as their own wait. */
static __device__ __forceinline__ void fig_block_trigger(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Both. is_early: the launches behind may begin at once, as far as their own wait: what they read
 * before it was there when this one began. */
static __device__ __forceinline__ void fig_block_enter(uint32_t is_early) {
    if (is_early) fig_block_trigger();
    fig_block_wait();
    if (!is_early) fig_block_trigger();
}

/* Asks L2 for what is about to be read, before the wait; should the launch before write it yet, L2
 * has what it writes. What counts is that the address is there in time: the assembler puts all that
 * leads to one behind the wait, where every instruction is waited for, unless something needs it
 * before. The address is one that may be read. */
static __device__ __forceinline__ void fig_block_prefetch(const void *address) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#endif
}

/* The thread's warp. What follows from it is the same for all its lanes, and so the compiler knows.
 */
static __device__ __forceinline__ int32_t fig_block_warp(void) {
    return __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / FIG_BLOCK_WARP, 0);
}

static __device__ __forceinline__ double fig_block_warp_sum(double x) {
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* Of a block whose threads are whole warps in one dimension. sums: shared, [FIG_BLOCK_WARP_LIMIT];
 * free again when this returns. */
static __device__ __forceinline__ double fig_block_sum(double x, double *sums) {
    int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    int32_t warps = (int32_t)blockDim.x / FIG_BLOCK_WARP;
    x = fig_block_warp_sum(x);
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    x = 0;
    for (int32_t i = 0; i < warps; i++)
        x += sums[i];
    __syncthreads();
    return x;
}

#endif
