/* cuda_kernels.h: the library's kernels on one GPU, each loaded at its first use.
 *
 * Owns the loaded images and the entries found in them; images.h says which image holds which
 * kernel. Invariant: a kernel that a caller gets takes exactly the params of its row in the kernel
 * table, and may use as much shared memory as the caller requested. */
#ifndef FIG_ENGINE_CUDA_KERNELS_H
#define FIG_ENGINE_CUDA_KERNELS_H

#include "engine/graph/cuda_scores.h"
#include "kernels/table/families.h"

typedef struct fig_cuda_kernel fig_cuda_kernel; /* an entry that was found */

typedef struct fig_cuda_image {
    fig_cu_library library;   /* NULL: not loaded */
    fig_cuda_kernel *entries; /* a linked list, newest first */
} fig_cuda_image;

typedef struct fig_cuda_scored fig_cuda_scored; /* an entry that was compiled for a score */

typedef struct fig_cuda_kernels {
    const fig_image_set *given; /* images that replace the library's own; NULL: none */
    char *folder;               /* where compiled scores are kept; NULL: in memory alone */
    fig_cuda_scored *scored;    /* a linked list, newest first */
    fig_cuda_image images[FIG_OP_KERNEL_COUNT][FIG_FAMILY_LIMIT]; /* [fig_op] */
} fig_cuda_kernels;

/* Names the wanted kernel and the dynamic shared memory that its launch needs. */
typedef struct fig_cuda_kernel_wish {
    fig_op op;
    uint32_t family;
    char entry[FIG_ENTRY_BYTES];
    uint32_t shared_bytes;
    const fig_score_code *score; /* of a family that compiles; else NULL */
    const char *folder; /* where compiled scores are kept; NULL: as fig_cuda_kernels says */
    const fig_cuda_score_code *code; /* of the score; NULL: fig_cuda_kernels_take() finds it */
} fig_cuda_kernel_wish;

/* The caller has entered the GPU's context. fig_cuda_kernels_finish() also accepts a zeroed
 * struct. */
fig_status fig_cuda_kernels_take(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu,
                                 const fig_cuda_kernel_wish *wish, fig_cu_kernel *kernel);
/* Returns the code of a kernel that was compiled and taken; NULL if this wish was none. */
const fig_cuda_score_code *fig_cuda_kernels_code(const fig_cuda_kernels *kernels,
                                                 const fig_cuda_kernel_wish *wish);
/* Takes the kernel that every graph has, to test whether this driver accepts the library's code: a
 * driver refuses code from a compiler that is newer than the driver. */
fig_status fig_cuda_kernels_try(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu);
void fig_cuda_kernels_finish(fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu);

#endif
