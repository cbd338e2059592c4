/* attention_instances.cuh: lists the kernel instances that the bulk copy engine feeds, for one
 * family.
 *
 * Owns the instances, one for each cache type, head_dim of head_dims.h, and number of warps that
 * share a head's tokens; attention_family.c forms their names. attention_warps.cuh holds the code.
 * Invariant: there is an instance for each combination that such a family accepts, with and without
 * RoPE. */
#ifndef FIG_KERNELS_ATTENTION_INSTANCES_CUH
#define FIG_KERNELS_ATTENTION_INSTANCES_CUH

#include "kernels/strips/attention_warps.cuh"
#include "planner/spec/head_dims.h"

#define FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, shares)                              \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_GEOMETRY_WARP_LIMIT + FIG_GEOMETRY_BULK_FILLERS) * FIG_BLOCK_WARP, 1)                 \
        fig_kernel_attention_##family##_##name##_##dims##_##shares(                                \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 1, turns>>(p);                           \
    }
#define FIG_ATTENTION_SHARES(family, turns, name, kv, dims)                                        \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 1)                                       \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 2)                                       \
    FIG_ATTENTION_INSTANCE(family, turns, name, kv, dims, 4)
#define FIG_ATTENTION_WIDE(wide, codes, short_wide, short_codes, whole, family, turns, name, kv,   \
                           dims)                                                                   \
    FIG_HEAD_DIMS_IF(wide, FIG_ATTENTION_SHARES(family, turns, name, kv, dims))
#define FIG_ATTENTION_CODES(wide, codes, short_wide, short_codes, whole, family, turns, name, kv,  \
                            dims)                                                                  \
    FIG_HEAD_DIMS_IF(codes, FIG_ATTENTION_SHARES(family, turns, name, kv, dims))
#define FIG_ATTENTION_INSTANCES(family, turns)                                                     \
    FIG_HEAD_DIMS(FIG_ATTENTION_WIDE, family, turns, f16, FIG_F16)                                 \
    FIG_HEAD_DIMS(FIG_ATTENTION_WIDE, family, turns, bf16, FIG_BF16)                               \
    FIG_HEAD_DIMS(FIG_ATTENTION_CODES, family, turns, e4m3, FIG_E4M3)                              \
    FIG_HEAD_DIMS(FIG_ATTENTION_CODES, family, turns, e5m2, FIG_E5M2)

#endif
