/* scored_bulk.cu: the templates of attention with a score, fed by the bulk copy engine.
 *
 * Owns the instances, one for each cache type, head_dim and number of warps that share a head's
 * tokens; scored_family.c forms their names. Invariant: an instance is compiled as the one of
 * attention_bulk.cu, apart from its logits. */
#define FIG_PIECES_SCORED 1
#include "kernels/strips/attention_warps.cuh"
#include "kernels/strips/scored_functions.cuh"
#include "planner/spec/head_dims.h"

#define INSTANCE(name, kv, dims, shares)                                                           \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_GEOMETRY_WARP_LIMIT + FIG_GEOMETRY_BULK_FILLERS) * FIG_BLOCK_WARP, 1)                 \
        fig_kernel_scored_bulk_##name##_##dims##_##shares(                                         \
            const __grid_constant__ fig_scored_attention_params p) {                               \
        fig_warps_attend<fig_warps_form<kv, dims, shares, 1, 0>>(p.attention);                     \
    }
#define SHARES(name, kv, dims)                                                                     \
    INSTANCE(name, kv, dims, 1)                                                                    \
    INSTANCE(name, kv, dims, 2)                                                                    \
    INSTANCE(name, kv, dims, 4)
#define WIDE(wide, codes, short_wide, short_codes, whole, name, kv, dims)                          \
    FIG_HEAD_DIMS_IF(wide, SHARES(name, kv, dims))
#define CODES(wide, codes, short_wide, short_codes, whole, name, kv, dims)                         \
    FIG_HEAD_DIMS_IF(codes, SHARES(name, kv, dims))

FIG_HEAD_DIMS(WIDE, f16, FIG_F16)
FIG_HEAD_DIMS(WIDE, bf16, FIG_BF16)
FIG_HEAD_DIMS(CODES, e4m3, FIG_E4M3)
FIG_HEAD_DIMS(CODES, e5m2, FIG_E5M2)
