/* cuda_gpu.c: finds and holds a GPU, and distinguishes errors that its context survives from fatal
 * ones.
 *
 * Invariant: fig_cuda_gpu_enter() and fig_cuda_gpu_leave() come in pairs on one thread, so the
 * caller's stack of contexts is unchanged. */
#include "engine/driver/cuda_gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "engine/machine/pci.h"
#include "planner/status.h"

enum { HOPPER_CAPABILITY = 90 };

/* ---- Errors -------------------------------------------------------------------------------- */

/* Returns 1 for an error after which every further call on the context fails, so that only a new
 * process helps. FIG_CU_UNKNOWN is such an error: the driver does not recover from an error that it
 * cannot name. */
static int is_fatal(fig_cu_result result) {
    switch (result) {
    case FIG_CU_DEINITIALIZED:
    case FIG_CU_ECC_UNCORRECTABLE:
    case FIG_CU_NVLINK_UNCORRECTABLE:
    case FIG_CU_CONTAINED:
    case FIG_CU_ILLEGAL_ADDRESS:
    case FIG_CU_LAUNCH_TIMEOUT:
    case FIG_CU_CONTEXT_IS_DESTROYED:
    case FIG_CU_ASSERT:
    case FIG_CU_HARDWARE_STACK_ERROR:
    case FIG_CU_ILLEGAL_INSTRUCTION:
    case FIG_CU_MISALIGNED_ADDRESS:
    case FIG_CU_INVALID_ADDRESS_SPACE:
    case FIG_CU_INVALID_PC:
    case FIG_CU_LAUNCH_FAILED:
    case FIG_CU_TENSOR_MEMORY_LEAK:
    case FIG_CU_MPS_CLIENT_TERMINATED:
    case FIG_CU_EXTERNAL_DEVICE:
    case FIG_CU_UNKNOWN: return 1;
    default: return 0;
    }
}

int fig_cuda_gpu_is_lost(const fig_cuda_gpu *gpu) {
    /* partner: the release in fig_cuda_gpu_refuse */
    return __atomic_load_n(&gpu->loss, __ATOMIC_ACQUIRE) == FIG_CUDA_GPU_LOST;
}

fig_status fig_cuda_gpu_check(const fig_cuda_gpu *gpu) {
    if (!fig_cuda_gpu_is_lost(gpu)) return FIG_OK;
    return fig_status_relay(FIG_LOST, gpu->lost);
}

static fig_status fail_as(const fig_cuda_gpu *gpu, fig_status status, fig_cu_result result,
                          const char *call) {
    const char *name = NULL, *words = NULL;
    gpu->cu->GetErrorName(result, &name);
    gpu->cu->GetErrorString(result, &words);
    return fig_fail(status, "cuda device: %s: %s (%u), %s", call,
                    name != NULL ? name : "an error without a name", result,
                    words != NULL ? words : "which the driver does not know");
}

fig_status fig_cuda_gpu_refuse(fig_cuda_gpu *gpu, fig_cu_result result, const char *call) {
    if (result == FIG_CU_OUT_OF_MEMORY) return fail_as(gpu, FIG_NOMEM, result, call);
    if (!is_fatal(result)) return fail_as(gpu, FIG_DRIVER, result, call);
    /* The first error is the cause; later errors only repeat it. If another thread is writing the
     * cause at this moment, this call tells its own error. Partner of the exchange: that of the
     * other thread. Partner of the store: fig_cuda_gpu_is_lost(). */
    uint32_t loss = FIG_CUDA_GPU_FINE;
    if (fig_cuda_gpu_is_lost(gpu)) return fig_cuda_gpu_check(gpu);
    fail_as(gpu, FIG_LOST, result, call);
    if (!__atomic_compare_exchange_n(&gpu->loss, &loss, FIG_CUDA_GPU_LOSING, 0, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE))
        return FIG_LOST;
    snprintf(gpu->lost, sizeof gpu->lost, "%s", fig_message());
    __atomic_store_n(&gpu->loss, FIG_CUDA_GPU_LOST, __ATOMIC_RELEASE);
    return fig_cuda_gpu_check(gpu);
}

/* ---- Finding ------------------------------------------------------------------------------- */

/* A failure before a device is held means that this process can use no device, so it becomes
 * FIG_NO_DEVICE. */
#define FIND_TRY(gpu, name, ...)                                                                   \
    do {                                                                                           \
        fig_cu_result find_try_result_ = (gpu)->cu->name(__VA_ARGS__);                             \
        if (find_try_result_ != FIG_CU_SUCCESS)                                                    \
            return fail_as((gpu), FIG_NO_DEVICE, find_try_result_, "cu" #name);                    \
    } while (0)

static fig_status count_devices(const fig_cuda_gpu *gpu, int *count) {
    fig_cu_result result = gpu->cu->Init(0);
    if (result == FIG_CU_SUCCESS) FIND_TRY(gpu, DeviceGetCount, count);
    if (result == FIG_CU_NO_DEVICE || (result == FIG_CU_SUCCESS && *count == 0))
        return fig_fail(FIG_NO_DEVICE, "cuda device: there is a driver, of CUDA %d.%d, but no GPU",
                        gpu->cu->version / 1000, gpu->cu->version % 1000 / 10);
    if (result != FIG_CU_SUCCESS) return fail_as(gpu, FIG_NO_DEVICE, result, "cuInit");
    return FIG_OK;
}

fig_status fig_cuda_gpu_count(int *count) {
    const fig_cuda_gpu none = {.cu = fig_cuda_api_table()};
    *count = 0;
    FIG_TRY(fig_cuda_api_open());
    return count_devices(&none, count);
}

int fig_cuda_gpu_is_absent(void) {
    const fig_cuda_api *cu = fig_cuda_api_table();
    int count = 0;
    if (fig_cuda_api_open() != FIG_OK) return cu->is_missing;
    fig_cu_result result = cu->Init(0);
    if (result == FIG_CU_SUCCESS) result = cu->DeviceGetCount(&count);
    return result == FIG_CU_NO_DEVICE || (result == FIG_CU_SUCCESS && count == 0);
}

static fig_status find_device(fig_cuda_gpu *gpu) {
    int count = 0;
    FIG_TRY(count_devices(gpu, &count));
    if (gpu->ordinal < 0 || gpu->ordinal >= count)
        return fig_fail(FIG_NO_DEVICE,
                        "cuda device: ordinal is %d, and the driver sees %d GPUs, from 0",
                        gpu->ordinal, count);
    FIND_TRY(gpu, DeviceGet, &gpu->device, gpu->ordinal);
    return FIG_OK;
}

/* Sets the traits' name. A machine that this library knows gets the library's name for it, such as
 * "h200" for "NVIDIA H200"; any other machine is named by its compute capability. Converts `device`
 * to lower case. */
static void name_traits(fig_traits *traits, char *device) {
    const char *name;
    for (char *c = device; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(traits->name, sizeof traits->name, "sm_%d", (int)traits->compute_capability);
    for (int32_t i = 0; (name = fig_traits_name(i)) != NULL; i++)
        if (strstr(device, name) != NULL) snprintf(traits->name, sizeof traits->name, "%s", name);
}

static fig_status read_traits(fig_cuda_gpu *gpu) {
    int major = 0, minor = 0, sm_count = 0, shared_bytes = 0;
    char name[128] = "";
    FIND_TRY(gpu, DeviceGetAttribute, &major, FIG_CU_DEVICE_CAPABILITY_MAJOR, gpu->device);
    FIND_TRY(gpu, DeviceGetAttribute, &minor, FIG_CU_DEVICE_CAPABILITY_MINOR, gpu->device);
    FIND_TRY(gpu, DeviceGetAttribute, &sm_count, FIG_CU_DEVICE_SM_COUNT, gpu->device);
    FIND_TRY(gpu, DeviceGetAttribute, &shared_bytes, FIG_CU_DEVICE_SHARED_BYTES, gpu->device);
    FIND_TRY(gpu, DeviceGetName, name, sizeof name, gpu->device);
    gpu->traits = (fig_traits){.size = sizeof gpu->traits,
                               .compute_capability = 10 * major + minor,
                               .sm_count = sm_count,
                               .shared_bytes = shared_bytes};
    name_traits(&gpu->traits, name);
    return FIG_OK;
}

/* Reads the NUMA node beside the GPU. The node is only a hint for the placement of the ring, so it
 * stays unknown if the driver does not report it. A driver that does not know the attribute may
 * still report the GPU's address on the bus. */
static void read_node(fig_cuda_gpu *gpu) {
    char bus[32] = "";
    int node = -1;
    gpu->node = -1;
    if (gpu->cu->DeviceGetAttribute(&node, FIG_CU_DEVICE_HOST_NODE, gpu->device) == FIG_CU_SUCCESS)
        gpu->node = node;
    if (gpu->node >= 0) return;
    if (gpu->cu->DeviceGetPCIBusId(bus, sizeof bus, gpu->device) == FIG_CU_SUCCESS)
        gpu->node = fig_pci_node(NULL, bus);
}

fig_status fig_cuda_gpu_look(fig_cuda_gpu *gpu, int ordinal, int plain) {
    *gpu = (fig_cuda_gpu){.cu = fig_cuda_api_table(), .ordinal = ordinal, .node = -1};
    FIG_TRY(fig_cuda_api_open());
    FIG_TRY(find_device(gpu));
    FIG_TRY(read_traits(gpu));
    read_node(gpu);
    const int hopper = gpu->traits.compute_capability == HOPPER_CAPABILITY && !plain;
    gpu->path = hopper ? FIG_IMAGE_HOPPER : FIG_IMAGE_PLAIN;
    return FIG_OK;
}

fig_status fig_cuda_gpu_find(fig_cuda_gpu *gpu, int ordinal, int plain) {
    /* This check comes first, so that a library without images never starts the driver. */
    if (fig_cuda_api_table()->image(FIG_OP_FETCH, 0, FIG_IMAGE_PLAIN).bytes == NULL)
        return fig_fail(FIG_NO_DEVICE,
                        "cuda device: this library has no kernels for a GPU: it was built without "
                        "nvcc");
    FIG_TRY(fig_cuda_gpu_look(gpu, ordinal, plain));
    const int capability = gpu->traits.compute_capability;
    if (capability < FIG_CUDA_GPU_LEAST_CAPABILITY)
        return fig_fail(FIG_NO_DEVICE,
                        "cuda device: GPU %d is of compute capability %d.%d, this library needs "
                        "%d.%d",
                        ordinal, capability / 10, capability % 10,
                        FIG_CUDA_GPU_LEAST_CAPABILITY / 10, FIG_CUDA_GPU_LEAST_CAPABILITY % 10);
    return FIG_OK;
}

/* ---- Holding ------------------------------------------------------------------------------- */

/* The state of a thread before fig_cuda_gpu_enter(); fig_cuda_gpu_leave() restores it. Between the
 * two calls, a callback may enter another engine's GPU, and another thread may enter the same
 * GPU. */
typedef struct visit {
    int entered;       /* 1: our context is current, on top of the caller's */
    int relaxed;       /* 1: calls that are unsafe in a capture are allowed, whatever `mode` is */
    unsigned int mode; /* the caller's mode */
    /* the context that fig_cuda_gpu_hold() left entered and relaxed; NULL: none */
    fig_cu_context held;
} visit;
/* the last VISITS_TO_FREE visits are reserved for functions that free */
enum { VISIT_LIMIT = 64, VISITS_TO_FREE = 8 };
static _Thread_local visit visits[VISIT_LIMIT];
static _Thread_local int visit_count;

/* Every function that begins a visit calls this first. If the callback of one engine calls another
 * engine, each engine in the chain needs two or three visits. */
static fig_status check_visits(void) {
    if (visit_count < VISIT_LIMIT - VISITS_TO_FREE) return FIG_OK;
    return fig_fail(FIG_UNSUPPORTED,
                    "cuda device: callbacks that call other engines are nested too deep, limit %d "
                    "visits of a GPU at once",
                    VISIT_LIMIT - VISITS_TO_FREE);
}

static visit *begin_visit(void) {
    assert(visit_count < VISIT_LIMIT);
    visits[visit_count] = (visit){.mode = FIG_CU_CAPTURE_RELAXED};
    return &visits[visit_count++];
}

/* A failed pop is ignored: its error comes from earlier work, and the next call will report that
 * error again. */
fig_status fig_cuda_gpu_leave(fig_cuda_gpu *gpu, fig_status status) {
    fig_cu_context popped;
    assert(visit_count > 0);
    visit *own = &visits[--visit_count];
    if (own->relaxed) gpu->cu->ThreadExchangeStreamCaptureMode(&own->mode);
    if (own->entered) gpu->cu->CtxPopCurrent(&popped);
    return status;
}

static fig_status relax(fig_cuda_gpu *gpu, visit *own) {
    CU_TRY(gpu, ThreadExchangeStreamCaptureMode, &own->mode);
    own->relaxed = 1;
    return FIG_OK;
}

fig_status fig_cuda_gpu_relax(fig_cuda_gpu *gpu) {
    FIG_TRY(check_visits());
    const fig_status status = relax(gpu, begin_visit());
    return status == FIG_OK ? FIG_OK : fig_cuda_gpu_leave(gpu, status);
}

fig_status fig_cuda_gpu_enter(fig_cuda_gpu *gpu) {
    FIG_TRY(fig_cuda_gpu_check(gpu));
    FIG_TRY(check_visits());
    CU_TRY(gpu, CtxPushCurrent, gpu->context);
    visit *own = begin_visit();
    own->entered = 1;
    const fig_status status = relax(gpu, own);
    return status == FIG_OK ? FIG_OK : fig_cuda_gpu_leave(gpu, status);
}

fig_status fig_cuda_gpu_enter_held(fig_cuda_gpu *gpu) {
    const visit *last = visit_count > 0 ? &visits[visit_count - 1] : NULL;
    if (last == NULL || last->held != gpu->context) return fig_cuda_gpu_enter(gpu);
    FIG_TRY(fig_cuda_gpu_check(gpu));
    FIG_TRY(check_visits());
    begin_visit();
    return FIG_OK;
}

fig_status fig_cuda_gpu_hold(fig_cuda_gpu *gpu) {
    FIG_TRY(fig_cuda_gpu_enter(gpu));
    visits[visit_count - 1].held = gpu->context;
    return FIG_OK;
}

void fig_cuda_gpu_enter_to_free(fig_cuda_gpu *gpu) {
    visit *own = begin_visit();
    own->entered = gpu->cu->CtxPushCurrent(gpu->context) == FIG_CU_SUCCESS;
    own->relaxed = gpu->cu->ThreadExchangeStreamCaptureMode(&own->mode) == FIG_CU_SUCCESS;
}

static fig_status open_streams(fig_cuda_gpu *gpu) {
    fig_cu_stream stream;
    CU_TRY(gpu, StreamCreate, &stream, FIG_CU_STREAM_NON_BLOCKING);
    gpu->aside = stream;
    CU_TRY(gpu, StreamCreate, &stream, FIG_CU_STREAM_NON_BLOCKING);
    gpu->uploads = stream;
    return FIG_OK;
}

fig_status fig_cuda_gpu_open(fig_cuda_gpu *gpu) {
    fig_cu_result result = gpu->cu->DevicePrimaryCtxRetain(&gpu->context, gpu->device);
    if (result != FIG_CU_SUCCESS) {
        gpu->context = NULL;
        /* For example, another process holds the GPU exclusively. */
        return fail_as(gpu, result == FIG_CU_OUT_OF_MEMORY ? FIG_NOMEM : FIG_NO_DEVICE, result,
                       "cuDevicePrimaryCtxRetain");
    }
    FIG_TRY(fig_cuda_gpu_enter(gpu));
    return fig_cuda_gpu_leave(gpu, open_streams(gpu));
}

void fig_cuda_gpu_close(fig_cuda_gpu *gpu) {
    if (gpu->context == NULL) return;
    fig_cuda_gpu_enter_to_free(gpu);
    if (gpu->uploads != NULL) gpu->cu->StreamDestroy(gpu->uploads);
    if (gpu->aside != NULL) gpu->cu->StreamDestroy(gpu->aside);
    fig_cuda_gpu_leave(gpu, FIG_OK);
    gpu->cu->DevicePrimaryCtxRelease(gpu->device);
    *gpu = (fig_cuda_gpu){0};
}
