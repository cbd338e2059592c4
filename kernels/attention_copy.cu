/* attention_copy.cu: attention on tensor cores whose K and V come by copies of 16 bytes. */
#include "kernels/attention_warps.cuh"

#define INSTANCE(name, kv, dims, shares)                                                           \
    extern "C" __global__ void __launch_bounds__((FIG_FORM_WARP_LIMIT + 2) * FIG_BLOCK_WARP, 1)    \
        fig_kernel_attention_copy_##name##_##dims##_##shares(                                      \
            const __grid_constant__ fig_attention_tensor_params p) {                               \
        const fig_feed_maps maps = {&p.k_map, &p.v_map};                                           \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 0>>(p.attention, maps);                  \
    }
#define SHARES(name, kv, dims)                                                                     \
    INSTANCE(name, kv, dims, 1) INSTANCE(name, kv, dims, 2) INSTANCE(name, kv, dims, 4)

#ifndef FORMS
#define FORMS SHARES(bf16, FIG_BF16, 128) SHARES(e4m3, FIG_E4M3, 128) SHARES(f16, FIG_F16, 64)
#endif
FORMS
