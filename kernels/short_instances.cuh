/* short_instances.cuh: the kernels of short rows, as a family lists them.
 *
 * Owns the instances, over caches of 16 bits and of codes: what the cache holds, head_dim, blocks
 * of a cluster and warps of a block, as attention_family.c names them. The rest is
 * attention_short.cuh's. Invariant: one for each form that such a family takes, whether it turns q
 * and k or not. */
#ifndef FIG_KERNELS_SHORT_INSTANCES_CUH
#define FIG_KERNELS_SHORT_INSTANCES_CUH

#include "kernels/attention_short.cuh"

/* Blocks of 4 warps are two to an SM. */
#define FIG_SHORT_INSTANCE(family, turns, name, kv, dims, blocks, warps)                           \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1)                                      \
        __launch_bounds__(warps *FIG_BLOCK_WARP, FIG_FORM_SHORT_LIMIT / warps)                     \
            fig_kernel_attention_##family##_##name##_##dims##_##blocks##_##warps(                  \
                const __grid_constant__ fig_attention_params p) {                                  \
        fig_short_attend<fig_short_form<kv, dims, blocks, warps, turns>>(p);                       \
    }
#define FIG_SHORT_BLOCKS(family, turns, name, kv, dims)                                            \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 2, 4)                                        \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 4, 4)                                        \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 8, 4)
#define FIG_SHORT_INSTANCES(family, turns)                                                         \
    FIG_SHORT_BLOCKS(family, turns, f16, FIG_F16, 64)                                              \
    FIG_SHORT_BLOCKS(family, turns, f16, FIG_F16, 128)                                             \
    FIG_SHORT_BLOCKS(family, turns, f16, FIG_F16, 256)                                             \
    FIG_SHORT_BLOCKS(family, turns, bf16, FIG_BF16, 64)                                            \
    FIG_SHORT_BLOCKS(family, turns, bf16, FIG_BF16, 128)                                           \
    FIG_SHORT_BLOCKS(family, turns, bf16, FIG_BF16, 256)                                           \
    FIG_SHORT_INSTANCE(family, turns, f16, FIG_F16, 128, 8, 8)                                     \
    FIG_SHORT_INSTANCE(family, turns, bf16, FIG_BF16, 128, 8, 8)                                   \
    FIG_SHORT_BLOCKS(family, turns, e4m3, FIG_E4M3, 64)                                            \
    FIG_SHORT_BLOCKS(family, turns, e4m3, FIG_E4M3, 128)                                           \
    FIG_SHORT_BLOCKS(family, turns, e4m3, FIG_E4M3, 256)                                           \
    FIG_SHORT_BLOCKS(family, turns, e5m2, FIG_E5M2, 64)                                            \
    FIG_SHORT_BLOCKS(family, turns, e5m2, FIG_E5M2, 128)                                           \
    FIG_SHORT_BLOCKS(family, turns, e5m2, FIG_E5M2, 256)                                           \
    FIG_SHORT_INSTANCE(family, turns, e4m3, FIG_E4M3, 128, 8, 8)                                   \
    FIG_SHORT_INSTANCE(family, turns, e5m2, FIG_E5M2, 128, 8, 8)

#endif
