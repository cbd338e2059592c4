/* planning_sums.cuh: sums and greatest values over the block that makes a plan.
 *
 * Invariant: all threads of the block call these functions together. */
#ifndef FIG_KERNELS_PLANNING_SUMS_CUH
#define FIG_KERNELS_PLANNING_SUMS_CUH

#include "kernels/common/block.cuh"

enum { FIG_PLANNING_THREADS = 256, FIG_PLANNING_WARPS = FIG_PLANNING_THREADS / FIG_BLOCK_WARP };

/* Returns the sum of x over the threads before this one; *sum is the sum over all threads.
 * warp_sums: shared, [FIG_PLANNING_WARPS]; free again on return. */
template <typename number>
static __device__ number fig_planning_sum_before(number x, number *sum, number *warp_sums) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    const int32_t lane = (int32_t)threadIdx.x % FIG_BLOCK_WARP;
    /* through: sum over the warp, this thread included; before: sum over the earlier warps */
    number through = x, before = 0;
    for (int32_t apart = 1; apart < FIG_BLOCK_WARP; apart *= 2) {
        const number other = __shfl_up_sync(0xffffffffu, through, (uint32_t)apart);
        if (lane >= apart) through += other;
    }
    if (lane == FIG_BLOCK_WARP - 1) warp_sums[warp] = through;
    __syncthreads();
    *sum = 0;
    for (int32_t i = 0; i < FIG_PLANNING_WARPS; i++) {
        if (i == warp) before = *sum;
        *sum += warp_sums[i];
    }
    __syncthreads();
    return before + through - x;
}

/* Returns the greatest x of the block's threads; no x is below 0. warp_most: shared,
 * [FIG_PLANNING_WARPS]; free again on return. */
static __device__ int32_t fig_planning_greatest(int32_t x, int32_t *warp_most) {
    const int32_t warp = (int32_t)threadIdx.x / FIG_BLOCK_WARP;
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        x = max(x, __shfl_xor_sync(0xffffffffu, x, apart));
    if (threadIdx.x % FIG_BLOCK_WARP == 0) warp_most[warp] = x;
    __syncthreads();
    for (int32_t i = 0; i < FIG_PLANNING_WARPS; i++)
        x = max(x, warp_most[i]);
    __syncthreads();
    return x;
}

#endif
