/* attention_instances.cuh: the kernels that the bulk copy engine feeds, as a family lists them.
 *
 * Owns the instances: what the cache holds, head_dim and how many warps share a head's tokens, as
 * attention_family.c names them. The rest is attention_warps.cuh's. Invariant: one for each form
 * that such a family takes, whether it turns q and k or not. */
#ifndef FIG_KERNELS_ATTENTION_INSTANCES_CUH
#define FIG_KERNELS_ATTENTION_INSTANCES_CUH

#include "kernels/attention_warps.cuh"

#define FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, shares)                              \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_FORM_WARP_LIMIT + FIG_FORM_BULK_FILLERS) * FIG_BLOCK_WARP, 1)                         \
        fig_kernel_attention_##family##_##name##_##dims##_##shares(                                \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 1, turns>>(p);                           \
    }
#define FIG_ATTENTION_SHARES(family, turns, name, kv, dims)                                        \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 1)                                       \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 2)                                       \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 4)
#define FIG_ATTENTION_INSTANCES(family, turns)                                                     \
    FIG_ATTENTION_SHARES(family, turns, f16, FIG_F16, 64)                                          \
    FIG_ATTENTION_SHARES(family, turns, f16, FIG_F16, 128)                                         \
    FIG_ATTENTION_SHARES(family, turns, f16, FIG_F16, 256)                                         \
    FIG_ATTENTION_SHARES(family, turns, bf16, FIG_BF16, 64)                                        \
    FIG_ATTENTION_SHARES(family, turns, bf16, FIG_BF16, 128)                                       \
    FIG_ATTENTION_SHARES(family, turns, bf16, FIG_BF16, 256)                                       \
    FIG_ATTENTION_SHARES(family, turns, e4m3, FIG_E4M3, 128)                                       \
    FIG_ATTENTION_SHARES(family, turns, e4m3, FIG_E4M3, 256)                                       \
    FIG_ATTENTION_SHARES(family, turns, e5m2, FIG_E5M2, 128)                                       \
    FIG_ATTENTION_SHARES(family, turns, e5m2, FIG_E5M2, 256)

#endif
