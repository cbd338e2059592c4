/* cuda_memory.c: allocates and frees the blocks of cuda_memory.h.
 *
 * Invariant: every block that is handed out is zeroed. */
#include "engine/cuda/cuda_memory.h"

#include <string.h>

#include "planner/status.h"

static fig_cu_address address_of(const void *pointer) {
    return (fig_cu_address)(uintptr_t)pointer;
}

static fig_status fail_device(fig_cuda_gpu *gpu, fig_cu_result result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result != FIG_CU_OUT_OF_MEMORY) return fig_cuda_gpu_refuse(gpu, result, "cuMemAlloc");
    gpu->cu->MemGetInfo(&free_bytes, &total_bytes);
    return fig_fail(FIG_NOMEM, "cuda device: cuMemAlloc: %zu bytes, GPU %d has %zu free of %zu",
                    bytes, gpu->ordinal, free_bytes, total_bytes);
}

static fig_status fail_pinned(fig_cuda_gpu *gpu, fig_cu_result result, const char *call,
                              size_t bytes) {
    if (result != FIG_CU_OUT_OF_MEMORY) return fig_cuda_gpu_refuse(gpu, result, call);
    return fig_fail(FIG_NOMEM, "cuda device: %s: %zu bytes of pinned memory", call, bytes);
}

/* If the placement names no NUMA node, the driver allocates the memory. Otherwise this function
 * allocates it on that node, and the driver then pins it. */
static fig_status pin(fig_cuda_gpu *gpu, const fig_placement *placement, void **host,
                      size_t bytes) {
    const unsigned int flags = FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED;
    if (placement->memory_node < 0) {
        fig_cu_result result = gpu->cu->MemHostAlloc(host, bytes, flags);
        if (result != FIG_CU_SUCCESS) return fail_pinned(gpu, result, "cuMemHostAlloc", bytes);
        memset(*host, 0, bytes);
        return FIG_OK;
    }
    FIG_TRY(fig_placement_allocate(placement, bytes, host));
    fig_cu_result result = gpu->cu->MemHostRegister(*host, bytes, flags);
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    fig_placement_release(placement, *host, bytes);
    return fail_pinned(gpu, result, "cuMemHostRegister", bytes);
}

static void unpin(const fig_cuda_gpu *gpu, const fig_placement *placement, void *host,
                  size_t bytes) {
    if (placement->memory_node < 0) {
        gpu->cu->MemFreeHost(host);
    } else {
        gpu->cu->MemHostUnregister(host);
        fig_placement_release(placement, host, bytes);
    }
}

static fig_status allocate_pinned(fig_cuda_gpu *gpu, const fig_placement *placement,
                                  fig_block *block, size_t bytes) {
    fig_cu_address address = 0;
    void *host = NULL;
    FIG_TRY(pin(gpu, placement, &host, bytes));
    fig_cu_result result = gpu->cu->MemHostGetDevicePointer(&address, host, 0);
    if (result != FIG_CU_SUCCESS) {
        unpin(gpu, placement, host, bytes);
        return fig_cuda_gpu_refuse(gpu, result, "cuMemHostGetDevicePointer");
    }
    block->device = (void *)(uintptr_t)address;
    block->host = host;
    return FIG_OK;
}

/* Another thread may be capturing a call on `aside`. */
fig_status fig_cuda_memory_clear(fig_cuda_gpu *gpu, void *device, size_t bytes) {
    CU_TRY(gpu, MemsetD8Async, address_of(device), 0, bytes, gpu->uploads);
    CU_TRY(gpu, StreamSynchronize, gpu->uploads);
    return FIG_OK;
}

static fig_status allocate_device(fig_cuda_gpu *gpu, fig_block *block, size_t bytes) {
    fig_cu_address address = 0;
    fig_cu_result result = gpu->cu->MemAlloc(&address, bytes);
    if (result != FIG_CU_SUCCESS) return fail_device(gpu, result, bytes);
    void *device = (void *)(uintptr_t)address;
    const fig_status status = fig_cuda_memory_clear(gpu, device, bytes);
    if (status != FIG_OK) gpu->cu->MemFree(address);
    if (status == FIG_OK) block->device = device;
    return status;
}

fig_status fig_cuda_memory_allocate(fig_cuda_gpu *gpu, const fig_placement *placement,
                                    fig_block *block, size_t bytes) {
    return block->kind == FIG_MEMORY_PINNED ? allocate_pinned(gpu, placement, block, bytes)
                                            : allocate_device(gpu, block, bytes);
}

void fig_cuda_memory_release(const fig_cuda_gpu *gpu, const fig_placement *placement,
                             const fig_block *block) {
    if (block->kind == FIG_MEMORY_PINNED) {
        unpin(gpu, placement, block->host, block->bytes);
    } else {
        gpu->cu->MemFree(address_of(block->device));
    }
}
