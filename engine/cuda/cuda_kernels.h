/* cuda_kernels.h: the library's kernels as one GPU has loaded them, each on its first use.
 *
 * Owns the loaded images; which image is whose is kernels/images.h's. Invariant: a kernel that is
 * handed out takes the params of its row of the table and nothing else, and may use the shared
 * memory that it was asked for with. */
#ifndef FIG_ENGINE_CUDA_KERNELS_H
#define FIG_ENGINE_CUDA_KERNELS_H

#include "engine/cuda/cuda_gpu.h"

typedef struct fig_cuda_kernel {
    fig_cu_library library; /* NULL: not loaded */
    fig_cu_kernel kernel;
    uint32_t static_bytes;  /* of shared memory, that the kernel has without asking */
    uint32_t dynamic_bytes; /* most that a launch may ask for */
} fig_cuda_kernel;

typedef struct fig_cuda_kernels {
    fig_cuda_kernel loaded[FIG_OP_KERNEL_COUNT]; /* [fig_op] */
} fig_cuda_kernels;

/* The context is entered. finish takes a zeroed struct. */
fig_status fig_cuda_kernels_take(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu, fig_op op,
                                 uint32_t shared_bytes, fig_cu_kernel *kernel);
void fig_cuda_kernels_finish(fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu);

#endif
