/* block.cuh: holds the code that every kernel shares: the wait for earlier launches, and sums over
 * a block.
 *
 * Programmatic edges follow one law, with an exception that CONTRIBUTING.md names: every block
 * waits before it writes or exits. Before the wait a block reads only the plan, and memory that no
 * launch of the step writes. Let P be the launch that makes the plan, and Q the launch directly
 * after P. Q reads nothing before its own wait, and triggers only after this wait. So the plan is
 * complete before any launch after Q begins, and each of these may trigger at once. Only the Hopper
 * image has such edges; in the plain image the wait and the trigger are empty. Invariant: all
 * threads of a block call fig_block_*. */
#ifndef FIG_KERNELS_BLOCK_CUH
#define FIG_KERNELS_BLOCK_CUH

#include <stdint.h>

enum { FIG_BLOCK_WARP = 32, FIG_BLOCK_WARP_LIMIT = 32 };

/* Waits until the preceding launches' writes are visible. */
static __device__ __forceinline__ void fig_block_wait(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the following launches begin and run up to their own wait. */
static __device__ __forceinline__ void fig_block_trigger(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Waits and triggers. is_early: the following launches may begin at once and run up to their own
 * wait, because everything that they read before that wait was complete when this launch began. */
static __device__ __forceinline__ void fig_block_enter(uint32_t is_early) {
    if (is_early) fig_block_trigger();
    fig_block_wait();
    if (!is_early) fig_block_trigger();
}

/* Prefetches data into L2 before the wait. If the preceding launch is still writing the data, L2
 * holds the written bytes. The prefetch also makes the thread compute the address before the wait.
 * The assembler moves an address computation after the wait, where each of its instructions adds
 * latency, unless an earlier instruction needs the address. The address must be readable. */
static __device__ __forceinline__ void fig_block_prefetch(const void *address) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#endif
}

/* Returns the thread's warp. The shuffle tells the compiler that this number is the same in all
 * lanes. */
static __device__ __forceinline__ int32_t fig_block_warp(void) {
    return __shfl_sync(0xffffffffu, (int32_t)threadIdx.x / FIG_BLOCK_WARP, 0);
}

static __device__ __forceinline__ double fig_block_warp_sum(double x) {
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* Returns the sum over a block whose threads are whole warps in one dimension. sums: shared,
 * [FIG_BLOCK_WARP_LIMIT]; free again on return. */
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
