/* latent_narrow.cu: computes split-K attention over a latent cache for groups of few vectors, on
 * warpgroups.
 *
 * The formula is that of latent_wide.cu. There, vectors are the rows of the products, of which a
 * warpgroup has 64; here they are columns, so 16 vectors take a quarter of the products and
 * registers. One block is one worker of the split. One warp loads tiles (narrow_feed.cuh), and two
 * warpgroups multiply them (narrow_multiply.cuh), write results (narrow_leave.cuh) and merge those
 * of cut segments (latent_leave.cuh). Premises: fig_latent_attention_narrow_refuses() returns NULL,
 * and the launch has one block per worker. */
#include "kernels/latent/narrow_feed.cuh"
#include "kernels/latent/narrow_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum { FEED_WARP = 8, IDLE_ROWS_WARP = 9 };

template <int32_t DTYPE, int32_t VECTORS>
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
    if (warp < FEED_WARP) fig_narrow_multiply<DTYPE, fig_narrow_leave_through_memory>(p, ring);
    if (warp == FEED_WARP) fig_narrow_feed(p, ring);
    if (warp == IDLE_ROWS_WARP) fig_latent_feed_idle_rows(p);
}

#define INSTANCE(name, type, vectors)                                                              \
    extern "C" __global__ void __launch_bounds__(FIG_LATENT_NARROW_WARPS *FIG_BLOCK_WARP, 1)       \
        fig_kernel_latent_attention_narrow_##name(                                                 \
            const __grid_constant__ fig_latent_attention_params p) {                               \
        attend<type, vectors>(p);                                                                  \
    }
INSTANCE(bf16_16, FIG_BF16, FIG_LATENT_NARROW_FEW)
INSTANCE(f16_16, FIG_F16, FIG_LATENT_NARROW_FEW)
INSTANCE(bf16_32, FIG_BF16, FIG_LATENT_NARROW_VECTORS)
INSTANCE(f16_32, FIG_F16, FIG_LATENT_NARROW_VECTORS)

#endif
