/* device_cuda.c: one GPU as a device. Kernels come from the library's images, a stream is a
 * CUstream, and a graph is a CUgraph.
 *
 * This file only implements the functions of seam/device.h. cuda_gpu.c finds the GPU and interprets
 * its errors, cuda_work.c builds graphs, cuda_splice.c adds nodes to the caller's captures, and
 * cuda_stream.c waits and orders streams. Invariant: a launch makes one driver call and nothing
 * else. Every other function that calls the driver leaves the caller's captures intact, and
 * restores the thread's context and capture mode. */
#include "engine/seam/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/cuda_inlay.h"
#include "engine/cuda/cuda_memory.h"
#include "engine/cuda/cuda_peers.h"
#include "engine/cuda/cuda_stream.h"
#include "engine/seam/lender.h"
#include "engine/machine/placement.h"
#include "graphs/scores/cache_folder.h"
#include "engine/seam/stats.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

struct fig_dev {
    fig_cuda_gpu gpu;
    fig_cuda_kernels kernels;
    fig_cuda_peers peers;
    fig_placement placement;
    fig_lender lender;
    int has_callers; /* 1: the caller gave the stream */
    /* the handle of the stream that the caller gave */
    void *callers;
    /* Held while a node is added, because that may load an image or capture a call. */
    pthread_mutex_t one;
    /* the number of calls made so far to functions that can fail */
    int64_t calls;
    int64_t fail_at_call;
    int child_nodes; /* 1: a graph always enters a capture as a child node */
    fig_cuda_inlaid inlaid;
};

/* The device whose callback this thread runs; NULL: the thread runs no callback. */
static _Thread_local const fig_dev *calling;

struct fig_dev_graph {
    fig_cuda_work *work;
    /* NULL until the graph is first appended to a stream that does not capture */
    fig_cu_exec exec;
    fig_cuda_record record; /* the kernels in the graph */
};

struct fig_dev_exec {
    fig_cuda_work *work;
    fig_cu_exec exec;
    fig_dev_stream *stream; /* the stream of the last launch; NULL before the first launch */
};

/* As on the host device, every function that can fail calls this first. */
static fig_status count_call(fig_dev *dev, fig_status status, const char *name) {
    if (fig_stats_count(&dev->calls) != dev->fail_at_call) return FIG_OK;
    return fig_fail(status, "cuda device: call %" PRId64 " (%s) failed as asked", dev->calls, name);
}

/* If this function returns FIG_OK, the caller must later call fig_cuda_gpu_leave(). */
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
    free(dev->kernels.folder);
    free(dev);
}

static fig_status open_gpu(fig_dev *dev, int32_t numa_node) {
    const fig_placement_wish wish = {.numa_node = numa_node, .device_node = dev->gpu.node};
    FIG_TRY(fig_placement_open(&dev->placement, &wish));
    FIG_TRY(fig_cuda_gpu_open(&dev->gpu));
    FIG_TRY(fig_cuda_gpu_enter(&dev->gpu));
    return fig_cuda_gpu_leave(&dev->gpu, fig_cuda_kernels_try(&dev->kernels, &dev->gpu));
}

/* If the machine has no GPU, this function fails before it counts any call. So a test that then
 * falls back to the host device counts only the host device's calls. */
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
    dev->child_nodes = test.child_nodes;
    fig_status status = count_call(dev, FIG_DRIVER, "open");
    if (status == FIG_OK)
        status = fig_cache_folder_take(options->score_cache, &dev->kernels.folder);
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

/* First unloads the kernels that cuda_open() loaded in order to test whether the driver accepts the
 * code. */
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

static fig_cu_address address_of(const void *pointer) {
    return (fig_cu_address)(uintptr_t)pointer;
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
        status = fig_cuda_memory_clear(&dev->gpu, block->device, bytes);
    }
    if (status != FIG_OK) fig_lender_give_back(&dev->lender, block);
    return status;
}

static fig_status cuda_allocate(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes) {
    const size_t least = bytes > 0 ? bytes : 1; /* the driver refuses to allocate 0 bytes */
    *block = (fig_block){0};
    FIG_TRY(enter(dev, FIG_NOMEM, "allocate"));
    if (dev->lender.allocate != NULL)
        return fig_cuda_gpu_leave(&dev->gpu, borrow(dev, block, kind, least));
    block->kind = kind;
    const fig_status status = fig_cuda_memory_allocate(&dev->gpu, &dev->placement, block, least);
    if (status != FIG_OK) *block = (fig_block){0};
    if (status == FIG_OK) block->bytes = bytes;
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

static void cuda_release(fig_dev *dev, fig_block *block) {
    if (block->device != NULL) {
        fig_cuda_gpu_enter_to_free(&dev->gpu);
        if (dev->lender.allocate != NULL) {
            fig_lender_give_back(&dev->lender, block);
        } else {
            fig_cuda_memory_release(&dev->gpu, &dev->placement, block);
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

/* `pending` counts the launches since the stream was last found idle: without an event behind each
 * launch, the driver cannot report which launches have ended. */
static fig_status cuda_stream_query(fig_dev *dev, fig_dev_stream *stream, int64_t *pending,
                                    fig_status *fault) {
    *pending = stream->pending;
    *fault = fig_cuda_gpu_is_lost(&dev->gpu) ? FIG_LOST : FIG_OK;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_query"));
    FIG_TRY(fig_cuda_gpu_check(&dev->gpu));
    FIG_TRY(stream->stream == NULL ? fig_cuda_gpu_enter(&dev->gpu) : fig_cuda_gpu_relax(&dev->gpu));
    fig_status status = fig_cuda_stream_look(stream, &dev->gpu, fault);
    if (*fault == FIG_OK) *fault = fig_cuda_peers_look(&dev->peers);
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

/* Work on a GPU fails in two ways: the context is lost for good, or a kernel gave up waiting for
 * another rank. */
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

/* The driver derives the kind of memory from each address: memory that a caller bound may be on the
 * GPU, pinned and mapped, or managed. */
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
    fig_cuda_inlay_finish(&graph->record);
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

/* The functions that launch or append a graph call this first; after it, no node may be added to
 * the graph. Most graphs need nothing, and then do not wait for a thread that makes another one. */
static fig_status finish_graph(fig_dev *dev, fig_cuda_work *work) {
    const fig_cuda_nccl_job job = {&dev->peers.nccl, &dev->gpu, &dev->kernels, NULL};
    if (!fig_cuda_nccl_lacks_end(work)) return FIG_OK;
    pthread_mutex_lock(&dev->one);
    const fig_status status = fig_cuda_nccl_end(&job, work, dev->peers.block);
    pthread_mutex_unlock(&dev->one);
    return status;
}

static fig_status add_kernel(fig_dev *dev, fig_dev_graph *graph, const fig_dev_launch *launch,
                             fig_dev_after after) {
    FIG_TRY(fig_cuda_inlay_record(&graph->record, launch, after));
    const fig_status status =
        fig_cuda_work_kernel(graph->work, &dev->gpu, &dev->kernels, launch, after);
    if (status != FIG_OK) fig_cuda_inlay_forget_last(&graph->record);
    return status;
}

/* If NCCL carries the launch, this function captures calls into NCCL, which is code outside this
 * library. */
static fig_status cuda_graph_kernel(fig_dev *dev, fig_dev_graph *graph,
                                    const fig_dev_launch *launch, fig_dev_after after) {
    fig_cuda_gpu *gpu = &dev->gpu;
    const fig_cuda_nccl_job job = {&dev->peers.nccl, gpu, &dev->kernels, launch};
    FIG_TRY(fig_device_check_launch(launch));
    const int is_captured = fig_families_of(launch->op, launch->family)->is_captured;
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_kernel"));
    FIG_TRY(is_captured ? fig_cuda_gpu_enter(gpu) : fig_cuda_gpu_enter_held(gpu));
    graph->record.is_mixed |= is_captured;
    pthread_mutex_lock(&dev->one);
    const fig_status status = is_captured ? fig_cuda_nccl_capture(&job, graph->work, after)
                                          : add_kernel(dev, graph, launch, after);
    pthread_mutex_unlock(&dev->one);
    return fig_cuda_gpu_leave(gpu, status);
}

static fig_status cuda_graph_call(fig_dev *dev, fig_dev_graph *graph, const fig_dev_call *call,
                                  fig_dev_after after) {
    FIG_TRY(enter(dev, FIG_DRIVER, "graph_call"));
    graph->record.is_mixed = 1;
    pthread_mutex_lock(&dev->one);
    const fig_dev *before = calling;
    calling = dev;
    const fig_status status = fig_cuda_work_call(graph->work, &dev->gpu, call, after);
    calling = before;
    pthread_mutex_unlock(&dev->one);
    return fig_cuda_gpu_leave(&dev->gpu, status);
}

/* If the driver refuses to add our kernels to a capture as nodes, it may still accept a child
 * node. */
static fig_status splice_in(fig_dev *dev, fig_dev_graph *graph, fig_cu_stream on,
                            const fig_cuda_splice *splice, fig_graph_refs *refs) {
    int taken = 0;
    fig_status status = FIG_DRIVER;
    FIG_TRY(fig_cuda_splice_hold(&dev->gpu, splice, refs));
    if (!graph->record.is_mixed && !dev->child_nodes) {
        pthread_mutex_lock(&dev->one);
        status = fig_cuda_inlay_add(&dev->inlaid, &dev->gpu, &dev->kernels, on, splice,
                                    &graph->record, &taken);
        pthread_mutex_unlock(&dev->one);
    }
    if (status != FIG_DRIVER || taken) return status;
    return fig_cuda_splice_child(&dev->gpu, on, splice, graph->work->graph);
}

/* An exec costs device memory, so a graph that is only ever captured gets no exec. */
static fig_status append(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own, fig_cu_stream on,
                         fig_graph_refs *refs) {
    fig_cuda_splice splice;
    fig_cuda_gpu *gpu = &dev->gpu;
    FIG_TRY(finish_graph(dev, graph->work));
    if (graph->exec == NULL) FIG_TRY(fig_cuda_work_check(graph->work, gpu));
    FIG_TRY(fig_cuda_splice_look(gpu, on, &splice));
    if (splice.capture != 0) return splice_in(dev, graph, on, &splice, refs);
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

/* The driver guarantees that launches in flight keep the params with which they were launched. */
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

/* The driver derives the context from the stream and the exec's nodes, so no context needs to be
 * current here. The default stream is an exception: it belongs to the current context. */
static fig_status cuda_exec_launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    FIG_TRY_OURS(exec != NULL && (exec->stream == NULL || exec->stream == stream),
                 "cuda device: an exec of another stream, or none");
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
