/* cuda_api.h: the functions of the CUDA driver that this library calls, in one table.
 *
 * Declares the parts of <cuda.h> that the library needs, so that it builds without a CUDA toolkit.
 * Handles use the driver's own struct tags, so a CUstream is a fig_cu_stream. Each process opens
 * libcuda once and leaves it open. Invariant: each entry is requested at the CUDA version that
 * introduced its signature, so the entry has that signature on every later driver too. A table
 * either has all entries or is closed. */
#ifndef FIG_ENGINE_CUDA_API_H
#define FIG_ENGINE_CUDA_API_H

#include "kernels/table/images.h"

/* The oldest supported driver, CUDA 12.4: the newest version in the list of entries below. */
enum { FIG_CU_LEAST_VERSION = 12040 };

typedef unsigned int fig_cu_result; /* an enum in <cuda.h> */
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
typedef struct CUlinkState_st *fig_cu_link;

/* The driver's results that this library distinguishes. */
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

/* The values that this library passes to the driver. */
enum {
    FIG_CU_DEVICE_SM_COUNT = 16,
    FIG_CU_DEVICE_CAPABILITY_MAJOR = 75,
    FIG_CU_DEVICE_CAPABILITY_MINOR = 76,
    FIG_CU_DEVICE_SHARED_BYTES = 97, /* the limit for one block, with opt-in */
    FIG_CU_DEVICE_HOST_NODE = 134,   /* the NUMA node beside the GPU; -1: unknown */
    FIG_CU_KERNEL_STATIC_SHARED_BYTES = 1,
    FIG_CU_KERNEL_DYNAMIC_SHARED_BYTES = 8, /* the largest amount that a launch may use */
    FIG_CU_KERNEL_CLUSTER_WIDTH = 11,       /* blocks of a cluster; 0: the kernel has none */
    FIG_CU_KERNEL_LARGE_CLUSTERS = 14,      /* 1: allow clusters that not every machine can hold */
    FIG_CU_STREAM_NON_BLOCKING = 1,
    FIG_CU_STREAM_OF_CONTEXT = 1, /* like NULL, a handle of the context's legacy default stream */
    FIG_CU_STREAM_OF_THREAD = 2,  /* a handle of the calling thread's default stream */
    FIG_CU_EVENT_TIMED = 0,
    FIG_CU_EVENT_UNTIMED = 2,
    FIG_CU_HOST_PORTABLE = 1, /* for both allocated and registered memory */
    FIG_CU_HOST_MAPPED = 2,
    FIG_CU_IPC_PEER_ACCESS = 1,
    FIG_CU_P2P_NATIVE_ATOMICS = 3, /* NVLink supports them; PCIe does not */
    FIG_CU_CAPTURE_RELAXED = 2,
    FIG_CU_CAPTURE_STATUS_NONE = 0,
    FIG_CU_CAPTURE_STATUS_ACTIVE = 1,
    FIG_CU_CAPTURE_SET_DEPENDENCIES = 1,
    FIG_CU_OBJECT_NO_DESTRUCTOR_SYNC = 1, /* required by the driver */
    FIG_CU_OBJECT_MOVE = 1,
    FIG_CU_TENSOR_U8 = 0,
    FIG_CU_TENSOR_I32 = 3,
    FIG_CU_TENSOR_F16 = 6,
    FIG_CU_TENSOR_F32 = 7,
    FIG_CU_TENSOR_BF16 = 9,
    FIG_CU_TENSOR_NOT_INTERLEAVED = 0,
    FIG_CU_TENSOR_PROMOTE_128 = 2, /* the bytes fetched into L2 at once */
    FIG_CU_TENSOR_FILL_ZERO = 0,   /* the value read outside the tensor */
    FIG_CU_EDGE_FULL = 0,          /* type and port of an edge that begins at the node's end */
    FIG_CU_EDGE_PROGRAMMATIC = 1,
    FIG_CU_NODE_KERNEL = 0,
    FIG_CU_LINK_PTX = 1, /* a text that the driver compiles */
    FIG_CU_LINK_LOG = 5, /* options: where the compiler's errors go, and the room for them */
    FIG_CU_LINK_LOG_BYTES = 6,
    /* An attribute that lets a launch begin before the previous launch on the stream has ended. */
    FIG_CU_LAUNCH_PROGRAMMATIC = 6,
    FIG_CU_LEGACY_STREAM =
        /* Selects the variants of entries for the legacy default stream, however the caller was
         * compiled. */
    1
};

typedef struct fig_cu_edge {
    uint8_t from_port, to_port, type, reserved[5];
} fig_cu_edge;
static_assert(sizeof(fig_cu_edge) == 8, "ABI");

typedef struct fig_cu_kernel_params {
    fig_cu_function function; /* NULL: use `kernel` in `context` */
    uint32_t grid[3], block[3], shared_bytes;
    void **params;
    void **extra;
    fig_cu_kernel kernel;
    fig_cu_context context;
} fig_cu_kernel_params;
static_assert(sizeof(fig_cu_kernel_params) == 72, "ABI");
static_assert(offsetof(fig_cu_kernel_params, params) == 40, "ABI");
static_assert(offsetof(fig_cu_kernel_params, context) == 64, "ABI");

/* An attribute of a launch on a stream. */
typedef struct fig_cu_launch_attribute {
    uint32_t id, padding;
    union {
        int32_t allowed; /* for FIG_CU_LAUNCH_PROGRAMMATIC */
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

/* A handle with which another process can open memory of this process. The driver takes it by
 * value. */
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

/* X(name without its "cu", version that introduced the signature, parameters) */
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
    X(LinkCreate, 6050, (unsigned int, unsigned int *, void **, fig_cu_link *))                    \
    X(LinkAddData, 6050,                                                                           \
      (fig_cu_link, unsigned int, void *, size_t, const char *, unsigned int, unsigned int *,      \
       void **))                                                                                   \
    X(LinkComplete, 5050, (fig_cu_link, void **, size_t *))                                        \
    X(LinkDestroy, 5050, (fig_cu_link))                                                            \
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
    X(GraphNodeGetType, 10000, (fig_cu_node, unsigned int *))                                      \
    X(GraphGetEdges, 12030, (fig_cu_graph, fig_cu_node *, fig_cu_node *, fig_cu_edge *, size_t *)) \
    X(GraphInstantiateWithParams, 12000,                                                           \
      (fig_cu_exec *, fig_cu_graph, fig_cu_instantiate_params *))                                  \
    X(GraphExecDestroy, 10000, (fig_cu_exec))                                                      \
    X(GraphExecKernelNodeSetParams, 12000,                                                         \
      (fig_cu_exec, fig_cu_node, const fig_cu_kernel_params *))                                    \
    X(GraphUpload, 11010, (fig_cu_exec, fig_cu_stream))                                            \
    X(GraphLaunch, 10000, (fig_cu_exec, fig_cu_stream))

typedef struct fig_cuda_api {
    int version;    /* the driver's version, 12080 for CUDA 12.8; 0: closed */
    int is_missing; /* 1: closed because this machine has no libcuda */
    /* fig_images_of(), except in tests: a test that replaces the driver through this table also
     * replaces the images. */
    fig_image (*image)(fig_op op, uint32_t family, fig_image_path path);
    /* The same for fig_images_template(). */
    fig_image (*score_template)(fig_op op, uint32_t family, fig_image_path path);
#define FIG_CUDA_API_MEMBER(name, since, parameters) fig_cu_result(*name) parameters;
    FIG_CUDA_API_ENTRIES(FIG_CUDA_API_MEMBER)
#undef FIG_CUDA_API_MEMBER
} fig_cuda_api;

/* Returns the process's table. Every call to the driver goes through this table. */
fig_cuda_api *fig_cuda_api_table(void);
/* Fills the table on the first call; any thread may call this. If it fails with FIG_NO_DEVICE, the
 * message says what is missing. */
fig_status fig_cuda_api_open(void);

/* fig_cuda_api_load() and fig_cuda_api_resolve() do the work of fig_cuda_api_open() for another
 * library or table, for tests. If they fail, they leave the table closed. */
fig_status fig_cuda_api_load(fig_cuda_api *api, const char *library);
typedef fig_cu_result (*fig_cuda_api_lookup)(const char *name, void **entry, int version,
                                             uint64_t flags, unsigned int *status);
fig_status fig_cuda_api_resolve(fig_cuda_api *api, fig_cuda_api_lookup lookup, int version);

#endif
