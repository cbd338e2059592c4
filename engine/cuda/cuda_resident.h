/* cuda_resident.h: GPUs whose kernels stay loaded for as long as the process lives.
 *
 * What a caller has captured of a run launches its kernels long after the runner is closed, and
 * nobody is told when it goes. So a GPU that a runner was opened on is held, and a kernel that one
 * needed stays, once for all runners. Invariant: nothing that was handed out is ever unloaded. */
#ifndef FIG_ENGINE_CUDA_RESIDENT_H
#define FIG_ENGINE_CUDA_RESIDENT_H

#include "engine/cuda/cuda_kernels.h"

typedef struct fig_cuda_resident fig_cuda_resident;

/* Any thread may call, at any time; one at a time goes on. The calling thread may be capturing. */
fig_status fig_cuda_resident_open(fig_cuda_resident **resident, int ordinal, int plain);
/* A copy, which is the caller's; its context stays. */
fig_cuda_gpu fig_cuda_resident_gpu(fig_cuda_resident *resident);
/* Loaded to the last byte, so that its first launch, which may be captured, need load nothing. */
fig_status fig_cuda_resident_take(fig_cuda_resident *resident, const fig_cuda_kernel_wish *wish,
                                  fig_cu_function *function);
/* Of tests, whose driver goes while the process stays: lets go of all of them. */
void fig_cuda_resident_forget(void);

#endif
