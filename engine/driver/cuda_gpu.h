/* cuda_gpu.h: one GPU, its primary context, and the handling of driver errors.
 *
 * Other libraries in the process use the same primary context, so their addresses and streams are
 * valid here. This file retains the context and never changes it; the context is current only
 * between fig_cuda_gpu_enter() and fig_cuda_gpu_leave(). Invariant: after an error that the context
 * does not survive, `lost` holds the driver's description of that error, and only calls that free
 * something still reach the driver. */
#ifndef FIG_ENGINE_CUDA_GPU_H
#define FIG_ENGINE_CUDA_GPU_H

#include "engine/driver/cuda_api.h"

enum { FIG_CUDA_GPU_LEAST_CAPABILITY = 80 }; /* 8.0 */

typedef struct fig_cuda_gpu {
    const fig_cuda_api *cu;
    fig_cu_device device;
    fig_cu_context context; /* NULL: not retained */
    /* Our own stream for work at set-up. The NULL stream is unsuitable: each use of it waits for
     * other streams and breaks captures. */
    fig_cu_stream aside;
    /* Execs are uploaded and memory is cleared on this stream; nothing is captured on it. */
    fig_cu_stream uploads;
    fig_image_path path;
    int plain_edges; /* 1: no edge is programmatic */
    uint32_t routes; /* FIG_ROUTE_* bits that collectives may take; 0: all */
    int ordinal;
    int32_t node; /* the host's NUMA node beside the GPU; -1: unknown */
    fig_traits traits;
    /* A thread that waits for a stream calls this function repeatedly with `attended`. NULL: all
     * work on streams ends by itself, so a wait needs no checks. */
    void (*attend)(void *attended);
    void *attended;
    /* The driver's description of the fatal error. It is complete, and does not change any more,
     * when the atomic `loss` is FIG_CUDA_GPU_LOST. */
    char lost[256];
    uint32_t loss;
} fig_cuda_gpu;

/* FIG_CUDA_GPU_LOSING: a thread is writing the description. */
enum { FIG_CUDA_GPU_FINE, FIG_CUDA_GPU_LOSING, FIG_CUDA_GPU_LOST };

/* Makes one driver call. If the call fails, the macro sets the message and returns the error's
 * status from the function. */
#define CU_TRY(gpu, name, ...)                                                                     \
    do {                                                                                           \
        fig_cu_result cu_try_result_ = (gpu)->cu->name(__VA_ARGS__);                               \
        if (cu_try_result_ != FIG_CU_SUCCESS)                                                      \
            return fig_cuda_gpu_refuse((gpu), cu_try_result_, "cu" #name);                         \
    } while (0)

/* Sets *count to the number of GPUs that the driver sees. If there is no driver or no GPU, sets it
 * to 0 and returns FIG_NO_DEVICE. */
fig_status fig_cuda_gpu_count(int *count);
/* Returns 1 if this machine has no driver, or a working driver that sees no GPU. Returns 0 if there
 * is a GPU, or if something else is wrong, for example if the driver is too old or fails to
 * start. */
int fig_cuda_gpu_is_absent(void);
/* Both functions look for the GPU and retain nothing. If they return FIG_NO_DEVICE, the message
 * says what is missing. fig_cuda_gpu_find() requires that this library has kernels for the GPU.
 * fig_cuda_gpu_look() also finds a GPU for which the library has no kernels; `path` then shows
 * which kernels the GPU would run. */
fig_status fig_cuda_gpu_look(fig_cuda_gpu *gpu, int ordinal, int plain);
fig_status fig_cuda_gpu_find(fig_cuda_gpu *gpu, int ordinal, int plain);
/* fig_cuda_gpu_open() retains the context of a GPU that was found. fig_cuda_gpu_close() also
 * accepts a zeroed or half-open struct. */
fig_status fig_cuda_gpu_open(fig_cuda_gpu *gpu);
void fig_cuda_gpu_close(fig_cuda_gpu *gpu);

/* fig_cuda_gpu_enter() makes the context current, and allows calls that are unsafe in a capture.
 * The caller's thread, or another thread of the process, may be capturing at any time. Without that
 * permission, allocating, loading code, creating or destroying an exec, or querying a stream would
 * break such a capture (error 901). The library never makes these calls in order to capture them.
 * fig_cuda_gpu_leave() restores the caller's context and mode, and returns `status`.
 * fig_cuda_gpu_enter_to_free() also works in a lost context, and continues even if it cannot enter
 * the context. */
fig_status fig_cuda_gpu_enter(fig_cuda_gpu *gpu);
/* fig_cuda_gpu_hold() also enters. Until the matching fig_cuda_gpu_leave(), a nested
 * fig_cuda_gpu_enter_held() on the same thread makes no driver call, provided that no other
 * fig_cuda_gpu_enter() lies between the two. Code that runs foreign code must use
 * fig_cuda_gpu_enter(), because foreign code may leave another context current. */
fig_status fig_cuda_gpu_hold(fig_cuda_gpu *gpu);
fig_status fig_cuda_gpu_enter_held(fig_cuda_gpu *gpu);
void fig_cuda_gpu_enter_to_free(fig_cuda_gpu *gpu);
fig_status fig_cuda_gpu_leave(fig_cuda_gpu *gpu, fig_status status);
/* Allows calls that are unsafe in a capture but enters no context; for driver calls that need
 * none. */
fig_status fig_cuda_gpu_relax(fig_cuda_gpu *gpu);

/* Returns 1 if the context is lost. Another thread may have found that. */
int fig_cuda_gpu_is_lost(const fig_cuda_gpu *gpu);
/* Returns FIG_LOST if the context is lost. */
fig_status fig_cuda_gpu_check(const fig_cuda_gpu *gpu);
/* Returns FIG_NOMEM, FIG_LOST or FIG_DRIVER; the message has the driver's name and description of
 * the error. */
fig_status fig_cuda_gpu_refuse(fig_cuda_gpu *gpu, fig_cu_result result, const char *call);

#endif
