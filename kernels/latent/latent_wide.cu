/* latent_wide.cu: computes split-K attention over a latent cache, on warpgroups.
 *
 * out = sum over tokens of 2^(l - m) v / sum of 2^(l - m), where l is the logit in base 2, m a
 * reference near the greatest l, and v the first 512 values of the token. One block is one worker
 * of the split. One warp loads tiles (latent_feed.cuh), and two warpgroups multiply them
 * (latent_multiply.cuh), write results and merge those of cut segments (latent_leave.cuh).
 * Premises: fig_latent_attention_wide_refuses() returns NULL, and the launch has one block per
 * worker. */
#include "kernels/latent/latent_feed.cuh"
#include "kernels/latent/latent_multiply.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Registers per thread. Together the 12 warps use no more than the 168 per thread that they start
 * with. */
enum { FEED_REGISTERS = 56, MULTIPLY_REGISTERS = 224 };

enum { FEED_WARP = 8, IDLE_ROWS_WARP = 9 };

template <int32_t DTYPE, int32_t AHEAD>
static __device__ __forceinline__ void attend(const fig_latent_attention_params &p) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const int32_t warp = fig_block_warp();
    const fig_latent_ring ring = {
        fig_fragment_shared(shared),
        (fig_latent_ring_state *)(void *)(shared + (FIG_LATENT_WIDE_STAGES + 1) *
                                                       FIG_LATENT_WIDE_SIDE_BYTES)};
    if (threadIdx.x == 0) fig_latent_ring_init(ring.state);
    __syncthreads();
    if (warp >= FEED_WARP) {
        fig_latent_machine_keep<FEED_REGISTERS>();
        if (warp == FEED_WARP) fig_latent_feed<AHEAD>(p, ring);
        if (warp == IDLE_ROWS_WARP) fig_latent_feed_idle_rows(p);
    } else {
        fig_latent_machine_take<MULTIPLY_REGISTERS>();
        fig_latent_multiply<DTYPE, AHEAD>(p, ring);
    }
}

#define INSTANCE(name, type, ahead)                                                                \
    extern "C" __global__ void __launch_bounds__(FIG_LATENT_WIDE_WARPS *FIG_BLOCK_WARP, 1)         \
        fig_kernel_latent_attention_wide_##name(                                                   \
            const __grid_constant__ fig_latent_attention_params p) {                               \
        attend<type, ahead>(p);                                                                    \
    }
INSTANCE(bf16, FIG_BF16, 0)
INSTANCE(f16, FIG_F16, 0)
INSTANCE(bf16_ahead, FIG_BF16, 1)
INSTANCE(f16_ahead, FIG_F16, 1)

#endif
