/* scored_copy.cu: the templates of attention with a score, fed by copies of 16 bytes.
 *
 * Owns the instances, one for each cache type and head_dim; scored_family.c forms their names.
 * Invariant: an instance is compiled as the one of attention_copy.cu, apart from its logits. */
#define FIG_PIECES_SCORED 1
#include "kernels/strips/attention_warps.cuh"
#include "kernels/strips/scored_functions.cuh"
#include "planner/spec/head_dims.h"

#define INSTANCE(name, kv, dims)                                                                   \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_GEOMETRY_WARP_LIMIT + FIG_GEOMETRY_COPY_FILLERS) * FIG_BLOCK_WARP, 1)                 \
        fig_kernel_scored_copy_##name##_##dims(                                                    \
            const __grid_constant__ fig_scored_attention_params p) {                               \
        fig_warps_attend<fig_warps_form<kv, dims, 0, 0, 0>>(p.attention);                          \
    }
#define EACH(wide, codes, short_wide, short_codes, whole, name, kv, dims) INSTANCE(name, kv, dims)

FIG_HEAD_DIMS(EACH, f16, FIG_F16)
FIG_HEAD_DIMS(EACH, bf16, FIG_BF16)
FIG_HEAD_DIMS(EACH, e4m3, FIG_E4M3)
FIG_HEAD_DIMS(EACH, e5m2, FIG_E5M2)
