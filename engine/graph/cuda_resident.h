/* cuda_resident.h: keeps GPUs, and the kernels loaded on them, until the process ends.
 *
 * A graph that a caller captured may launch our kernels long after the runner is closed, and the
 * driver does not tell us when the graph is destroyed. So once a runner was opened on a GPU, the
 * GPU's context stays retained. Each kernel that any runner needed is loaded once and stays loaded.
 * Invariant: no kernel that a caller got is ever unloaded. */
#ifndef FIG_ENGINE_CUDA_RESIDENT_H
#define FIG_ENGINE_CUDA_RESIDENT_H

#include "engine/graph/cuda_kernels.h"

typedef struct fig_cuda_resident fig_cuda_resident;

/* Any thread may call this function at any time, even during a capture; a lock admits one thread at
 * a time. */
fig_status fig_cuda_resident_open(fig_cuda_resident **resident, int ordinal, int plain);
/* Returns a copy of the GPU's struct, which the caller owns; the context in the copy stays
 * valid. */
fig_cuda_gpu fig_cuda_resident_gpu(fig_cuda_resident *resident);
/* Loads the kernel completely, so that its first launch, which may be captured, loads nothing.
 * While the driver compiles a score, other threads may open and take. If two threads compile the
 * same score at once, both get the kernel that is loaded first. */
fig_status fig_cuda_resident_take(fig_cuda_resident *resident, const fig_cuda_kernel_wish *wish,
                                  fig_cu_function *function);
/* As fig_cuda_kernels_code(). The code stays until the process ends. */
const fig_cuda_score_code *fig_cuda_resident_code(fig_cuda_resident *resident,
                                                  const fig_cuda_kernel_wish *wish);
/* Releases all GPUs. Only tests call this function, because a test's driver goes away before the
 * process ends. */
void fig_cuda_resident_forget(void);

#endif
