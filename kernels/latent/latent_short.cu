/* latent_short.cu: computes attention over short rows of a latent cache for groups of few vectors,
 * by clusters of blocks on warpgroups.
 *
 * The same as latent_narrow.cu, except that a cluster serves a group of a row, and merges the
 * results of its blocks without memory between them (narrow_cluster.cuh). Premises:
 * fig_latent_attention_short_refuses() returns NULL, and the launch has one cluster for each group
 * of each row of the bucket. */
#define FIG_NARROW_RING_CLUSTERS
#include "kernels/latent/narrow_cluster.cuh"
#include "kernels/latent/narrow_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { FEED_WARP = 8, IDLE_ROWS_WARP = 9 };

template <int32_t DTYPE, int32_t VECTORS, int32_t BLOCKS>
static __device__ __forceinline__ void attend(const fig_latent_attention_params &p) {
    typedef fig_narrow_ring_form<VECTORS> form;
    extern __shared__ __align__(1024) uint8_t shared[];
    const int32_t warp = fig_block_warp();
    const fig_narrow_ring<VECTORS> ring = {
        fig_fragment_shared(shared),
        (fig_narrow_ring_state<VECTORS> *)(void *)(shared + form::STATE_AT)};
    if (fig_latent_feed_is_early(p)) fig_block_trigger();
    if (warp == FEED_WARP) fig_narrow_ring_init(ring.state);
    __syncthreads();
    fig_latent_machine_announce();
    if (warp < FEED_WARP) {
        fig_latent_machine_meet();
        fig_narrow_multiply<DTYPE, fig_narrow_cluster_ending<BLOCKS>>(p, ring);
    }
    if (warp == FEED_WARP) fig_narrow_cluster_feed<BLOCKS>(p, ring);
    if (warp == IDLE_ROWS_WARP) fig_latent_feed_idle_rows(p);
}

/* A kernel with clusters of 16 runs only where the loader has allowed that size. */
#define INSTANCE(name, type, vectors, blocks)                                                      \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1)                                      \
        __launch_bounds__(FIG_LATENT_NARROW_WARPS *FIG_BLOCK_WARP, 1)                              \
            fig_kernel_latent_attention_short_##name##_##vectors##_##blocks(                       \
                const __grid_constant__ fig_latent_attention_params p) {                           \
        attend<type, vectors, blocks>(p);                                                          \
    }
#define INSTANCES(name, type, vectors)                                                             \
    INSTANCE(name, type, vectors, 2)                                                               \
    INSTANCE(name, type, vectors, 4)                                                               \
    INSTANCE(name, type, vectors, 8)                                                               \
    INSTANCE(name, type, vectors, 16)
INSTANCES(bf16, FIG_BF16, 16)
INSTANCES(f16, FIG_F16, 16)
INSTANCES(bf16, FIG_BF16, 32)
INSTANCES(f16, FIG_F16, 32)

#endif
