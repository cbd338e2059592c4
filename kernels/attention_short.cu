/* attention_short.cu: attention over short rows, on tensor cores, by clusters of blocks. */
#include "kernels/attention_short.cuh"

/* Blocks of 4 warps are two to an SM. */
#define FIG_SHORT_INSTANCE(name, kv, dims, blocks, warps)                                          \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1)                                      \
        __launch_bounds__(warps *FIG_BLOCK_WARP, FIG_FORM_SHORT_LIMIT / warps)                     \
            fig_kernel_attention_short_##name##_##dims##_##blocks##_##warps(                       \
                const __grid_constant__ fig_attention_params p) {                                  \
        fig_short_attend<fig_short_form<kv, dims, blocks, warps>>(p);                              \
    }
#define FIG_SHORT_BLOCKS(name, kv, dims)                                                           \
    FIG_SHORT_INSTANCE(name, kv, dims, 2, 4)                                                       \
    FIG_SHORT_INSTANCE(name, kv, dims, 4, 4)                                                       \
    FIG_SHORT_INSTANCE(name, kv, dims, 8, 4)
FIG_SHORT_BLOCKS(f16, FIG_F16, 64)
FIG_SHORT_BLOCKS(f16, FIG_F16, 128)
FIG_SHORT_BLOCKS(f16, FIG_F16, 256)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 64)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 128)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 256)
FIG_SHORT_BLOCKS(e4m3, FIG_E4M3, 64)
FIG_SHORT_BLOCKS(e4m3, FIG_E4M3, 128)
FIG_SHORT_BLOCKS(e4m3, FIG_E4M3, 256)
FIG_SHORT_BLOCKS(e5m2, FIG_E5M2, 64)
FIG_SHORT_BLOCKS(e5m2, FIG_E5M2, 128)
FIG_SHORT_BLOCKS(e5m2, FIG_E5M2, 256)
FIG_SHORT_INSTANCE(f16, FIG_F16, 128, 8, 8)
FIG_SHORT_INSTANCE(bf16, FIG_BF16, 128, 8, 8)
FIG_SHORT_INSTANCE(e4m3, FIG_E4M3, 128, 8, 8)
FIG_SHORT_INSTANCE(e5m2, FIG_E5M2, 128, 8, 8)
