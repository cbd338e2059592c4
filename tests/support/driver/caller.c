/* caller.c: see caller.h. */
#include "tests/support/driver/caller.h"

int fig_caller_enter(fig_caller *caller) {
    *caller = (fig_caller){.cu = fig_cuda_api_table()};
    const fig_cuda_api *cu = caller->cu;
    if (fig_cuda_api_open() != FIG_OK || cu->Init(0) != FIG_CU_SUCCESS) return 1;
    if (cu->DeviceGet(&caller->device, 0) != FIG_CU_SUCCESS) return 1;
    if (cu->DevicePrimaryCtxRetain(&caller->context, caller->device) != FIG_CU_SUCCESS) return 1;
    if (cu->CtxPushCurrent(caller->context) == FIG_CU_SUCCESS) return 0;
    cu->DevicePrimaryCtxRelease(caller->device);
    return 1;
}

void fig_caller_leave(fig_caller *caller) {
    fig_cu_context popped;
    caller->cu->CtxPopCurrent(&popped);
    caller->cu->DevicePrimaryCtxRelease(caller->device);
}

int fig_caller_open(fig_caller *caller) {
    if (fig_caller_enter(caller) != 0) return 1;
    return caller->cu->StreamCreate(&caller->stream, FIG_CU_STREAM_NON_BLOCKING) != FIG_CU_SUCCESS;
}

int fig_caller_close(fig_caller *caller) {
    if (caller->stream == NULL) return 1;
    const fig_cu_result result = caller->cu->StreamDestroy(caller->stream);
    fig_caller_leave(caller);
    return result != FIG_CU_SUCCESS;
}

int64_t fig_caller_free_bytes(void) {
    size_t left = 0, all = 0;
    fig_caller caller;
    if (fig_caller_enter(&caller) != 0) return -1;
    const fig_cu_result result = caller.cu->MemGetInfo(&left, &all);
    fig_caller_leave(&caller);
    return result == FIG_CU_SUCCESS ? (int64_t)left : -1;
}

fig_status fig_caller_bind_all(fig_engine *engine, const fig_graphs *graphs) {
    fig_tensor_info tensor = {.size = sizeof tensor};
    fig_status status = FIG_OK;
    for (int32_t i = 0; status == FIG_OK && fig_graphs_tensor(graphs, i, &tensor) == FIG_OK; i++) {
        if (tensor.role != FIG_ROLE_BOUND) continue;
        const int has_rows = tensor.dims[0] == FIG_DIM_BATCH || tensor.dims[0] == FIG_DIM_QUERIES;
        const int64_t rows = has_rows ? 256 : 16;
        size_t bytes = (size_t)rows * 4;
        for (uint32_t d = 1; d < (uint32_t)tensor.rank; d++)
            bytes *= (size_t)tensor.dims[d];
        status =
            fig_engine_bind(engine, FIG_OPTIONS(fig_binding, .name = tensor.name, .bytes = bytes));
    }
    return status;
}
