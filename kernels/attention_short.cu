/* attention_short.cu: attention over short rows, on tensor cores, by clusters of blocks. */
#include "kernels/attention_short.cuh"

#define FIG_SHORT_INSTANCE(name, kv, dims, blocks)                                                 \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1)                                      \
        __launch_bounds__(FIG_SHORT_THREADS, 2)                                                    \
            fig_kernel_attention_short_##name##_##dims##_##blocks(                                 \
                const __grid_constant__ fig_attention_params p) {                                  \
        fig_short_attend<fig_short_form<kv, dims, blocks>>(p);                                     \
    }
#define FIG_SHORT_BLOCKS(name, kv, dims)                                                           \
    FIG_SHORT_INSTANCE(name, kv, dims, 2)                                                          \
    FIG_SHORT_INSTANCE(name, kv, dims, 4)                                                          \
    FIG_SHORT_INSTANCE(name, kv, dims, 8)
FIG_SHORT_BLOCKS(f16, FIG_F16, 64)
FIG_SHORT_BLOCKS(f16, FIG_F16, 128)
FIG_SHORT_BLOCKS(f16, FIG_F16, 256)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 64)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 128)
FIG_SHORT_BLOCKS(bf16, FIG_BF16, 256)
