/* attention_copy.cu: computes attention on tensor cores; copies of 16 bytes load K and V.
 *
 * Owns the instances, one for each cache type and head_dim; attention_family.c forms their names.
 * attention_warps.cuh holds the code. */
#include "kernels/strips/attention_warps.cuh"
#include "planner/spec/head_dims.h"

#define INSTANCE(name, kv, dims)                                                                   \
    extern "C" __global__ void __launch_bounds__(                                                  \
        (FIG_GEOMETRY_WARP_LIMIT + FIG_GEOMETRY_COPY_FILLERS) * FIG_BLOCK_WARP, 1)                 \
        fig_kernel_attention_copy_##name##_##dims(                                                 \
            const __grid_constant__ fig_attention_params p) {                                      \
        fig_warps_attend<fig_warps_form<kv, dims, 0, 0, 0>>(p);                                    \
    }
#define EACH(wide, codes, short_wide, short_codes, whole, name, kv, dims) INSTANCE(name, kv, dims)

FIG_HEAD_DIMS(EACH, f16, FIG_F16)
FIG_HEAD_DIMS(EACH, bf16, FIG_BF16)
FIG_HEAD_DIMS(EACH, e4m3, FIG_E4M3)
FIG_HEAD_DIMS(EACH, e5m2, FIG_E5M2)
