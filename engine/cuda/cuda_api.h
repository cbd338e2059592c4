/* cuda_api.h: the part of the CUDA driver that this library calls, as one table of functions.
 *
 * Declares what it needs of <cuda.h> itself, so that the library builds where there is no toolkit;
 * handles have the driver's own tags, so a CUstream is a fig_cu_stream. Opens libcuda once in a
 * process and leaves it open. Invariant: each entry is asked for in the CUDA version that brought
 * its signature, and so has that signature on every later driver; a table has all or is closed. */
#ifndef FIG_ENGINE_CUDA_API_H
#define FIG_ENGINE_CUDA_API_H

#include "kernels/images.h"

/* Of the driver, at least: CUDA 12.4, the latest version of any entry below. */
enum { FIG_CU_LEAST_VERSION = 12040 };

typedef unsigned int fig_cu_result; /* an enum there */
typedef int fig_cu_device;
typedef unsigned long long fig_cu_address;
typedef struct CUctx_st *fig_cu_context;
typedef struct CUstream_st *fig_cu_stream;
typedef struct CUevent_st *fig_cu_event;
typedef struct CUlib_st *fig_cu_library;
typedef struct CUkern_st *fig_cu_kernel;
typedef struct CUfunc_st *fig_cu_function;
typedef struct CUgraph_st *fig_cu_graph;
typedef struct CUgraphNode_st *fig_cu_node;
typedef struct CUgraphExec_st *fig_cu_exec;
typedef struct CUuserObject_st *fig_cu_object;

/* Results that are told apart. */
enum {
    FIG_CU_SUCCESS = 0,
    FIG_CU_INVALID_VALUE = 1,
    FIG_CU_OUT_OF_MEMORY = 2,
    FIG_CU_DEINITIALIZED = 4,
    FIG_CU_NO_DEVICE = 100,
    FIG_CU_INVALID_CONTEXT = 201,
    FIG_CU_ECC_UNCORRECTABLE = 214,
    FIG_CU_NVLINK_UNCORRECTABLE = 220,
    FIG_CU_CONTAINED = 226,
    FIG_CU_INVALID_HANDLE = 400,
    FIG_CU_NOT_READY = 600,
    FIG_CU_ILLEGAL_ADDRESS = 700,
    FIG_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    FIG_CU_LAUNCH_TIMEOUT = 702,
    FIG_CU_CONTEXT_IS_DESTROYED = 709,
    FIG_CU_ASSERT = 710,
    FIG_CU_HARDWARE_STACK_ERROR = 714,
    FIG_CU_ILLEGAL_INSTRUCTION = 715,
    FIG_CU_MISALIGNED_ADDRESS = 716,
    FIG_CU_INVALID_ADDRESS_SPACE = 717,
    FIG_CU_INVALID_PC = 718,
    FIG_CU_LAUNCH_FAILED = 719,
    FIG_CU_TENSOR_MEMORY_LEAK = 721,
    FIG_CU_MPS_CLIENT_TERMINATED = 810,
    FIG_CU_CAPTURE_UNSUPPORTED = 900,
    FIG_CU_CAPTURE_INVALIDATED = 901,
    FIG_CU_EXTERNAL_DEVICE = 911,
    FIG_CU_UNKNOWN = 999
};

/* Values that are passed. */
enum {
    FIG_CU_DEVICE_SM_COUNT = 16,
    FIG_CU_DEVICE_CAPABILITY_MAJOR = 75,
    FIG_CU_DEVICE_CAPABILITY_MINOR = 76,
    FIG_CU_DEVICE_SHARED_BYTES = 97, /* of one block, opted in to */
    FIG_CU_DEVICE_HOST_NODE = 134,   /* the NUMA node beside it; -1: unknown */
    FIG_CU_KERNEL_STATIC_SHARED_BYTES = 1,
    FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES = 8, /* most that a launch may ask for */
    FIG_CU_STREAM_NON_BLOCKING = 1,
    FIG_CU_STREAM_OF_CONTEXT = 1, /* a handle, as is NULL: its legacy default stream */
    FIG_CU_STREAM_OF_THREAD = 2,  /* a handle: the default stream of the calling thread */
    FIG_CU_EVENT_TIMED = 0,
    FIG_CU_EVENT_UNTIMED = 2,
    FIG_CU_HOST_PORTABLE = 1, /* of memory that is allocated, and of memory that is registered */
    FIG_CU_HOST_MAPPED = 2,
    FIG_CU_IPC_PEER_ACCESS = 1,
    FIG_CU_P2P_NATIVE_ATOMICS = 3, /* NVLink has them, and PCIe has not */
    FIG_CU_CAPTURE_RELAXED = 2,
    FIG_CU_CAPTURE_STATUS_NONE = 0,
    FIG_CU_CAPTURE_STATUS_ACTIVE = 1,
    FIG_CU_CAPTURE_SET_DEPENDENCIES = 1,
    FIG_CU_OBJECT_NO_DESTRUCTOR_SYNC = 1, /* must be said */
    FIG_CU_OBJECT_MOVE = 1,
    FIG_CU_TENSOR_U8 = 0,
    FIG_CU_TENSOR_I32 = 3,
    FIG_CU_TENSOR_F16 = 6,
    FIG_CU_TENSOR_F32 = 7,
    FIG_CU_TENSOR_BF16 = 9,
    FIG_CU_TENSOR_NOT_INTERLEAVED = 0,
    FIG_CU_TENSOR_PROMOTE_128 = 2, /* bytes that go to L2 at once */
    FIG_CU_TENSOR_FILL_ZERO = 0,   /* outside of the tensor */
    FIG_CU_EDGE_FULL = 0,          /* as type and as port: the node has ended */
    FIG_CU_EDGE_PROGRAMMATIC = 1,
    FIG_CU_NODE_KERNEL = 0,
    FIG_CU_LAUNCH_PROGRAMMATIC = 6, /* an attribute: the launch before it on the stream may let it
                                       begin early */
    FIG_CU_LEGACY_STREAM =
        1 /* no per-thread variants of entries, whatever the caller is built as */
};

typedef struct fig_cu_edge {
    uint8_t from_port, to_port, type, reserved[5];
} fig_cu_edge;
static_assert(sizeof(fig_cu_edge) == 8, "ABI");

typedef struct fig_cu_kernel_params {
    fig_cu_function function; /* NULL: `kernel` in `context` */
    uint32_t grid[3], block[3], shared_bytes;
    void **params;
    void **extra;
    fig_cu_kernel kernel;
    fig_cu_context context;
} fig_cu_kernel_params;
static_assert(sizeof(fig_cu_kernel_params) == 72, "ABI");
static_assert(offsetof(fig_cu_kernel_params, params) == 40, "ABI");
static_assert(offsetof(fig_cu_kernel_params, context) == 64, "ABI");

/* Of a launch on a stream. */
typedef struct fig_cu_launch_attribute {
    uint32_t id, padding;
    union {
        int32_t allowed; /* of FIG_CU_LAUNCH_PROGRAMMATIC */
        uint64_t room[8];
    } value;
} fig_cu_launch_attribute;
static_assert(sizeof(fig_cu_launch_attribute) == 72, "ABI");

typedef struct fig_cu_launch {
    uint32_t grid[3], block[3], shared_bytes;
    fig_cu_stream stream;
    fig_cu_launch_attribute *attributes; /* [attribute_count] */
    uint32_t attribute_count;
} fig_cu_launch;
static_assert(sizeof(fig_cu_launch) == 56, "ABI");
static_assert(offsetof(fig_cu_launch, stream) == 32, "ABI");

/* Memory of one process as another may open it; passed by value. */
typedef struct fig_cu_ipc_handle {
    uint8_t bytes[64];
} fig_cu_ipc_handle;
static_assert(sizeof(fig_cu_ipc_handle) == 64, "ABI");

typedef struct fig_cu_instantiate_params {
    uint64_t flags;
    fig_cu_stream upload;
    fig_cu_node error_node;
    uint32_t result;
} fig_cu_instantiate_params;
static_assert(sizeof(fig_cu_instantiate_params) == 32, "ABI");

/* X(name without its "cu", version that brought the signature, parameters) */
#define FIG_CUDA_API_ENTRIES(X)                                                                    \
    X(GetErrorName, 6000, (fig_cu_result, const char **))                                          \
    X(GetErrorString, 6000, (fig_cu_result, const char **))                                        \
    X(Init, 2000, (unsigned int))                                                                  \
    X(DeviceGetCount, 2000, (int *))                                                               \
    X(DeviceGet, 2000, (fig_cu_device *, int))                                                     \
    X(DeviceGetAttribute, 2000, (int *, unsigned int, fig_cu_device))                              \
    X(DeviceGetName, 2000, (char *, int, fig_cu_device))                                           \
    X(DeviceGetPCIBusId, 4010, (char *, int, fig_cu_device))                                       \
    X(DeviceTotalMem, 3020, (size_t *, fig_cu_device))                                             \
    X(DevicePrimaryCtxRetain, 7000, (fig_cu_context *, fig_cu_device))                             \
    X(DevicePrimaryCtxRelease, 11000, (fig_cu_device))                                             \
    X(CtxPushCurrent, 4000, (fig_cu_context))                                                      \
    X(CtxPopCurrent, 4000, (fig_cu_context *))                                                     \
    X(CtxGetDevice, 2000, (fig_cu_device *))                                                       \
    X(MemAlloc, 3020, (fig_cu_address *, size_t))                                                  \
    X(MemFree, 3020, (fig_cu_address))                                                             \
    X(MemGetInfo, 3020, (size_t *, size_t *))                                                      \
    X(MemHostAlloc, 2020, (void **, size_t, unsigned int))                                         \
    X(MemFreeHost, 2000, (void *))                                                                 \
    X(MemHostGetDevicePointer, 3020, (fig_cu_address *, void *, unsigned int))                     \
    X(MemHostRegister, 6050, (void *, size_t, unsigned int))                                       \
    X(MemHostUnregister, 4000, (void *))                                                           \
    X(DeviceCanAccessPeer, 4000, (int *, fig_cu_device, fig_cu_device))                            \
    X(DeviceGetP2PAttribute, 8000, (int *, unsigned int, fig_cu_device, fig_cu_device))            \
    X(CtxEnablePeerAccess, 4000, (fig_cu_context, unsigned int))                                   \
    X(IpcGetMemHandle, 4010, (fig_cu_ipc_handle *, fig_cu_address))                                \
    X(IpcOpenMemHandle, 11000, (fig_cu_address *, fig_cu_ipc_handle, unsigned int))                \
    X(IpcCloseMemHandle, 4010, (fig_cu_address))                                                   \
    X(MemsetD8Async, 3020, (fig_cu_address, unsigned char, size_t, fig_cu_stream))                 \
    X(MemcpyAsync, 4000, (fig_cu_address, fig_cu_address, size_t, fig_cu_stream))                  \
    X(TensorMapEncodeTiled, 12000,                                                                 \
      (void *, unsigned int, uint32_t, void *, const uint64_t *, const uint64_t *,                 \
       const uint32_t *, const uint32_t *, unsigned int, unsigned int, unsigned int,               \
       unsigned int))                                                                              \
    X(StreamCreate, 2000, (fig_cu_stream *, unsigned int))                                         \
    X(StreamDestroy, 4000, (fig_cu_stream))                                                        \
    X(StreamGetCtx, 9020, (fig_cu_stream, fig_cu_context *))                                       \
    X(StreamQuery, 2000, (fig_cu_stream))                                                          \
    X(StreamSynchronize, 2000, (fig_cu_stream))                                                    \
    X(StreamWaitEvent, 3020, (fig_cu_stream, fig_cu_event, unsigned int))                          \
    X(EventCreate, 2000, (fig_cu_event *, unsigned int))                                           \
    X(EventDestroy, 4000, (fig_cu_event))                                                          \
    X(EventRecord, 2000, (fig_cu_event, fig_cu_stream))                                            \
    X(EventQuery, 2000, (fig_cu_event))                                                            \
    X(EventSynchronize, 2000, (fig_cu_event))                                                      \
    X(EventElapsedTime, 2000, (float *, fig_cu_event, fig_cu_event))                               \
    X(StreamBeginCaptureToGraph, 12030,                                                            \
      (fig_cu_stream, fig_cu_graph, const fig_cu_node *, const fig_cu_edge *, size_t,              \
       unsigned int))                                                                              \
    X(StreamGetCaptureInfo, 12030,                                                                 \
      (fig_cu_stream, unsigned int *, uint64_t *, fig_cu_graph *, const fig_cu_node **,            \
       const fig_cu_edge **, size_t *))                                                            \
    X(StreamBeginCapture, 10010, (fig_cu_stream, unsigned int))                                    \
    X(StreamEndCapture, 10000, (fig_cu_stream, fig_cu_graph *))                                    \
    X(StreamUpdateCaptureDependencies, 12030,                                                      \
      (fig_cu_stream, fig_cu_node *, const fig_cu_edge *, size_t, unsigned int))                   \
    X(ThreadExchangeStreamCaptureMode, 10010, (unsigned int *))                                    \
    X(UserObjectCreate, 11030,                                                                     \
      (fig_cu_object *, void *, void (*)(void *), unsigned int, unsigned int))                     \
    X(UserObjectRelease, 11030, (fig_cu_object, unsigned int))                                     \
    X(GraphRetainUserObject, 11030, (fig_cu_graph, fig_cu_object, unsigned int, unsigned int))     \
    X(LibraryLoadData, 12000,                                                                      \
      (fig_cu_library *, const void *, unsigned int *, void **, unsigned int, unsigned int *,      \
       void **, unsigned int))                                                                     \
    X(LibraryUnload, 12000, (fig_cu_library))                                                      \
    X(LibraryGetKernel, 12000, (fig_cu_kernel *, fig_cu_library, const char *))                    \
    X(KernelGetParamInfo, 12040, (fig_cu_kernel, size_t, size_t *, size_t *))                      \
    X(KernelGetAttribute, 12000, (int *, unsigned int, fig_cu_kernel, fig_cu_device))              \
    X(KernelSetAttribute, 12000, (unsigned int, int, fig_cu_kernel, fig_cu_device))                \
    X(KernelGetFunction, 12000, (fig_cu_function *, fig_cu_kernel))                                \
    X(FuncLoad, 12040, (fig_cu_function))                                                          \
    X(LaunchKernelEx, 11060, (const fig_cu_launch *, fig_cu_function, void **, void **))           \
    X(GraphCreate, 10000, (fig_cu_graph *, unsigned int))                                          \
    X(GraphDestroy, 10000, (fig_cu_graph))                                                         \
    X(GraphDestroyNode, 10000, (fig_cu_node))                                                      \
    X(GraphAddKernelNode, 12000,                                                                   \
      (fig_cu_node *, fig_cu_graph, const fig_cu_node *, size_t, const fig_cu_kernel_params *))    \
    X(GraphAddEmptyNode, 10000, (fig_cu_node *, fig_cu_graph, const fig_cu_node *, size_t))        \
    X(GraphAddChildGraphNode, 10000,                                                               \
      (fig_cu_node *, fig_cu_graph, const fig_cu_node *, size_t, fig_cu_graph))                    \
    X(GraphAddDependencies, 12030,                                                                 \
      (fig_cu_graph, const fig_cu_node *, const fig_cu_node *, const fig_cu_edge *, size_t))       \
    X(GraphNodeGetType, 10000, (fig_cu_node, unsigned int *))                                     \
    X(GraphGetEdges, 12030, (fig_cu_graph, fig_cu_node *, fig_cu_node *, fig_cu_edge *, size_t *)) \
    X(GraphInstantiateWithParams, 12000,                                                           \
      (fig_cu_exec *, fig_cu_graph, fig_cu_instantiate_params *))                                  \
    X(GraphExecDestroy, 10000, (fig_cu_exec))                                                      \
    X(GraphExecKernelNodeSetParams, 12000,                                                         \
      (fig_cu_exec, fig_cu_node, const fig_cu_kernel_params *))                                    \
    X(GraphUpload, 11010, (fig_cu_exec, fig_cu_stream))                                            \
    X(GraphLaunch, 10000, (fig_cu_exec, fig_cu_stream))

typedef struct fig_cuda_api {
    int version;    /* the driver's, 12080 for CUDA 12.8; 0: closed */
    int is_missing; /* 1: closed because this machine has no such library */
    /* fig_images_of; beside the driver because a test that plays the one plays the other. */
    fig_image (*image)(fig_op op, uint32_t family, fig_image_path path);
#define FIG_CUDA_API_MEMBER(name, since, parameters) fig_cu_result(*name) parameters;
    FIG_CUDA_API_ENTRIES(FIG_CUDA_API_MEMBER)
#undef FIG_CUDA_API_MEMBER
} fig_cuda_api;

/* The process's table, which every call to the driver goes through. */
fig_cuda_api *fig_cuda_api_table(void);
/* Fills it on the first call; any thread may call. FIG_NO_DEVICE says each time what is missing. */
fig_status fig_cuda_api_open(void);

/* What open does, with any library and any table: a test's, too. On failure the table is closed. */
fig_status fig_cuda_api_load(fig_cuda_api *api, const char *library);
typedef fig_cu_result (*fig_cuda_api_lookup)(const char *name, void **entry, int version,
                                             uint64_t flags, unsigned int *status);
fig_status fig_cuda_api_resolve(fig_cuda_api *api, fig_cuda_api_lookup lookup, int version);

#endif
