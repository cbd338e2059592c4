/* fake_cuda.c: device, contexts, memory and streams of the fake driver; fake_graph.c has graphs and
 * kernels. See fake_cuda.h. */
#include "tests/support/driver/fake_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH_LIMIT = 16 };

fig_fake_cuda fig_fake_cuda_state;
struct CUctx_st fig_fake_cuda_primary;
static struct CUctx_st foreign;
static fig_cuda_api before; /* the table before it was replaced */
static fig_cu_context stack[DEPTH_LIMIT];
static int depth;
static struct CUstream_st default_stream;

/* ---- Every call ---------------------------------------------------------------------------- */

/* Returns 1 if the call never returns an error of earlier work on the GPU, since it does not look
 * at that work. */
static int keeps_still(const char *name) {
    return strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0;
}

fig_cu_result fig_fake_cuda_begin(const char *name) {
    fake.calls++;
    fake.last = name;
    if (fake.calls == fake.fail_at) {
        fake.failed = name;
        return fake.fail_with;
    }
    if (fake.fail_name != NULL && strcmp(name, fake.fail_name) == 0) return fake.fail_with;
    if (fake.launches > 0 && !keeps_still(name)) return fake.work_ends;
    return FIG_CU_SUCCESS;
}

int fig_fake_cuda_is_guess(const char *call) {
    return strcmp(call, FIG_FAKE_NODE_QUESTION) == 0 || strcmp(call, "cuDeviceGetPCIBusId") == 0;
}

fig_cu_result fig_fake_cuda_unsafe(void) {
    fake.unsafe++;
    return FIG_CU_INVALID_HANDLE;
}

int fig_fake_cuda_breaks(void) {
    if (fake.captures == 0 || fake.mode == FIG_CU_CAPTURE_RELAXED) return 0;
    fake.unsafe++;
    return 1;
}

/* Restores the mode even if the test makes this call fail. */
static fig_cu_result thread_exchange_mode(unsigned int *mode) {
    const unsigned int given = *mode, had = fake.mode;
    if (given != FIG_CU_CAPTURE_RELAXED) fake.mode = given;
    BEGIN("cuThreadExchangeStreamCaptureMode");
    fake.mode = given;
    *mode = had;
    return FIG_CU_SUCCESS;
}

static fig_cu_result get_error_name(fig_cu_result result, const char **text) {
    *text = result == FIG_CU_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == FIG_CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == FIG_CU_NO_DEVICE       ? "CUDA_ERROR_NO_DEVICE"
                                               : NULL;
    return *text != NULL ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

static fig_cu_result get_error_string(fig_cu_result result, const char **text) {
    *text = result == FIG_CU_OUT_OF_MEMORY     ? "out of memory"
            : result == FIG_CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : result == FIG_CU_NO_DEVICE       ? "no CUDA-capable device is detected"
                                               : NULL;
    return *text != NULL ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

/* ---- Device and context -------------------------------------------------------------------- */

static fig_cu_result init(unsigned int flags) {
    BEGIN("cuInit");
    return flags == 0 ? fake.init : FIG_CU_INVALID_VALUE;
}

static fig_cu_result device_get_count(int *count) {
    BEGIN("cuDeviceGetCount");
    *count = fake.device_count;
    return FIG_CU_SUCCESS;
}

static fig_cu_result device_get(fig_cu_device *device, int ordinal) {
    BEGIN("cuDeviceGet");
    /* A handle differs from the ordinal, so that a mix-up of the two is noticed. */
    *device = ordinal + FIG_FAKE_DEVICE;
    return FIG_CU_SUCCESS;
}

static fig_cu_result device_get_attribute(int *value, unsigned int attribute,
                                          fig_cu_device device) {
    BEGIN(attribute == FIG_CU_DEVICE_HOST_NODE ? FIG_FAKE_NODE_QUESTION : "cuDeviceGetAttribute");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    switch (attribute) {
    case FIG_CU_DEVICE_CAPABILITY_MAJOR: *value = fake.capability / 10; return FIG_CU_SUCCESS;
    case FIG_CU_DEVICE_CAPABILITY_MINOR: *value = fake.capability % 10; return FIG_CU_SUCCESS;
    case FIG_CU_DEVICE_SM_COUNT: *value = fake.sm_count; return FIG_CU_SUCCESS;
    case FIG_CU_DEVICE_SHARED_BYTES: *value = fake.shared_bytes; return FIG_CU_SUCCESS;
    case FIG_CU_DEVICE_HOST_NODE:
        *value = fake.node;
        return fake.no_node_attribute ? FIG_CU_INVALID_VALUE : FIG_CU_SUCCESS;
    default: return FIG_CU_INVALID_VALUE;
    }
}

static fig_cu_result device_get_bus(char *bus, int bytes, fig_cu_device device) {
    BEGIN("cuDeviceGetPCIBusId");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    snprintf(bus, (size_t)bytes, "%s", fake.bus);
    return FIG_CU_SUCCESS;
}

static fig_cu_result device_total_mem(size_t *bytes, fig_cu_device device) {
    BEGIN("cuDeviceTotalMem");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    *bytes = fake.memory_bytes;
    return FIG_CU_SUCCESS;
}

static fig_cu_result device_get_name(char *name, int bytes, fig_cu_device device) {
    BEGIN("cuDeviceGetName");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    snprintf(name, (size_t)bytes, "%s", fake.name);
    return FIG_CU_SUCCESS;
}

static fig_cu_result retain(fig_cu_context *context, fig_cu_device device) {
    BEGIN("cuDevicePrimaryCtxRetain");
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    *context = &fig_fake_cuda_primary;
    fake.held++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result release(fig_cu_device device) {
    if (device < FIG_FAKE_DEVICE) return fig_fake_cuda_unsafe();
    fake.held--;
    BEGIN("cuDevicePrimaryCtxRelease");
    return FIG_CU_SUCCESS;
}

void fig_fake_cuda_push(fig_cu_context context) {
    stack[depth++] = context;
    fake.current = context;
}

void fig_fake_cuda_pop(void) {
    if (--depth < 0) abort();
    fake.current = depth > 0 ? stack[depth - 1] : NULL;
}

static fig_cu_result ctx_push(fig_cu_context context) {
    BEGIN("cuCtxPushCurrent");
    if (depth == DEPTH_LIMIT) return fig_fake_cuda_unsafe();
    fig_fake_cuda_push(context);
    return FIG_CU_SUCCESS;
}

static fig_cu_result ctx_pop(fig_cu_context *context) {
    *context = fake.current;
    fig_fake_cuda_pop();
    BEGIN("cuCtxPopCurrent");
    return FIG_CU_SUCCESS;
}

/* There are two contexts: the GPU's own, and another library's on the same GPU. */
static fig_cu_result ctx_get_device(fig_cu_device *device) {
    BEGIN("cuCtxGetDevice");
    *device = fake.current != NULL ? 0 : -1;
    return fake.current != NULL ? FIG_CU_SUCCESS : FIG_CU_INVALID_CONTEXT;
}

fig_cu_context fig_fake_cuda_foreign(void) {
    return &foreign;
}

/* ---- Memory: [bytes, padded to 256][block] ------------------------------------------------- */

/* Returns NULL if the test lets this allocation fail. */
static void *allocate(size_t bytes) {
    void *block;
    if (posix_memalign(&block, 256, 256 + bytes) != 0) return NULL;
    uint8_t *memory = block;
    memcpy(memory, &bytes, sizeof bytes);
    memset(memory + 256, 0xee, bytes);
    fake.held++;
    return memory + 256;
}

static size_t deallocate(void *block) {
    size_t bytes;
    memcpy(&bytes, (uint8_t *)block - 256, sizeof bytes);
    free((uint8_t *)block - 256);
    fake.held--;
    return bytes;
}

static fig_cu_result mem_alloc(fig_cu_address *address, size_t bytes) {
    BEGIN_INSIDE("cuMemAlloc");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (bytes == 0) return FIG_CU_INVALID_VALUE;
    if (bytes > fake.memory_bytes - fake.memory_used) return FIG_CU_OUT_OF_MEMORY;
    void *block = allocate(bytes);
    if (block == NULL) return FIG_CU_OUT_OF_MEMORY;
    fake.memory_used += bytes;
    *address = (fig_cu_address)(uintptr_t)block;
    return FIG_CU_SUCCESS;
}

static fig_cu_result mem_free(fig_cu_address address) {
    fake.memory_used -= deallocate((void *)(uintptr_t)address);
    BEGIN_UNSAFE("cuMemFree");
    return FIG_CU_SUCCESS;
}

static fig_cu_result mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    BEGIN_INSIDE("cuMemGetInfo");
    *free_bytes = fake.memory_bytes - fake.memory_used;
    *total_bytes = fake.memory_bytes;
    return FIG_CU_SUCCESS;
}

static fig_cu_result mem_host_alloc(void **host, size_t bytes, unsigned int flags) {
    BEGIN_INSIDE("cuMemHostAlloc");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (bytes == 0 || flags != (FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED))
        return fig_fake_cuda_unsafe();
    *host = allocate(bytes);
    return *host != NULL ? FIG_CU_SUCCESS : FIG_CU_OUT_OF_MEMORY;
}

static fig_cu_result mem_free_host(void *host) {
    deallocate(host);
    BEGIN_UNSAFE("cuMemFreeHost");
    return FIG_CU_SUCCESS;
}

/* Registers the caller's memory, in whole pages. */
static fig_cu_result mem_host_register(void *host, size_t bytes, unsigned int flags) {
    BEGIN_INSIDE("cuMemHostRegister");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (bytes == 0 || (uintptr_t)host % 4096 != 0 ||
        flags != (FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED))
        return fig_fake_cuda_unsafe();
    fake.registered++;
    fake.held++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result mem_host_unregister(void *host) {
    *(volatile uint8_t *)host = 0; /* crashes the test if the memory is already gone */
    fake.held--;
    BEGIN_UNSAFE("cuMemHostUnregister");
    return FIG_CU_SUCCESS;
}

static fig_cu_result mem_host_get_device_pointer(fig_cu_address *address, void *host,
                                                 unsigned int flags) {
    BEGIN_INSIDE("cuMemHostGetDevicePointer");
    *address = (fig_cu_address)(uintptr_t)host;
    return flags == 0 ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

static fig_cu_result memset_d8_async(fig_cu_address to, unsigned char byte, size_t bytes,
                                     fig_cu_stream stream) {
    BEGIN_INSIDE("cuMemsetD8Async");
    if (stream == NULL) return fig_fake_cuda_unsafe();
    memset((void *)(uintptr_t)to, byte, bytes);
    return FIG_CU_SUCCESS;
}

/* ---- Streams ------------------------------------------------------------------------------- */

fig_cu_stream fig_fake_cuda_stream(fig_cu_stream handle) {
    if ((uintptr_t)handle > FIG_CU_STREAM_OF_CONTEXT) return handle;
    default_stream.context = fake.current;
    /* the wrong context is current, or none is */
    if (fake.current != &fig_fake_cuda_primary) fake.unsafe++;
    return &default_stream;
}

fig_cu_stream fig_fake_cuda_stream_create(fig_cu_context context) {
    fig_cu_stream stream = calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    stream->context = context;
    fake.held++;
    return stream;
}

void fig_fake_cuda_stream_destroy(fig_cu_stream stream) {
    fake.unsafe += stream->capturing != NULL;
    free(stream);
    fake.held--;
}

static fig_cu_result stream_create(fig_cu_stream *stream, unsigned int flags) {
    BEGIN_INSIDE("cuStreamCreate");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (flags != FIG_CU_STREAM_NON_BLOCKING) return fig_fake_cuda_unsafe();
    *stream = fig_fake_cuda_stream_create(fake.current);
    return *stream != NULL ? FIG_CU_SUCCESS : FIG_CU_OUT_OF_MEMORY;
}

static fig_cu_result stream_destroy(fig_cu_stream stream) {
    fig_fake_cuda_stream_destroy(stream);
    BEGIN_UNSAFE("cuStreamDestroy");
    return FIG_CU_SUCCESS;
}

static fig_cu_result stream_get_ctx(fig_cu_stream stream, fig_cu_context *context) {
    BEGIN("cuStreamGetCtx");
    *context = fig_fake_cuda_stream(stream)->context;
    return FIG_CU_SUCCESS;
}

static fig_cu_result stream_query(fig_cu_stream stream) {
    BEGIN_UNSAFE("cuStreamQuery");
    stream = fig_fake_cuda_stream(stream);
    if (stream->capturing != NULL) return fig_fake_cuda_unsafe();
    if (stream->busy_looks == 0) return FIG_CU_SUCCESS;
    stream->busy_looks -= stream->busy_looks > 0;
    return FIG_CU_NOT_READY;
}

/* A stream that is busy for ever would never return from this call, so a test that makes it is at
 * fault. */
static fig_cu_result stream_synchronize(fig_cu_stream stream) {
    BEGIN_UNSAFE("cuStreamSynchronize");
    stream = fig_fake_cuda_stream(stream);
    if (stream->busy_looks < 0 || stream->capturing != NULL) return fig_fake_cuda_unsafe();
    stream->busy_looks = 0;
    return FIG_CU_SUCCESS;
}

static fig_cu_result memcpy_async(fig_cu_address to, fig_cu_address from, size_t bytes,
                                  fig_cu_stream stream) {
    BEGIN_INSIDE("cuMemcpyAsync");
    if (fig_fake_cuda_stream(stream)->capturing != NULL) return fig_fake_cuda_unsafe();
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return FIG_CU_SUCCESS;
}

/* ---- Events -------------------------------------------------------------------------------- */

struct CUevent_st {
    int recorded, busy_looks;
    struct timespec at;
};

static fig_cu_result event_create(fig_cu_event *event, unsigned int flags) {
    BEGIN_INSIDE("cuEventCreate");
    if (fig_fake_cuda_breaks()) return FIG_CU_CAPTURE_INVALIDATED;
    if (flags != FIG_CU_EVENT_TIMED && flags != FIG_CU_EVENT_UNTIMED) return fig_fake_cuda_unsafe();
    *event = calloc(1, sizeof **event);
    if (*event == NULL) return FIG_CU_OUT_OF_MEMORY;
    fake.held++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result event_destroy(fig_cu_event event) {
    free(event);
    fake.held--;
    BEGIN_UNSAFE("cuEventDestroy");
    return FIG_CU_SUCCESS;
}

/* Launches have run to their end before this call, so the event lies after all of them. It
 * remembers how busy the stream pretends to be. */
static fig_cu_result event_record(fig_cu_event event, fig_cu_stream stream) {
    BEGIN("cuEventRecord");
    stream = fig_fake_cuda_stream(stream);
    if (stream->capturing != NULL) return fig_fake_cuda_unsafe();
    event->recorded = 1;
    event->busy_looks = stream->busy_looks;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return FIG_CU_SUCCESS;
}

/* A stream that waits for a busy stream becomes equally busy. */
static fig_cu_result stream_wait_event(fig_cu_stream stream, fig_cu_event event,
                                       unsigned int flags) {
    BEGIN("cuStreamWaitEvent");
    stream = fig_fake_cuda_stream(stream);
    if (stream->capturing != NULL || !event->recorded || flags != 0) return fig_fake_cuda_unsafe();
    if (stream->busy_looks == 0 || event->busy_looks < 0) stream->busy_looks = event->busy_looks;
    fake.orders++;
    return FIG_CU_SUCCESS;
}

/* ---- Peers. GPUs reach each other unless a test says otherwise. Opening a handle returns the
 * address from which the handle was made. */

static fig_cu_result can_access_peer(int *can, fig_cu_device device, fig_cu_device peer) {
    BEGIN("cuDeviceCanAccessPeer");
    *can = device != peer && (fake.unreached == 0 || peer - FIG_FAKE_DEVICE != fake.unreached);
    return FIG_CU_SUCCESS;
}

static fig_cu_result get_p2p_attribute(int *value, unsigned int attribute, fig_cu_device device,
                                       fig_cu_device peer) {
    BEGIN("cuDeviceGetP2PAttribute");
    if (attribute != FIG_CU_P2P_NATIVE_ATOMICS || device == peer) return FIG_CU_INVALID_VALUE;
    *value = !fake.is_slow;
    return FIG_CU_SUCCESS;
}

static fig_cu_result enable_peer_access(fig_cu_context peer, unsigned int flags) {
    BEGIN("cuCtxEnablePeerAccess");
    return peer != NULL && flags == 0 ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

static fig_cu_result ipc_get_handle(fig_cu_ipc_handle *handle, fig_cu_address address) {
    BEGIN("cuIpcGetMemHandle");
    memcpy(handle->bytes, &address, sizeof address);
    return FIG_CU_SUCCESS;
}

static fig_cu_result ipc_open_handle(fig_cu_address *address, fig_cu_ipc_handle handle,
                                     unsigned int flags) {
    BEGIN("cuIpcOpenMemHandle");
    memcpy(address, handle.bytes, sizeof *address);
    fake.held++;
    return flags == FIG_CU_IPC_PEER_ACCESS ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

static fig_cu_result ipc_close_handle(fig_cu_address address) {
    BEGIN("cuIpcCloseMemHandle");
    fake.held--;
    return address != 0 ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}

static fig_cu_result event_synchronize(fig_cu_event event) {
    BEGIN_UNSAFE("cuEventSynchronize");
    return event->recorded && event->busy_looks >= 0 ? FIG_CU_SUCCESS : fig_fake_cuda_unsafe();
}

static fig_cu_result event_query(fig_cu_event event) {
    BEGIN_UNSAFE("cuEventQuery");
    if (!event->recorded) return fig_fake_cuda_unsafe();
    if (event->busy_looks == 0) return FIG_CU_SUCCESS;
    if (event->busy_looks > 0) event->busy_looks--;
    return FIG_CU_NOT_READY;
}

static fig_cu_result event_elapsed_time(float *ms, fig_cu_event from, fig_cu_event to) {
    BEGIN("cuEventElapsedTime");
    if (!from->recorded || !to->recorded) return fig_fake_cuda_unsafe();
    *ms = (float)(to->at.tv_sec - from->at.tv_sec) * 1e3f +
          (float)(to->at.tv_nsec - from->at.tv_nsec) / 1e6f;
    return FIG_CU_SUCCESS;
}

/* ---- The table ----------------------------------------------------------------------------- */

static fig_cuda_api entries = {
    .version = 13000,
    .GetErrorName = get_error_name,
    .GetErrorString = get_error_string,
    .Init = init,
    .DeviceGetCount = device_get_count,
    .DeviceGet = device_get,
    .DeviceGetAttribute = device_get_attribute,
    .DeviceGetName = device_get_name,
    .DeviceGetPCIBusId = device_get_bus,
    .DeviceTotalMem = device_total_mem,
    .DevicePrimaryCtxRetain = retain,
    .DevicePrimaryCtxRelease = release,
    .CtxPushCurrent = ctx_push,
    .CtxPopCurrent = ctx_pop,
    .CtxGetDevice = ctx_get_device,
    .MemAlloc = mem_alloc,
    .MemFree = mem_free,
    .MemGetInfo = mem_get_info,
    .MemHostAlloc = mem_host_alloc,
    .MemFreeHost = mem_free_host,
    .MemHostRegister = mem_host_register,
    .MemHostUnregister = mem_host_unregister,
    .MemHostGetDevicePointer = mem_host_get_device_pointer,
    .DeviceCanAccessPeer = can_access_peer,
    .DeviceGetP2PAttribute = get_p2p_attribute,
    .CtxEnablePeerAccess = enable_peer_access,
    .IpcGetMemHandle = ipc_get_handle,
    .IpcOpenMemHandle = ipc_open_handle,
    .IpcCloseMemHandle = ipc_close_handle,
    .MemsetD8Async = memset_d8_async,
    .MemcpyAsync = memcpy_async,
    .StreamCreate = stream_create,
    .StreamDestroy = stream_destroy,
    .StreamGetCtx = stream_get_ctx,
    .StreamQuery = stream_query,
    .StreamSynchronize = stream_synchronize,
    .StreamWaitEvent = stream_wait_event,
    .EventCreate = event_create,
    .EventDestroy = event_destroy,
    .EventRecord = event_record,
    .EventQuery = event_query,
    .EventSynchronize = event_synchronize,
    .EventElapsedTime = event_elapsed_time,
    .ThreadExchangeStreamCaptureMode = thread_exchange_mode,
};

/* If there is a real driver, opens it first, so that fig_fake_cuda_remove() restores its table. */
fig_fake_cuda *fig_fake_cuda_install(void) {
    fig_cuda_api_open();
    before = *fig_cuda_api_table();
    fig_fake_graph_fill(&entries);
    fig_fake_capture_fill(&entries);
    fig_fake_link_fill(&entries);
    *fig_cuda_api_table() = entries;
    depth = 0;
    default_stream = (struct CUstream_st){0};
    fake = (fig_fake_cuda){.device_count = 1,
                           .capability = 90,
                           .name = "NVIDIA H200",
                           .sm_count = 132,
                           .shared_bytes = 232448,
                           .memory_bytes = 1 << 30,
                           .node = FIG_FAKE_NODE,
                           .bus = "0000:FF:1F.7",
                           .params_count = 1};
    return &fake;
}

void fig_fake_cuda_remove(void) {
    *fig_cuda_api_table() = before;
}

fig_cu_result fig_fake_cuda_lookup(const char *name, void **entry, int version, uint64_t flags,
                                   unsigned int *status) {
    *entry = NULL;
    *status = 1;
    fig_fake_graph_fill(&entries);
    fig_fake_capture_fill(&entries);
    fig_fake_link_fill(&entries);
#define FIND(member, since, parameters)                                                            \
    if (strcmp(name, "cu" #member) == 0 && version == (since)) {                                   \
        memcpy(entry, &entries.member, sizeof *entry);                                             \
        *status = 0;                                                                               \
    }
    FIG_CUDA_API_ENTRIES(FIND)
#undef FIND
    return flags == FIG_CU_LEGACY_STREAM ? FIG_CU_SUCCESS : FIG_CU_INVALID_VALUE;
}
