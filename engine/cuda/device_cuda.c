/* device_cuda.c: one GPU as a device. Kernels are the library's images, a stream is a CUstream,
 * graphs are CUgraphs.
 *
 * The seam alone: which GPU and what its errors mean is cuda_gpu.c's, what a graph holds is
 * cuda_work.c's, what a caller captures cuda_splice.c's, what waits and in which order streams run
 * cuda_stream.c's. Invariant: a launch makes one call to the
 * driver and nothing else; every other function that calls it breaks no capture of the caller's,
 * and gives back the context and the mode that the thread had. */
#include "engine/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda_peers.h"
#include "engine/cuda/cuda_splice.h"
#include "engine/cuda/cuda_stream.h"
#include "engine/cuda/cuda_work.h"
#include "engine/lender.h"
#include "engine/machine/placement.h"
#include "engine/stats.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

struct fig_dev {
    fig_cuda_gpu gpu;
    fig_cuda_kernels kernels;
    fig_cuda_peers peers;
    fig_placement placement;
    fig_lender lender;
    int has_callers;     /* 1: the stream is the caller's */
    void *callers;       /* its handle */
    pthread_mutex_t one; /* held by who adds a node: it may load an image, or capture a call */
    int64_t calls;       /* made so far, of those that can fail */
    int64_t fail_at_call;
};

/* Whose callback this thread is in; NULL: in none. */
static _Thread_local const fig_dev *calling;

struct fig_dev_graph {
    fig_cuda_work *work;
    fig_cu_exec exec; /* NULL before it was first appended where nothing is captured */
};

struct fig_dev_exec {
    fig_cuda_work *work;
    fig_cu_exec exec;
    fig_dev_stream *stream; /* the one it was launched on; NULL before the first launch */
};

/* Stands at the head of every function that can fail, as on the host device. */
static fig_status count_call(fig_dev *dev, fig_status status, const char *name) {
    if (fig_stats_count(&dev->calls) != dev->fail_at_call) return FIG_OK;
    return fig_fail(status, "cuda device: call %" PRId64 " (%s) failed as asked", dev->calls, name);
}

/* fig_cuda_gpu_leave() follows where this is FIG_OK. */
static fig_status enter(fig_dev *dev, fig_status status, const char *name) {
    FIG_TRY(count_call(dev, status, name));
    return fig_cuda_gpu_enter(&dev->gpu);
}

/* ---- Device -------------------------------------------------------------------------------- */

static void cuda_close(fig_dev *dev) {
    if (dev == NULL) return;
    if (dev->gpu.context != NULL) {
        fig_cuda_gpu_enter_to_free(&dev->gpu);
        fig_cuda_peers_close(&dev->peers, &dev->gpu);
        fig_cuda_kernels_finish(&dev->kernels, &dev->gpu);
        fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
    }
    fig_cuda_gpu_close(&dev->gpu);
    fig_placement_close(&dev->placement);
    pthread_mutex_destroy(&dev->one);
    free(dev);
}

static fig_status open_gpu(fig_dev *dev, int32_t numa_node) {
    const fig_placement_wish wish = {.numa_node = numa_node, .device_node = dev->gpu.node};
    FIG_TRY(fig_placement_open(&dev->placement, &wish));
    FIG_TRY(fig_cuda_gpu_open(&dev->gpu));
    FIG_TRY(fig_cuda_gpu_enter(&dev->gpu));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_kernels_try(&dev->kernels, &dev->gpu));
}

/* A machine without a GPU says so before any call is counted, so that a caller to whom the host
 * will do counts the host's calls alone. */
static fig_status cuda_open(fig_dev **out, const fig_engine_options *options) {
    fig_cuda_gpu gpu;
    fig_test_options test;
    *out = NULL;
    FIG_TRY(fig_status_take_options(&test, sizeof test, options->test, "fig_test_options"));
    FIG_TRY(fig_cuda_gpu_find(&gpu, options->ordinal, test.plain_kernels));
    gpu.plain_edges = test.plain_edges;
    gpu.routes = test.routes;
    fig_dev *dev = calloc(1, sizeof *dev);
    if (dev == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *dev);
    dev->gpu = gpu;
    dev->one = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    dev->has_callers = options->stream != NULL;
    if (dev->has_callers) dev->callers = *options->stream;
    dev->fail_at_call = test.fail_at_call;
    fig_status status = count_call(dev, FIG_DRIVER, "open");
    if (status == FIG_OK) status = fig_lender_init(&dev->lender, options);
    if (status == FIG_OK) status = open_gpu(dev, options->numa_node);
    if (status == FIG_OK) {
        *out = dev;
        return FIG_OK;
    }
    cuda_close(dev);
    return status;
}

static void cuda_read_traits(const fig_dev *dev, fig_traits *traits) {
    *traits = dev->gpu.traits;
}

static void cuda_read_kernel_traits(const fig_dev *dev, fig_traits *traits) {
    *traits = dev->gpu.traits;
    traits->compute_capability = fig_images_capability(dev->gpu.path);
}

/* What was loaded to see that the driver takes the library's code makes room. */
static fig_status cuda_take_images(fig_dev *dev, const fig_image_set *images) {
    FIG_TRY(enter(dev, FIG_DRIVER, "take_images"));
    fig_cuda_kernels_finish(&dev->kernels, &dev->gpu);
    dev->kernels.given = images;
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_kernels_try(&dev->kernels, &dev->gpu));
}

static fig_status cuda_bind_thread(const fig_dev *dev) {
    return fig_placement_bind_thread(&dev->placement);
}

static fig_status cuda_meet(fig_dev *dev, const fig_dev_meeting *meeting, fig_dev_met *met) {
    *met = (fig_dev_met){0};
    FIG_TRY(enter(dev, FIG_DRIVER, "meet"));
    const fig_status status = fig_cuda_peers_open(&dev->peers, &dev->gpu, meeting, met);
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static void *pointer_of(fig_cu_address address) {
    return (void *)(uintptr_t)address;
}

static fig_cu_address address_of(const void *pointer) {
    return (fig_cu_address)(uintptr_t)pointer;
}

static fig_status fail_memory(fig_dev *dev, fig_cu_result result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result != FIG_CU_OUT_OF_MEMORY) return fig_cuda_gpu_refuse(&dev->gpu, result, "cuMemAlloc");
    dev->gpu.cu->MemGetInfo(&free_bytes, &total_bytes);
    return fig_fail(FIG_NOMEM, "cuda device: cuMemAlloc: %zu bytes, GPU %d has %zu free of %zu",
                    bytes, dev->gpu.ordinal, free_bytes, total_bytes);
}

static fig_status fail_pinned(fig_dev *dev, fig_cu_result result, const char *call, size_t bytes) {
    if (result != FIG_CU_OUT_OF_MEMORY) return fig_cuda_gpu_refuse(&dev->gpu, result, call);
    return fig_fail(FIG_NOMEM, "cuda device: %s: %zu bytes of pinned memory", call, bytes);
}

/* The driver has memory of its own choice; memory of ours lies on the node that was chosen. */
static fig_status pin(fig_dev *dev, void **host, size_t bytes) {
    const fig_cuda_api *cu = dev->gpu.cu;
    const unsigned int flags = FIG_CU_HOST_PORTABLE | FIG_CU_HOST_MAPPED;
    if (dev->placement.memory_node < 0) {
        fig_cu_result result = cu->MemHostAlloc(host, bytes, flags);
        if (result != FIG_CU_SUCCESS) return fail_pinned(dev, result, "cuMemHostAlloc", bytes);
        memset(*host, 0, bytes);
        return FIG_OK;
    }
    FIG_TRY(fig_placement_allocate(&dev->placement, bytes, host));
    fig_cu_result result = cu->MemHostRegister(*host, bytes, flags);
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    fig_placement_release(&dev->placement, *host, bytes);
    return fail_pinned(dev, result, "cuMemHostRegister", bytes);
}

static void unpin(fig_dev *dev, void *host, size_t bytes) {
    if (dev->placement.memory_node < 0) {
        dev->gpu.cu->MemFreeHost(host);
    } else {
        dev->gpu.cu->MemHostUnregister(host);
        fig_placement_release(&dev->placement, host, bytes);
    }
}

static fig_status allocate_pinned(fig_dev *dev, fig_block *block, size_t bytes) {
    fig_cu_address address = 0;
    void *host = NULL;
    FIG_TRY(pin(dev, &host, bytes));
    fig_cu_result result = dev->gpu.cu->MemHostGetDevicePointer(&address, host, 0);
    if (result != FIG_CU_SUCCESS) {
        unpin(dev, host, bytes);
        return fig_cuda_gpu_refuse(&dev->gpu, result, "cuMemHostGetDevicePointer");
    }
    block->device = pointer_of(address);
    block->host = host;
    return FIG_OK;
}

static fig_status clear(fig_cuda_gpu *gpu, fig_cu_address address, size_t bytes) {
    CU_TRY(gpu, MemsetD8Async, address, 0, bytes, gpu->aside);
    CU_TRY(gpu, StreamSynchronize, gpu->aside);
    return FIG_OK;
}

static fig_status allocate_device(fig_dev *dev, fig_block *block, size_t bytes) {
    fig_cuda_gpu *gpu = &dev->gpu;
    fig_cu_address address = 0;
    fig_cu_result result = gpu->cu->MemAlloc(&address, bytes);
    if (result != FIG_CU_SUCCESS) return fail_memory(dev, result, bytes);
    const fig_status status = clear(gpu, address, bytes);
    if (status != FIG_OK) gpu->cu->MemFree(address);
    if (status == FIG_OK) block->device = pointer_of(address);
    return status;
}

static fig_status borrow(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes) {
    const fig_dev *before = calling;
    calling = dev;
    fig_status status = fig_lender_take(&dev->lender, block, kind, bytes);
    calling = before;
    FIG_TRY(status);
    if (kind == FIG_MEMORY_PINNED) {
        memset(block->host, 0, bytes);
    } else {
        status = clear(&dev->gpu, address_of(block->device), bytes);
    }
    if (status != FIG_OK) fig_lender_give_back(&dev->lender, block);
    return status;
}

static fig_status cuda_allocate(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes) {
    const size_t least = bytes > 0 ? bytes : 1; /* the driver allocates no nothing */
    *block = (fig_block){0};
    FIG_TRY(enter(dev, FIG_NOMEM, "allocate"));
    if (dev->lender.allocate != NULL)
        return fig_cuda_gpu_leave(&dev->gpu, borrow(dev, block, kind, least));
    fig_status status = kind == FIG_MEMORY_PINNED ? allocate_pinned(dev, block, least)
                                                  : allocate_device(dev, block, least);
    if (status == FIG_OK) {
        block->bytes = bytes;
        block->kind = kind;
    }
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

static void cuda_release(fig_dev *dev, fig_block *block) {
    if (block->device != NULL) {
        fig_cuda_gpu_enter_to_free(&dev->gpu);
        if (dev->lender.allocate != NULL) {
            fig_lender_give_back(&dev->lender, block);
        } else if (block->kind == FIG_MEMORY_PINNED) {
            unpin(dev, block->host, block->bytes);
        } else {
            dev->gpu.cu->MemFree(address_of(block->device));
        }
        fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
    }
    *block = (fig_block){0};
}

/* ---- Stream -------------------------------------------------------------------------------- */

static fig_status cuda_stream_open(fig_dev *dev, fig_dev_stream **out) {
    *out = NULL;
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_open"));
    fig_dev_stream *stream = calloc(1, sizeof *stream);
    fig_status status =
        stream != NULL
            ? fig_cuda_stream_open(stream, &dev->gpu, dev->has_callers ? &dev->callers : NULL)
            : fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *stream);
    if (status == FIG_OK) {
        *out = stream;
    } else {
        free(stream);
    }
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

static void cuda_stream_close(fig_dev *dev, fig_dev_stream *stream) {
    if (stream == NULL) return;
    fig_cuda_gpu_enter_to_free(&dev->gpu);
    fig_cuda_stream_close(stream, &dev->gpu);
    fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
    free(stream);
}

static fig_status cuda_stream_wait(fig_dev *dev, fig_dev_stream *stream, int64_t timeout_us) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_wait"));
    fig_status status = timeout_us < 0 ? fig_cuda_stream_end(stream, &dev->gpu)
                                       : fig_cuda_stream_poll(stream, &dev->gpu, timeout_us);
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* `pending` counts from the last time that the stream was seen idle: which of its launches have
 * ended since, the driver does not say without an event behind each. */
static fig_status cuda_stream_query(fig_dev *dev, fig_dev_stream *stream, int64_t *pending,
                                    fig_status *fault) {
    *pending = stream->pending;
    *fault = dev->gpu.lost[0] == '\0' ? FIG_OK : FIG_LOST;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_query"));
    FIG_TRY(fig_cuda_gpu_check(&dev->gpu));
    FIG_TRY(stream->stream == NULL ? fig_cuda_gpu_enter(&dev->gpu) : fig_cuda_gpu_relax(&dev->gpu));
    fig_status status = fig_cuda_stream_look(stream, &dev->gpu, fault);
    *pending = stream->pending;
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

static fig_status cuda_stream_capture(fig_dev *dev, void *stream, uint64_t *capture) {
    fig_cuda_splice seen;
    *capture = 0;
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_capture"));
    fig_status status = fig_cuda_splice_look(&dev->gpu, fig_cuda_stream_of(stream), &seen);
    *capture = seen.capture;
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* Work on a GPU loses its context, which stays, or it has stopped waiting for another rank. */
static fig_status cuda_stream_take_fault(fig_dev *dev, fig_dev_stream *stream) {
    (void)stream;
    FIG_TRY(fig_cuda_gpu_check(&dev->gpu));
    return fig_cuda_peers_check(&dev->peers);
}

static fig_status cuda_stream_mark(fig_dev *dev, fig_dev_stream *stream, int32_t which) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_mark"));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_stream_mark(stream, &dev->gpu, which));
}

static fig_status cuda_stream_between(fig_dev *dev, fig_dev_stream *stream, double *ns) {
    *ns = 0;
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_between"));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_stream_between(stream, &dev->gpu, ns));
}

static fig_status cuda_stream_fence(fig_dev *dev, fig_dev_stream *stream, uint32_t which) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_fence"));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_stream_fence(stream, &dev->gpu, which));
}

static fig_status cuda_stream_pass(fig_dev *dev, fig_dev_stream *stream, uint32_t which) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_pass"));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_stream_pass(stream, &dev->gpu, which));
}

/* ---- The caller's streams ------------------------------------------------------------------ */

static void *cuda_stream_handle(const fig_dev_stream *own) {
    return own->stream;
}

static fig_status cuda_stream_follow(fig_dev *dev, fig_dev_stream *own, void *stream) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_follow"));
    return fig_cuda_gpu_leave(&dev->gpu,
                              fig_cuda_stream_follow(own, &dev->gpu, fig_cuda_stream_of(stream)));
}

static fig_status cuda_stream_lead(fig_dev *dev, fig_dev_stream *own, void *stream) {
    FIG_TRY(enter(dev, FIG_DRIVER, "stream_lead"));
    return fig_cuda_gpu_leave(&dev->gpu,
                              fig_cuda_stream_lead(own, &dev->gpu, fig_cuda_stream_of(stream)));
}

/* ---- Copies -------------------------------------------------------------------------------- */

/* Where each end lies the driver sees by its address: what a caller has bound may be memory of the
 * GPU, or pinned and mapped, or managed. */
static fig_status copy(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                       size_t bytes) {
    FIG_TRY(fig_cuda_stream_check(stream, &dev->gpu));
    if (bytes > 0)
        CU_TRY(&dev->gpu, MemcpyAsync, address_of(to), address_of(from), bytes, stream->stream);
    return fig_cuda_stream_end(stream, &dev->gpu);
}

static fig_status push(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                       size_t bytes) {
    FIG_TRY(fig_cuda_stream_check(stream, &dev->gpu));
    CU_TRY(&dev->gpu, MemcpyAsync, address_of(to), address_of(from), bytes, stream->stream);
    return FIG_OK;
}

static fig_status cuda_push(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                            size_t bytes) {
    FIG_TRY(enter(dev, FIG_DRIVER, "push"));
    return fig_cuda_gpu_leave(&dev->gpu, push(dev, stream, to, from, bytes));
}

static fig_status cuda_copy_in(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                               size_t bytes) {
    FIG_TRY(enter(dev, FIG_DRIVER, "copy_in"));
    return fig_cuda_gpu_leave(&dev->gpu, copy(dev, stream, to, from, bytes));
}

static fig_status cuda_copy_out(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                                size_t bytes) {
    FIG_TRY(enter(dev, FIG_DRIVER, "copy_out"));
    return fig_cuda_gpu_leave(&dev->gpu, copy(dev, stream, to, from, bytes));
}

/* ---- Graphs -------------------------------------------------------------------------------- */

static void cuda_graph_destroy(fig_dev *dev, fig_dev_graph *graph) {
    if (graph == NULL) return;
    fig_cuda_gpu_enter_to_free(&dev->gpu);
    if (graph->exec != NULL) {
        dev->gpu.cu->GraphExecDestroy(graph->exec);
        fig_cuda_work_release(graph->work, &dev->gpu);
    }
    fig_cuda_work_release(graph->work, &dev->gpu);
    fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
    free(graph);
}

static int cuda_is_calling(const fig_dev *dev, const fig_dev_stream *own) {
    (void)own;
    return calling == dev;
}

static fig_status cuda_graph_create(fig_dev *dev, fig_dev_graph **out) {
    *out = NULL;
    FIG_TRY(enter(dev, FIG_DRIVER, "graph_create"));
    fig_dev_graph *graph = calloc(1, sizeof *graph);
    fig_status status = graph != NULL
                            ? fig_cuda_work_create(&graph->work, &dev->gpu)
                            : fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *graph);
    if (status != FIG_OK) free(graph);
    if (status == FIG_OK) *out = graph;
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* Before a graph is launched or appended: nothing is added to it any more. */
static fig_status finish_graph(fig_dev *dev, fig_cuda_work *work) {
    const fig_cuda_nccl_job job = {&dev->peers.nccl, &dev->gpu, &dev->kernels, NULL};
    pthread_mutex_lock(&dev->one);
    const fig_status status = fig_cuda_nccl_end(&job, work, dev->peers.block);
    pthread_mutex_unlock(&dev->one);
    return status;
}

/* A launch that NCCL does is captured, and is code of others. */
static fig_status cuda_graph_kernel(fig_dev *dev, fig_dev_graph *graph,
                                    const fig_dev_launch *launch, fig_dev_after after) {
    fig_cuda_gpu *gpu = &dev->gpu;
    const fig_cuda_nccl_job job = {&dev->peers.nccl, gpu, &dev->kernels, launch};
    const int is_captured = fig_families_of(launch->op, launch->family)->is_captured;
    assert(launch->op < FIG_OP_KERNEL_COUNT);
    assert(launch->params_bytes == fig_kernel_table[launch->op].params_bytes);
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_kernel"));
    FIG_TRY(is_captured ? fig_cuda_gpu_enter(gpu) : fig_cuda_gpu_enter_held(gpu));
    pthread_mutex_lock(&dev->one);
    const fig_status status =
        is_captured ? fig_cuda_nccl_capture(&job, graph->work, after)
                    : fig_cuda_work_kernel(graph->work, gpu, &dev->kernels, launch, after);
    pthread_mutex_unlock(&dev->one);
    return fig_cuda_gpu_leave(gpu, status);
}

static fig_status cuda_graph_call(fig_dev *dev, fig_dev_graph *graph, const fig_dev_call *call,
                                  fig_dev_after after) {
    FIG_TRY(enter(dev, FIG_DRIVER, "graph_call"));
    pthread_mutex_lock(&dev->one);
    const fig_dev *before = calling;
    calling = dev;
    const fig_status status = fig_cuda_work_call(graph->work, &dev->gpu, call, after);
    calling = before;
    pthread_mutex_unlock(&dev->one);
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* An exec costs device memory, and a graph that is only ever captured needs none. */
static fig_status append(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own, fig_cu_stream on,
                         fig_graph_refs *refs) {
    fig_cuda_splice splice;
    fig_cuda_gpu *gpu = &dev->gpu;
    FIG_TRY(finish_graph(dev, graph->work));
    if (graph->exec == NULL) FIG_TRY(fig_cuda_work_check(graph->work, gpu));
    FIG_TRY(fig_cuda_splice_look(gpu, on, &splice));
    if (splice.capture != 0) return fig_cuda_splice_add(gpu, on, &splice, graph->work->graph, refs);
    if (graph->exec == NULL) FIG_TRY(fig_cuda_work_instantiate(graph->work, gpu, &graph->exec));
    return fig_cuda_stream_launch(own, gpu, on, graph->exec);
}

static fig_status cuda_graph_append(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own,
                                    void *stream, fig_graph_refs *refs) {
    FIG_TRY(enter(dev, FIG_DRIVER, "graph_append"));
    return fig_cuda_gpu_leave(&dev->gpu, append(dev, graph, own, fig_cuda_stream_of(stream), refs));
}

/* ---- Execs --------------------------------------------------------------------------------- */

static fig_status cuda_hold(fig_dev *dev) {
    return fig_cuda_gpu_hold(&dev->gpu);
}
static void cuda_let_go(fig_dev *dev) {
    fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
}

static void cuda_exec_destroy(fig_dev *dev, fig_dev_exec *exec) {
    if (exec == NULL) return;
    fig_cuda_gpu_enter_to_free(&dev->gpu);
    dev->gpu.cu->GraphExecDestroy(exec->exec);
    fig_cuda_work_release(exec->work, &dev->gpu);
    fig_cuda_gpu_leave(&dev->gpu, FIG_OK);
    free(exec);
}

static fig_status cuda_exec_create(fig_dev *dev, fig_dev_exec **out, const fig_dev_graph *graph) {
    *out = NULL;
    FIG_TRY(enter(dev, FIG_DRIVER, "exec_create"));
    fig_dev_exec *exec = calloc(1, sizeof *exec);
    fig_status status = exec != NULL ? finish_graph(dev, graph->work)
                                     : fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *exec);
    if (status == FIG_OK) status = fig_cuda_work_instantiate(graph->work, &dev->gpu, &exec->exec);
    if (status == FIG_OK) exec->work = graph->work;
    if (status == FIG_OK) *out = exec;
    if (status != FIG_OK) free(exec);
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* Launches in flight keep the params that they were launched with: the driver sees to it. */
static fig_status cuda_exec_patch(fig_dev *dev, fig_dev_exec *exec, uint32_t node,
                                  const void *params, size_t params_bytes) {
    FIG_TRY(enter(dev, FIG_DRIVER, "exec_patch"));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_work_patch(exec->work, &dev->gpu, exec->exec,
                                                             node, params, params_bytes));
}

static fig_status launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    CU_TRY(&dev->gpu, GraphLaunch, exec->exec, stream->stream);
    exec->stream = stream;
    stream->pending++;
    return FIG_OK;
}

/* A stream knows its context, and an exec those of its nodes, so none is made current; but the
 * default stream is that of the context which is current. */
static fig_status cuda_exec_launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    assert(exec->stream == NULL || exec->stream == stream);
    FIG_TRY(count_call(dev, FIG_DRIVER, "exec_launch"));
    FIG_TRY(fig_cuda_gpu_check(&dev->gpu));
    if (stream->stream != NULL) return launch(dev, exec, stream);
    FIG_TRY(fig_cuda_gpu_enter(&dev->gpu));
    return fig_cuda_gpu_leave(&dev->gpu, launch(dev, exec, stream));
}

const fig_device_api fig_device_cuda = {
    .name = "cuda",
    .kind = FIG_DEVICE_CUDA,
    .is_absent = fig_cuda_gpu_is_absent,
    .open = cuda_open,
    .close = cuda_close,
    .read_traits = cuda_read_traits,
    .read_kernel_traits = cuda_read_kernel_traits,
    .bind_thread = cuda_bind_thread,
    .take_images = cuda_take_images,
    .meet = cuda_meet,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .push = cuda_push,
    .stream_open = cuda_stream_open,
    .stream_close = cuda_stream_close,
    .stream_wait = cuda_stream_wait,
    .stream_query = cuda_stream_query,
    .stream_take_fault = cuda_stream_take_fault,
    .stream_mark = cuda_stream_mark,
    .stream_between = cuda_stream_between,
    .stream_fence = cuda_stream_fence,
    .stream_pass = cuda_stream_pass,
    .stream_handle = cuda_stream_handle,
    .stream_capture = cuda_stream_capture,
    .stream_follow = cuda_stream_follow,
    .stream_lead = cuda_stream_lead,
    .is_calling = cuda_is_calling,
    .hold = cuda_hold,
    .let_go = cuda_let_go,
    .graph_create = cuda_graph_create,
    .graph_destroy = cuda_graph_destroy,
    .graph_kernel = cuda_graph_kernel,
    .graph_call = cuda_graph_call,
    .graph_append = cuda_graph_append,
    .exec_create = cuda_exec_create,
    .exec_destroy = cuda_exec_destroy,
    .exec_patch = cuda_exec_patch,
    .exec_launch = cuda_exec_launch,
};
