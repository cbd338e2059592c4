/* attention_copy.cu: attention on tensor cores whose K and V come by copies of 16 bytes.
 *
 * Owns the instances: what the cache holds and head_dim, as attention_family.c names them. The rest
 * is attention_warps.cuh's. */
#include "kernels/attention_warps.cuh"

#define INSTANCE(name, kv, dims)                                                                   \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_FORM_WARP_LIMIT + FIG_FORM_COPY_FILLERS) * FIG_BLOCK_WARP, 1)                         \
        fig_kernel_attention_copy_##name##_##dims(                                                 \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, 0, 0, 0>>(p);                                    \
    }
#define DIMS(name, kv)                                                                             \
    INSTANCE(name, kv, 64)                                                                         \
    INSTANCE(name, kv, 80)                                                                         \
    INSTANCE(name, kv, 96)                                                                         \
    INSTANCE(name, kv, 128)                                                                        \
    INSTANCE(name, kv, 256)

DIMS(f16, FIG_F16)
DIMS(bf16, FIG_BF16)
DIMS(e4m3, FIG_E4M3)
DIMS(e5m2, FIG_E5M2)
