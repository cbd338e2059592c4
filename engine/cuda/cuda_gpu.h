/* cuda_gpu.h: one GPU, its primary context, and what becomes of the driver's refusals.
 *
 * The context is the one that every other library in the process uses, so addresses and streams of
 * theirs are good here; it is retained, never changed, and current only between enter and leave.
 * Invariant: once a call has met an error that the context does not survive, `lost` holds the
 * driver's words for it, and no call but those that free reaches the driver. */
#ifndef FIG_ENGINE_CUDA_GPU_H
#define FIG_ENGINE_CUDA_GPU_H

#include "engine/cuda/cuda_api.h"

enum { FIG_CUDA_GPU_LEAST_CAPABILITY = 80 }; /* 8.0 */

typedef struct fig_cuda_gpu {
    const fig_cuda_api *cu;
    fig_cu_device device;
    fig_cu_context context; /* NULL: not retained */
    fig_cu_stream aside;    /* for work at set-up: apart from the caller's and from the NULL stream,
                               whose every use waits for other streams and breaks captures */
    fig_cu_stream uploads; /* what execs need of the device goes there; nothing is captured on it */
    fig_image_path path;
    int plain_edges; /* no edge is programmatic */
    uint32_t routes; /* FIG_ROUTE_* that collectives may take; 0: all */
    int ordinal;
    int32_t node; /* of the host's NUMA nodes the one beside it; -1: unknown */
    fig_traits traits;
    /* Called again and again by who waits for a stream, with `attended`; NULL: what is on a stream
     * ends by itself, and a wait needs no looks. */
    void (*attend)(void *attended);
    void *attended;
    char lost[256]; /* "": it is not */
} fig_cuda_gpu;

/* The error of one driver call, as a status and its sentence. */
#define CU_TRY(gpu, name, ...)                                                                     \
    do {                                                                                           \
        fig_cu_result cu_try_result_ = (gpu)->cu->name(__VA_ARGS__);                               \
        if (cu_try_result_ != FIG_CU_SUCCESS)                                                      \
            return fig_cuda_gpu_refuse((gpu), cu_try_result_, "cu" #name);                         \
    } while (0)

/* How many the driver sees; FIG_NO_DEVICE, and 0, where there is no driver or no GPU. */
fig_status fig_cuda_gpu_count(int *count);
/* 1: this machine has no driver, or a sound driver that sees no GPU. 0 where anything else is
 * wrong, a driver that is too old or refuses to start included. */
int fig_cuda_gpu_is_absent(void);
/* Looks for the GPU and asks nothing of it; FIG_NO_DEVICE says in one sentence what is missing.
 * Nothing is held. look finds also one that has no kernels here; `path` is what it would run. */
fig_status fig_cuda_gpu_look(fig_cuda_gpu *gpu, int ordinal, int plain);
fig_status fig_cuda_gpu_find(fig_cuda_gpu *gpu, int ordinal, int plain);
/* Retains the context of a GPU that was found. close takes a zeroed struct and a half-open one. */
fig_status fig_cuda_gpu_open(fig_cuda_gpu *gpu);
void fig_cuda_gpu_close(fig_cuda_gpu *gpu);

/* Makes the context current, and what is unsafe in a capture allowed: the caller's thread, or
 * another of the process, may be capturing at any time, and allocating, loading code, making or
 * destroying an exec, or asking how far a stream is, would else break that capture (error 901).
 * None of it is meant to be part of one. leave gives the caller's back and returns `status`. What
 * is freed is freed in a lost context as well, and where none can be entered. */
fig_status fig_cuda_gpu_enter(fig_cuda_gpu *gpu);
/* hold enters as well, and until its leave enter_held, right within and on this thread, asks the
 * driver for nothing. Who calls code of others, which may leave another context current, enters. */
fig_status fig_cuda_gpu_hold(fig_cuda_gpu *gpu);
fig_status fig_cuda_gpu_enter_held(fig_cuda_gpu *gpu);
void fig_cuda_gpu_enter_to_free(fig_cuda_gpu *gpu);
fig_status fig_cuda_gpu_leave(fig_cuda_gpu *gpu, fig_status status);
/* Of a call that needs no context: the allowing alone. */
fig_status fig_cuda_gpu_relax(fig_cuda_gpu *gpu);

/* FIG_LOST where it is. */
fig_status fig_cuda_gpu_check(const fig_cuda_gpu *gpu);
/* FIG_NOMEM, FIG_LOST or FIG_DRIVER, with the driver's own name of the error and its words. */
fig_status fig_cuda_gpu_refuse(fig_cuda_gpu *gpu, fig_cu_result result, const char *call);

#endif
