/* cuda_kernels.h: the library's kernels as one GPU has loaded them, each on its first use.
 *
 * Owns the loaded images and the entries found in them; which image is whose is kernels/images.h's.
 * Invariant: a kernel that is handed out takes the params of its row of the table and nothing else,
 * and may use the shared memory that it was asked for with. */
#ifndef FIG_ENGINE_CUDA_KERNELS_H
#define FIG_ENGINE_CUDA_KERNELS_H

#include "engine/cuda/cuda_gpu.h"
#include "kernels/families.h"

typedef struct fig_cuda_kernel fig_cuda_kernel; /* an entry that was found */

typedef struct fig_cuda_image {
    fig_cu_library library;   /* NULL: not loaded */
    fig_cuda_kernel *entries; /* a list, the newest first */
} fig_cuda_image;

typedef struct fig_cuda_kernels {
    const fig_image_set *given; /* which stand in the place of the library's; NULL: none */
    fig_cuda_image images[FIG_OP_KERNEL_COUNT][FIG_FAMILY_LIMIT]; /* [fig_op] */
} fig_cuda_kernels;

/* Which kernel is wanted, and with how much dynamic shared memory. */
typedef struct fig_cuda_kernel_wish {
    fig_op op;
    uint32_t family;
    char entry[FIG_ENTRY_BYTES];
    uint32_t shared_bytes;
} fig_cuda_kernel_wish;

/* The context is entered. finish takes a zeroed struct. */
fig_status fig_cuda_kernels_take(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                                 const fig_cuda_kernel_wish *wish, fig_cu_kernel *kernel);
/* Takes the one kernel that every graph has, to see that this driver takes the code: it refuses
 * code of a compiler that is newer than itself. */
fig_status fig_cuda_kernels_try(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu);
void fig_cuda_kernels_finish(fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu);

#endif
