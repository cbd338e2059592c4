/* short_instances.cuh: lists the kernel instances for short rows, for one family.
 *
 * Owns the instances, one for each cache type (16 bits or codes), head_dim, number of blocks of
 * a cluster and number of warps of a block; attention_family.c forms their names.
 * attention_short.cuh holds the code. Invariant: there is an instance for each combination that
 * such a family accepts, with and without RoPE. */
#ifndef FIG_KERNELS_SHORT_INSTANCES_CUH
#define FIG_KERNELS_SHORT_INSTANCES_CUH

#include "kernels/strips/attention_short.cuh"
#include "planner/spec/head_dims.h"

/* Defines one instance. Two blocks of 4 warps share an SM. */
#define FIG_SHORT_INSTANCE(family, turns, name, kv, dims, blocks, warps)                           \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1)                                      \
        __launch_bounds__(warps *FIG_BLOCK_WARP, FIG_GEOMETRY_SHORT_LIMIT / warps)                 \
            fig_kernel_attention_##family##_##name##_##dims##_##blocks##_##warps(                  \
                const __grid_constant__ fig_attention_params p) {                                  \
        fig_short_attend<fig_short_form<kv, dims, blocks, warps, turns>>(p);                       \
    }
#define FIG_SHORT_BLOCKS(family, turns, name, kv, dims)                                            \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 2, 4)                                        \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 4, 4)                                        \
    FIG_SHORT_INSTANCE(family, turns, name, kv, dims, 8, 4)
#define FIG_SHORT_VALUES(wide, codes, short_wide, short_codes, whole, family, turns, name, kv,     \
                         dims)                                                                     \
    FIG_HEAD_DIMS_IF(short_wide, FIG_SHORT_BLOCKS(family, turns, name, kv, dims))
#define FIG_SHORT_CODES(wide, codes, short_wide, short_codes, whole, family, turns, name, kv,      \
                        dims)                                                                      \
    FIG_HEAD_DIMS_IF(short_codes, FIG_SHORT_BLOCKS(family, turns, name, kv, dims))
/* Blocks of 8 warps exist for the head_dim that fig_geometry_short_warps() names. A kernel with
 * clusters of 16 runs only where the loader has allowed that size. */
#define FIG_SHORT_WIDE(family, turns, name, kv)                                                    \
    FIG_SHORT_INSTANCE(family, turns, name, kv, 128, 8, 8)                                         \
    FIG_SHORT_INSTANCE(family, turns, name, kv, 128, 16, 8)
#define FIG_SHORT_INSTANCES(family, turns)                                                         \
    FIG_HEAD_DIMS(FIG_SHORT_VALUES, family, turns, f16, FIG_F16)                                   \
    FIG_HEAD_DIMS(FIG_SHORT_VALUES, family, turns, bf16, FIG_BF16)                                 \
    FIG_SHORT_WIDE(family, turns, f16, FIG_F16)                                                    \
    FIG_SHORT_WIDE(family, turns, bf16, FIG_BF16)                                                  \
    FIG_HEAD_DIMS(FIG_SHORT_CODES, family, turns, e4m3, FIG_E4M3)                                  \
    FIG_HEAD_DIMS(FIG_SHORT_CODES, family, turns, e5m2, FIG_E5M2)                                  \
    FIG_SHORT_WIDE(family, turns, e4m3, FIG_E4M3)                                                  \
    FIG_SHORT_WIDE(family, turns, e5m2, FIG_E5M2)

#endif
