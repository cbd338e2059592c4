/* test_cuda_api.c: tests the driver's table with a driver that is complete, too old, incomplete or
 * absent, and compares the table's layouts with the toolkit's own header where it is installed. */
#include "engine/driver/cuda_api.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/driver/fake_cuda.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#define HAS_TOOLKIT 1
#endif
#endif

static int has_driver(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) dlclose(handle);
    return handle != NULL;
}

/* ---- The toolkit's own header -------------------------------------------------------------- */

#ifdef HAS_TOOLKIT
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), "as in cuda.h")
SAME(FIG_CU_SUCCESS, CUDA_SUCCESS);
SAME(FIG_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(FIG_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(FIG_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(FIG_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(FIG_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(FIG_CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(FIG_CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(FIG_CU_CONTAINED, CUDA_ERROR_CONTAINED);
SAME(FIG_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(FIG_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(FIG_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(FIG_CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(FIG_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(FIG_CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(FIG_CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(FIG_CU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME(FIG_CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(FIG_CU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME(FIG_CU_INVALID_PC, CUDA_ERROR_INVALID_PC);
SAME(FIG_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(FIG_CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME(FIG_CU_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED);
SAME(FIG_CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(FIG_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(FIG_CU_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE);
SAME(FIG_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(FIG_CU_DEVICE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(FIG_CU_DEVICE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(FIG_CU_DEVICE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(FIG_CU_DEVICE_SHARED_BYTES, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(FIG_CU_DEVICE_HOST_NODE, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
SAME(FIG_CU_P2P_NATIVE_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
SAME(FIG_CU_KERNEL_STATIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(FIG_CU_KERNEL_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
SAME(FIG_CU_KERNEL_LARGE_CLUSTERS, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(FIG_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(FIG_CU_EVENT_TIMED, CU_EVENT_DEFAULT);
SAME(FIG_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(FIG_CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(FIG_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(FIG_CU_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(FIG_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(FIG_CU_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(FIG_CU_EDGE_FULL, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
SAME(FIG_CU_EDGE_FULL, CU_GRAPH_KERNEL_NODE_PORT_DEFAULT);
SAME(FIG_CU_EDGE_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
SAME(FIG_CU_EDGE_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
SAME(FIG_CU_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(FIG_CU_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);

#define SAME_PLACE(our_type, our_field, their_type, their_field)                                   \
    SAME(offsetof(our_type, our_field), offsetof(their_type, their_field));                        \
    SAME(sizeof((our_type *)0)->our_field, sizeof((their_type *)0)->their_field)
#define KERNEL_PLACE(ours, theirs)                                                                 \
    SAME_PLACE(fig_cu_kernel_params, ours, CUDA_KERNEL_NODE_PARAMS_v2, theirs)
#define INSTANTIATE_PLACE(ours, theirs)                                                            \
    SAME_PLACE(fig_cu_instantiate_params, ours, CUDA_GRAPH_INSTANTIATE_PARAMS, theirs)
SAME(sizeof(fig_cu_kernel_params), sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
SAME(sizeof(fig_cu_edge), sizeof(CUgraphEdgeData));
SAME(sizeof(fig_cu_instantiate_params), sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
SAME(sizeof(fig_cu_result), sizeof(CUresult));
KERNEL_PLACE(function, func);
KERNEL_PLACE(grid[0], gridDimX);
KERNEL_PLACE(grid[2], gridDimZ);
KERNEL_PLACE(block[0], blockDimX);
KERNEL_PLACE(block[2], blockDimZ);
KERNEL_PLACE(shared_bytes, sharedMemBytes);
KERNEL_PLACE(params, kernelParams);
KERNEL_PLACE(extra, extra);
KERNEL_PLACE(kernel, kern);
KERNEL_PLACE(context, ctx);
SAME_PLACE(fig_cu_edge, from_port, CUgraphEdgeData, from_port);
SAME_PLACE(fig_cu_edge, to_port, CUgraphEdgeData, to_port);
SAME_PLACE(fig_cu_edge, type, CUgraphEdgeData, type);
INSTANTIATE_PLACE(flags, flags);
INSTANTIATE_PLACE(upload, hUploadStream);
INSTANTIATE_PLACE(error_node, hErrNode_out);
INSTANTIATE_PLACE(result, result_out);

/* The compiler checks two things here: that the version introduced a signature of its own, and, for
 * signatures without structs of ours, that our declaration is the toolkit's. */
#define VERSION_EXISTS(name, since, parameters)                                                    \
    static_assert(sizeof(PFN_cu##name##_v##since) == sizeof(void *), "a version of its own");
FIG_CUDA_API_ENTRIES(VERSION_EXISTS)

static void signatures_are_those_of_the_toolkit(void **state) {
    (void)state;
    const fig_cuda_api *api = fig_cuda_api_table();
#define SIGNATURE(name, since)                                                                     \
    do {                                                                                           \
        PFN_cu##name##_v##since entry = api->name;                                                 \
        (void)entry;                                                                               \
    } while (0)
    SIGNATURE(GetErrorName, 6000);
    SIGNATURE(GetErrorString, 6000);
    SIGNATURE(Init, 2000);
    SIGNATURE(DeviceGetCount, 2000);
    SIGNATURE(DeviceGet, 2000);
    SIGNATURE(DeviceGetAttribute, 2000);
    SIGNATURE(DeviceGetName, 2000);
    SIGNATURE(DeviceGetPCIBusId, 4010);
    SIGNATURE(DeviceTotalMem, 3020);
    SIGNATURE(DevicePrimaryCtxRetain, 7000);
    SIGNATURE(DevicePrimaryCtxRelease, 11000);
    SIGNATURE(CtxPushCurrent, 4000);
    SIGNATURE(CtxPopCurrent, 4000);
    SIGNATURE(CtxGetDevice, 2000);
    SIGNATURE(MemAlloc, 3020);
    SIGNATURE(MemFree, 3020);
    SIGNATURE(MemGetInfo, 3020);
    SIGNATURE(MemHostAlloc, 2020);
    SIGNATURE(MemFreeHost, 2000);
    SIGNATURE(MemHostGetDevicePointer, 3020);
    SIGNATURE(MemHostRegister, 6050);
    SIGNATURE(MemHostUnregister, 4000);
    SIGNATURE(DeviceCanAccessPeer, 4000);
    SIGNATURE(DeviceGetP2PAttribute, 8000);
    SIGNATURE(CtxEnablePeerAccess, 4000);
    SIGNATURE(IpcCloseMemHandle, 4010);
    SIGNATURE(MemsetD8Async, 3020);
    SIGNATURE(MemcpyAsync, 4000);
    SIGNATURE(StreamCreate, 2000);
    SIGNATURE(StreamDestroy, 4000);
    SIGNATURE(StreamGetCtx, 9020);
    SIGNATURE(StreamQuery, 2000);
    SIGNATURE(StreamSynchronize, 2000);
    SIGNATURE(EventCreate, 2000);
    SIGNATURE(EventDestroy, 4000);
    SIGNATURE(EventRecord, 2000);
    SIGNATURE(EventQuery, 2000);
    SIGNATURE(EventSynchronize, 2000);
    SIGNATURE(EventElapsedTime, 2000);
    SIGNATURE(StreamEndCapture, 10000);
    SIGNATURE(LibraryUnload, 12000);
    SIGNATURE(LibraryGetKernel, 12000);
    SIGNATURE(KernelGetParamInfo, 12040);
    SIGNATURE(KernelGetAttribute, 12000);
    SIGNATURE(KernelSetAttribute, 12000);
    SIGNATURE(GraphCreate, 10000);
    SIGNATURE(GraphDestroy, 10000);
    SIGNATURE(GraphDestroyNode, 10000);
    SIGNATURE(GraphAddEmptyNode, 10000);
    SIGNATURE(GraphNodeGetType, 10000);
    SIGNATURE(GraphExecDestroy, 10000);
    SIGNATURE(GraphLaunch, 10000);
}
#else
static void signatures_are_those_of_the_toolkit(void **state) {
    (void)state;
    puts("no <cuda.h> to compare with");
    skip();
}
#endif

/* ---- Finding the driver -------------------------------------------------------------------- */

static void the_message_on_a_machine_without_a_driver_says_so(void **state) {
    (void)state;
    if (has_driver()) {
        assert_int_equal(fig_cuda_api_open(), FIG_OK);
        assert_in_range(fig_cuda_api_table()->version, FIG_CU_LEAST_VERSION, 1000000);
        return;
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fig_cuda_api_open(), FIG_NO_DEVICE);
        assert_non_null(strstr(fig_message(), "cuda device: no driver: libcuda.so.1: "));
        assert_int_equal(fig_cuda_api_table()->version, 0);
        assert_ptr_equal(fig_cuda_api_table()->image, fig_images_of);
    }
}

static void a_library_that_is_not_a_driver_is_refused(void **state) {
    (void)state;
    fig_cuda_api api = {.version = 1};
    assert_int_equal(fig_cuda_api_load(&api, "libm.so.6"), FIG_NO_DEVICE);
    assert_string_equal(fig_message(), "cuda device: libm.so.6 is no CUDA driver");
    assert_int_equal(api.version, 0);
    assert_int_equal(fig_cuda_api_load(&api, "libfigraph-no-such-library.so"), FIG_NO_DEVICE);
    assert_non_null(strstr(fig_message(), "libfigraph-no-such-library.so"));
}

static void a_driver_that_is_too_old_names_both_versions(void **state) {
    (void)state;
    fig_cuda_api api = {.image = fig_images_of};
    assert_int_equal(fig_cuda_api_resolve(&api, fig_fake_cuda_lookup, 12030), FIG_NO_DEVICE);
    assert_string_equal(fig_message(), "cuda device: the driver is too old: it is of CUDA 12.3, "
                                       "this library needs 12.4");
    assert_int_equal(api.version, 0);
}

static void every_entry_is_asked_for_in_its_own_version(void **state) {
    (void)state;
    fig_cuda_api api = {.image = fig_images_of};
    assert_int_equal(fig_cuda_api_resolve(&api, fig_fake_cuda_lookup, 12040), FIG_OK);
    assert_int_equal(api.version, 12040);
    assert_ptr_equal(api.image, fig_images_of);
#define IS_THERE(name, since, parameters)                                                          \
    if (api.name == NULL) fail_msg("no cu%s", #name);                                              \
    if ((since) > FIG_CU_LEAST_VERSION) fail_msg("cu%s is of %d", #name, (since));
    FIG_CUDA_API_ENTRIES(IS_THERE)
#undef IS_THERE
}

static fig_cu_result lookup_without_launch(const char *name, void **entry, int version,
                                           uint64_t flags, unsigned int *status) {
    fig_cu_result result = fig_fake_cuda_lookup(name, entry, version, flags, status);
    if (strcmp(name, "cuGraphLaunch") != 0) return result;
    *entry = NULL;
    *status = 1;
    return FIG_CU_SUCCESS;
}

static void a_driver_that_lacks_an_entry_names_it(void **state) {
    (void)state;
    fig_cuda_api api = {.image = fig_images_of};
    assert_int_equal(fig_cuda_api_resolve(&api, lookup_without_launch, 13020), FIG_NO_DEVICE);
    assert_string_equal(fig_message(), "cuda device: the driver, of CUDA 13.2, has no "
                                       "cuGraphLaunch of CUDA 10.0 (result 0, status 1)");
    assert_int_equal(api.version, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_those_of_the_toolkit),
        cmocka_unit_test(the_message_on_a_machine_without_a_driver_says_so),
        cmocka_unit_test(a_library_that_is_not_a_driver_is_refused),
        cmocka_unit_test(a_driver_that_is_too_old_names_both_versions),
        cmocka_unit_test(every_entry_is_asked_for_in_its_own_version),
        cmocka_unit_test(a_driver_that_lacks_an_entry_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
