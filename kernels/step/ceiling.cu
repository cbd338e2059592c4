/* ceiling.cu: reads memory from end to end as fast as the device can; that speed is the ceiling.
 *
 * out ^= every 64-bit word of `pieces` pieces of 16 bytes. On 9.0 the bulk copy engine fills a
 * ring of stages in shared memory. Four blocks of an SM keep 160 KB in flight; plain loads alone
 * do not reach the memory's full speed. On other chips each load of a thread takes 16 bytes, with
 * several loads in flight. Invariant: that of ceiling.c. */
#include "kernels/common/block.cuh"
#include "kernels/common/params.h"

enum { THREADS = 256, STRETCH_BYTES = 8192, STAGES = 5, PIECES = STRETCH_BYTES / sizeof(uint4) };

static __device__ __forceinline__ uint64_t fold_piece(uint4 x) {
    return ((uint64_t)(x.y ^ x.w) << 32) | (x.x ^ x.z);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

static __device__ __forceinline__ int64_t bytes_of(const fig_ceiling_params &p) {
    return (int64_t)p.pieces * (int64_t)sizeof(uint4);
}

static __device__ __forceinline__ uint32_t shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Fetches stretch number `index` of the block, or nothing past the end. */
static __device__ __forceinline__ void fetch_stretch(const fig_ceiling_params &p, int64_t index,
                                                     uint4 *stage, uint64_t *full) {
    const int64_t at = (index * gridDim.x + blockIdx.x) * STRETCH_BYTES;
    if (at >= bytes_of(p)) return;
    const int64_t left = bytes_of(p) - at;
    const uint32_t bytes = (uint32_t)(left < STRETCH_BYTES ? left : STRETCH_BYTES);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(full)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 :
                 : "r"(shared_address(stage)), "l"(p.in + at), "r"(bytes), "r"(shared_address(full))
                 : "memory");
}

static __device__ __forceinline__ void wait_for(uint64_t *full, uint32_t phase) {
    uint32_t is_full = 0;
    while (!is_full)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_full)
                     : "r"(shared_address(full)), "r"(phase)
                     : "memory");
}

static __device__ uint64_t fold_all(const fig_ceiling_params &p) {
    __shared__ alignas(128) uint4 stages[STAGES][PIECES];
    __shared__ alignas(8) uint64_t full[STAGES];
    uint64_t folded = 0;
    if (threadIdx.x == 0) {
        for (int32_t i = 0; i < STAGES; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                         :
                         : "r"(shared_address(&full[i])));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int32_t i = 0; i < STAGES; i++)
            fetch_stretch(p, i, stages[i], &full[i]);
    }
    __syncthreads();
    for (int64_t index = 0;; index++) {
        const int64_t at = (index * gridDim.x + blockIdx.x) * STRETCH_BYTES;
        const int32_t stage = (int32_t)(index % STAGES);
        if (at >= bytes_of(p)) return folded;
        wait_for(&full[stage], (uint32_t)(index / STAGES & 1));
        const int64_t left = (bytes_of(p) - at) / (int64_t)sizeof(uint4);
        for (uint32_t i = threadIdx.x; i < PIECES && i < left; i += THREADS)
            folded ^= fold_piece(stages[stage][i]);
        __syncthreads(); /* all threads have read the stage that is filled again */
        if (threadIdx.x == 0) fetch_stretch(p, index + STAGES, stages[stage], &full[stage]);
    }
}

#else

static __device__ uint64_t fold_all(const fig_ceiling_params &p) {
    const uint4 *from = (const uint4 *)p.in;
    const int64_t stride = (int64_t)gridDim.x * THREADS;
    uint64_t folded = 0;
#pragma unroll 8
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.pieces; i += stride)
        folded ^= fold_piece(__ldg(from + i));
    return folded;
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_ceiling(const __grid_constant__ fig_ceiling_params p) {
    fig_block_wait();
    fig_block_trigger();
    if (p.pieces == 0) return; /* such a launch serves to measure an empty launch */
    uint64_t folded = fold_all(p);
    for (int32_t apart = FIG_BLOCK_WARP / 2; apart > 0; apart /= 2)
        folded ^= __shfl_xor_sync(0xffffffffu, folded, apart);
    if (threadIdx.x % FIG_BLOCK_WARP == 0)
        atomicXor((unsigned long long *)p.out, (unsigned long long)folded);
}
