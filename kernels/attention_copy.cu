/* attention_copy.cu: attention on tensor cores whose K and V come by copies of 16 bytes.
 *
 * Owns the instances: what the cache holds, head_dim and how many warps share a head's tokens, as
 * attention_family.c names them. The rest is attention_warps.cuh's. */
#include "kernels/attention_warps.cuh"

#define INSTANCE(name, kv, dims, shares)                                                           \
    extern "C" __global__ void __launch_bounds__((FIG_FORM_WARP_LIMIT + 2) * FIG_BLOCK_WARP, 1)    \
        fig_kernel_attention_copy_##name##_##dims##_##shares(                                      \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 0, 0>>(p);                               \
    }
#define DIMS(name, kv, shares)                                                                     \
    INSTANCE(name, kv, 64, shares)                                                                 \
    INSTANCE(name, kv, 80, shares)                                                                 \
    INSTANCE(name, kv, 96, shares)                                                                 \
    INSTANCE(name, kv, 128, shares)                                                                \
    INSTANCE(name, kv, 256, shares)
#define SHARES(name, kv)                                                                           \
    DIMS(name, kv, 1)                                                                              \
    DIMS(name, kv, 4)

SHARES(f16, FIG_F16)
SHARES(bf16, FIG_BF16)
SHARES(e4m3, FIG_E4M3)
SHARES(e5m2, FIG_E5M2)
