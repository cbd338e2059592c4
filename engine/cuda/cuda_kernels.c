/* cuda_kernels.c: load an image, look at what it holds, and let it have the memory it asks for.
 *
 * Invariant: an image is kept only once its kernel has been found and its params have been seen to
 * be those of the table, so what is loaded is checked. */
#include "engine/cuda/cuda_kernels.h"

#include <inttypes.h>
#include <stdio.h>

#include "planner/status.h"

/* What a launch may use without being allowed to, static and dynamic together, on every chip. */
enum { FREE_SHARED_BYTES = 48 * 1024 };

/* An image compiled from other params than the table's would read past the end of ours. */
static fig_status check_params(fig_cuda_gpu *gpu, fig_op op, fig_cu_kernel kernel) {
    size_t offset = 0, bytes = 0, ignored;
    const fig_kernel *row = &fig_kernel_table[op];
    CU_TRY(gpu, KernelGetParamInfo, kernel, 0, &offset, &bytes);
    if (offset != 0 || bytes != row->params_bytes)
        return fig_fail(FIG_DRIVER,
                        "cuda device: fig_kernel_%s takes %zu bytes at %zu, its params are %u",
                        row->name, bytes, offset, row->params_bytes);
    fig_cu_result result = gpu->cu->KernelGetParamInfo(kernel, 1, &offset, &ignored);
    if (result == FIG_CU_INVALID_VALUE) return FIG_OK;
    if (result != FIG_CU_SUCCESS) return fig_cuda_gpu_refuse(gpu, result, "cuKernelGetParamInfo");
    return fig_fail(FIG_DRIVER, "cuda device: fig_kernel_%s takes more than its params", row->name);
}

static fig_status find_kernel(fig_cuda_gpu *gpu, fig_op op, fig_cuda_kernel *held) {
    char name[64];
    int static_bytes = 0;
    snprintf(name, sizeof name, "fig_kernel_%s", fig_kernel_table[op].name);
    CU_TRY(gpu, LibraryGetKernel, &held->kernel, held->library, name);
    FIG_TRY(check_params(gpu, op, held->kernel));
    CU_TRY(gpu, KernelGetAttribute, &static_bytes, FIG_CU_KERNEL_STATIC_SHARED_BYTES, held->kernel,
           gpu->device);
    held->static_bytes = (uint32_t)static_bytes;
    if (held->static_bytes < FREE_SHARED_BYTES)
        held->dynamic_bytes = FREE_SHARED_BYTES - held->static_bytes;
    return FIG_OK;
}

static fig_status load(fig_cuda_gpu *gpu, fig_op op, fig_cuda_kernel *held) {
    fig_image image = gpu->cu->image(op, gpu->path);
    if (image.bytes == NULL)
        return fig_fail(FIG_UNSUPPORTED, "cuda device: this library has no image of %s",
                        fig_kernel_table[op].name);
    fig_cu_library library;
    CU_TRY(gpu, LibraryLoadData, &library, image.bytes, NULL, NULL, 0, NULL, NULL, 0);
    held->library = library;
    fig_status status = find_kernel(gpu, op, held);
    if (status == FIG_OK) return FIG_OK;
    gpu->cu->LibraryUnload(held->library);
    *held = (fig_cuda_kernel){0};
    return status;
}

fig_status fig_cuda_kernels_take(fig_cuda_kernels *kernels, fig_cuda_gpu *gpu, fig_op op,
                                 uint32_t shared_bytes, fig_cu_kernel *kernel) {
    fig_cuda_kernel *held = &kernels->loaded[op];
    *kernel = NULL;
    if (held->library == NULL) FIG_TRY(load(gpu, op, held));
    if (shared_bytes > held->dynamic_bytes) {
        if ((uint64_t)shared_bytes + held->static_bytes > (uint64_t)gpu->traits.shared_bytes)
            return fig_fail(FIG_UNSUPPORTED,
                            "cuda device: %s needs %" PRIu32 " + %" PRIu32
                            " bytes of shared memory "
                            "in a block, GPU %d of compute capability %d.%d has %d",
                            fig_kernel_table[op].name, shared_bytes, held->static_bytes,
                            gpu->ordinal, gpu->traits.compute_capability / 10,
                            gpu->traits.compute_capability % 10, gpu->traits.shared_bytes);
        CU_TRY(gpu, KernelSetAttribute, FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES, (int)shared_bytes,
               held->kernel, gpu->device);
        held->dynamic_bytes = shared_bytes;
    }
    *kernel = held->kernel;
    return FIG_OK;
}

void fig_cuda_kernels_finish(fig_cuda_kernels *kernels, const fig_cuda_gpu *gpu) {
    for (int op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        if (kernels->loaded[op].library != NULL)
            gpu->cu->LibraryUnload(kernels->loaded[op].library);
    *kernels = (fig_cuda_kernels){0};
}
