/* cuda_memory.h: allocates blocks through the driver: GPU memory, and pinned host memory.
 *
 * lender.h handles the blocks that a caller lends. Invariant: a block whose allocation failed holds
 * nothing.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_MEMORY_H
#define FIG_ENGINE_CUDA_MEMORY_H

#include "engine/driver/cuda_gpu.h"
#include "engine/seam/device.h"
#include "engine/machine/placement.h"

/* Fills in the addresses of a block whose kind is set. bytes: 1 or more. */
fig_status fig_cuda_memory_allocate(fig_cuda_gpu *gpu, const fig_placement *placement,
                                    fig_block *block, size_t bytes);
void fig_cuda_memory_release(const fig_cuda_gpu *gpu, const fig_placement *placement,
                             const fig_block *block);
/* Fills the memory with zeros, and returns when that is done. */
fig_status fig_cuda_memory_clear(fig_cuda_gpu *gpu, void *device, size_t bytes);

#endif
