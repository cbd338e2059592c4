/* latent_codes.cu: computes split-K attention over a latent cache of codes for groups of few
 * vectors, on warpgroups.
 *
 * The same as latent_narrow.cu, except that codes are converted to bf16 on their way into the
 * ring (narrow_codes.cuh). Premises: fig_latent_attention_codes_refuses() returns NULL,
 * and the launch has one block per worker. */
#define FIG_NARROW_RING_CODES
#include "kernels/latent/narrow_codes.cuh"
#include "kernels/latent/narrow_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    FIRST_CONVERTER = 8,
    FEED_WARP = FIRST_CONVERTER + FIG_LATENT_NARROW_CONVERTERS,
    IDLE_ROWS_WARP
};
static_assert(IDLE_ROWS_WARP < FIG_LATENT_NARROW_CODES_WARPS, "whole warpgroups");
/* Registers per thread. Together they are no more than the 96 that each thread starts with. */
enum { FEED_REGISTERS = 48, MULTIPLY_REGISTERS = 160 };

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
    if (warp < FIRST_CONVERTER) {
        fig_latent_machine_take<MULTIPLY_REGISTERS>();
        fig_narrow_multiply<DTYPE, fig_narrow_leave_through_memory>(p, ring);
        return;
    }
    fig_latent_machine_keep<FEED_REGISTERS>();
    if (warp < FEED_WARP) fig_narrow_codes_convert(ring, warp - FIRST_CONVERTER);
    if (warp == FEED_WARP) fig_narrow_codes_feed(p, ring);
    if (warp == IDLE_ROWS_WARP) fig_latent_feed_idle_rows(p);
}

#define INSTANCE(name, type, vectors)                                                              \
    extern "C" __global__ void __launch_bounds__(FIG_LATENT_NARROW_CODES_WARPS *FIG_BLOCK_WARP, 1) \
        fig_kernel_latent_attention_codes_##name(                                                  \
            const __grid_constant__ fig_latent_attention_params p) {                               \
        attend<type, vectors>(p);                                                                  \
    }
INSTANCE(bf16_16, FIG_BF16, FIG_LATENT_NARROW_FEW)
INSTANCE(bf16_32, FIG_BF16, FIG_LATENT_NARROW_VECTORS)

#endif
