/* kv_machine.cuh: wraps the instructions of the bulk copy engine that fill the ring of strips.
 *
 * Tests that run a kernel on a CPU have versions of their own. Invariant: the file holds only
 * instructions. */
#ifndef FIG_KERNELS_KV_MACHINE_CUH
#define FIG_KERNELS_KV_MACHINE_CUH

#include "kernels/common/block.cuh"
#include "kernels/common/params.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ void fig_feed_box(uint32_t to, const void *map, int32_t token,
                                                    int32_t column, int32_t head, int32_t page,
                                                    uint32_t barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
                 "l"(map), "r"(0), "r"(token), "r"(column), "r"(head), "r"(page), "r"(barrier),
                 "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ void fig_feed_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

/* Orders the thread's accesses to shared memory before those of the engine that follow. */
static __device__ __forceinline__ void fig_feed_order_engines() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Prefetches the tensor maps. The maps lie in the params, and the params are slow to reach when a
 * block begins. */
static __device__ __forceinline__ void fig_feed_prefetch_maps(const fig_attention_params &p) {
    if (threadIdx.x % FIG_BLOCK_WARP != 0) return;
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.k_map) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&p.v_map) : "memory");
}

/* Prefetches a box of K and one of V into L2. */
static __device__ __forceinline__ void
fig_feed_bring_boxes(const fig_tensor_map *k_map, const fig_tensor_map *v_map, int32_t token,
                     int32_t column, int32_t head, int32_t k_page, int32_t v_page) {
    asm volatile(
        "cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%2, %3, %4, %5, %6}];\n"
        "cp.async.bulk.prefetch.tensor.5d.L2.global [%1, {%2, %3, %4, %5, %7}];" ::"l"(k_map),
        "l"(v_map), "r"(0), "r"(token), "r"(column), "r"(head), "r"(k_page), "r"(v_page)
        : "memory");
}

#endif
#endif
