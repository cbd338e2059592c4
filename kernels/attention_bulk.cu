/* attention_bulk.cu: attention on tensor cores whose K and V come by the bulk copy engine.
 *
 * Owns the instances: what the cache holds, head_dim and how many warps share a head's tokens, as
 * attention_family.c names them. The rest is attention_warps.cuh's. */
#include "kernels/attention_warps.cuh"

#define INSTANCE(name, kv, dims, shares)                                                           \
    extern "C" __global__ void __launch_bounds__((FIG_FORM_WARP_LIMIT + 1) * FIG_BLOCK_WARP, 1)    \
        fig_kernel_attention_bulk_##name##_##dims##_##shares(                                      \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 1, 0>>(p);                               \
    }
#define SHARES(name, kv, dims)                                                                     \
    INSTANCE(name, kv, dims, 1)                                                                    \
    INSTANCE(name, kv, dims, 2)                                                                    \
    INSTANCE(name, kv, dims, 4)

SHARES(f16, FIG_F16, 64)
SHARES(f16, FIG_F16, 128)
SHARES(f16, FIG_F16, 256)
SHARES(bf16, FIG_BF16, 64)
SHARES(bf16, FIG_BF16, 128)
SHARES(bf16, FIG_BF16, 256)
SHARES(e4m3, FIG_E4M3, 128)
SHARES(e4m3, FIG_E4M3, 256)
SHARES(e5m2, FIG_E5M2, 128)
SHARES(e5m2, FIG_E5M2, 256)
