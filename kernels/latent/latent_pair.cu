/* latent_pair.cu: computes split-K attention over a latent cache for groups of up to 128 vectors,
 * on warpgroups.
 *
 * The same as latent_wide.cu, except that a cluster of two blocks is a worker: each block has half
 * of a group's vectors, and each loads half of the chunks of a tile into the memory of both
 * (latent_ring.cuh). So L2 is read once for all vectors. Premises:
 * fig_latent_attention_pair_refuses() returns NULL, and the launch has two blocks per worker. */
#define FIG_LATENT_RING_PAIR
#include "kernels/latent/latent_feed.cuh"
#include "kernels/latent/latent_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { FEED_REGISTERS = 56, MULTIPLY_REGISTERS = 224 }; /* as in latent_wide.cu */

enum { FEED_WARP = 8, IDLE_ROWS_WARP = 9 };

template <int32_t DTYPE>
static __device__ __forceinline__ void attend(const fig_latent_attention_params &p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const int32_t warp = fig_block_warp();
    const fig_latent_ring ring = {
        fig_fragment_shared(shared),
        (fig_latent_ring_state *)(void *)(shared + (FIG_LATENT_WIDE_STAGES + 1) *
                                                       FIG_LATENT_WIDE_SIDE_BYTES)};
    if (threadIdx.x == 0) fig_latent_ring_init(ring.state);
    __syncthreads();
    fig_latent_machine_announce();
    fig_latent_machine_meet();
    if (warp >= FEED_WARP) {
        fig_latent_machine_keep<FEED_REGISTERS>();
        if (warp == FEED_WARP) fig_latent_feed<0>(p, ring);
        if (warp == IDLE_ROWS_WARP) fig_latent_feed_idle_rows(p);
    } else {
        fig_latent_machine_take<MULTIPLY_REGISTERS>();
        fig_latent_multiply<DTYPE, 0>(p, ring);
    }
    /* Until here, the other block writes to this one's memory. */
    fig_latent_machine_announce();
    fig_latent_machine_meet();
}

#define INSTANCE(name, type)                                                                       \
    extern "C" __global__ void __cluster_dims__(2, 1, 1)                                           \
        __launch_bounds__(FIG_LATENT_WIDE_WARPS *FIG_BLOCK_WARP, 1)                                \
            fig_kernel_latent_attention_pair_##name(                                               \
                const __grid_constant__ fig_latent_attention_params p) {                           \
        attend<type>(p);                                                                           \
    }
INSTANCE(bf16, FIG_BF16)
INSTANCE(f16, FIG_F16)

#endif
