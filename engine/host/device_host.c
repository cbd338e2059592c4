/* device_host.c: the host as a device: runs the reference kernels, on one thread per stream.
 *
 * This device is not a mock: it runs every graph that a GPU would run, block by block
 * (host_work.c), and serves machines without a GPU. Tests can make it fail at its n-th call, and
 * make it run nodes and blocks in a random order, as a GPU might. Invariant: data that a stream's
 * thread shares with the caller's thread is either protected by the stream's mutex or does not
 * change between a launch and its end. */
#include "engine/host/host_work.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/host/host_peers.h"
#include "engine/seam/lender.h"
#include "engine/machine/placement.h"
#include "engine/seam/clock.h"
#include "include/figraph_unstable.h"
#include "planner/status.h"

enum {
    QUEUE_LIMIT = 128, /* launches in flight; the deepest plan ring has 64 slots */
    BLOCK_ALIGNMENT = 256,
    LARGE_BYTES = 1 << 20 /* blocks of at least this size are cleared lazily by the system */
};

struct fig_dev {
    int64_t calls; /* calls so far to functions that can fail */
    int64_t fail_at_call;
    uint64_t shuffle;
    fig_placement placement;
    fig_lender lender;
    int is_calling; /* 1: the caller's allocator is running, on the caller's thread */
    fig_host_peers *peers;
};

struct fig_dev_exec {
    fig_host_work work;
    fig_dev_stream *stream; /* the stream of its launches; NULL before the first launch */
    uint32_t users;         /* launches that have not ended; protected by the stream's mutex */
};

struct fig_dev_graph {
    fig_host_work work;
    fig_dev_exec *exec; /* NULL until the first append */
};

struct fig_dev_stream {
    pthread_mutex_t mutex;
    pthread_cond_t work, ended; /* work: a launch was queued, or close; ended: a launch has ended */
    pthread_t thread;
    int parts;        /* how many of the four parts above have been made */
    int64_t marks[2]; /* ns; only the caller's thread uses them */
    uint64_t random;  /* only the stream's thread uses it; 0: nodes run in recorded order */
    /* The mutex protects the rest. */
    fig_dev_exec *queue[QUEUE_LIMIT]; /* the exec at `first` is running */
    uint32_t first, pending;
    int closing;
    fig_host_fault fault; /* the first fault not yet taken */
};

/* Counts a call. Every function that can fail begins with count_call(), so that a test can make
 * each of them fail. */
static fig_status count_call(fig_dev *dev, fig_status status, const char *name) {
    if (__atomic_add_fetch(&dev->calls, 1, __ATOMIC_RELAXED) != dev->fail_at_call) return FIG_OK;
    return fig_fail(status, "host device: call %" PRId64 " (%s) failed as asked", dev->calls, name);
}

/* ---- Device and memory --------------------------------------------------------------------- */

static int host_is_absent(void) {
    return 0;
}

static void host_close(fig_dev *dev) {
    fig_host_peers_close(dev->peers);
    fig_placement_close(&dev->placement);
    free(dev);
}

/* Chooses the memory's NUMA node. No node is nearer to this device than another, so memory is
 * placed only if the caller names a node. */
static fig_status place(fig_dev *dev, int32_t numa_node) {
    const fig_placement_wish wish = {.numa_node = numa_node, .device_node = -1};
    return fig_placement_open(&dev->placement, &wish);
}

static fig_status host_open(fig_dev **dev, const fig_engine_options *options) {
    fig_test_options test;
    *dev = NULL;
    FIG_TRY(fig_status_take_options(&test, sizeof test, options->test, "fig_test_options"));
    *dev = calloc(1, sizeof **dev);
    if (*dev == NULL) return fig_fail(FIG_NOMEM, "host device: %zu bytes", sizeof **dev);
    (*dev)->fail_at_call = test.fail_at_call;
    (*dev)->shuffle = test.shuffle;
    fig_status status = count_call(*dev, FIG_DRIVER, "open");
    if (status == FIG_OK && options->stream != NULL)
        status = fig_fail(FIG_INVALID, "host device: stream is set, but the host has only its own");
    if (status == FIG_OK) status = fig_lender_init(&(*dev)->lender, options);
    if (status == FIG_OK) status = place(*dev, options->numa_node);
    if (status == FIG_OK) return FIG_OK;
    host_close(*dev);
    *dev = NULL;
    return status;
}

static void host_read_traits(const fig_dev *dev, fig_traits *traits) {
    (void)dev;
    traits->size = sizeof *traits;
    fig_traits_named(traits, "host");
}

static fig_status host_take_images(fig_dev *dev, const fig_image_set *images) {
    (void)images;
    FIG_TRY(count_call(dev, FIG_UNSUPPORTED, "take_images"));
    return fig_fail(FIG_UNSUPPORTED, "host device: it cannot run kernel images: open it without "
                                     "trust");
}

static fig_status host_bind_thread(const fig_dev *dev) {
    if (dev->placement.thread_node >= 0) return fig_placement_bind_thread(&dev->placement);
    return fig_fail(FIG_UNSUPPORTED, "host device: numa_node names no node to bind the thread to");
}

static fig_status host_meet(fig_dev *dev, const fig_dev_meeting *meeting, fig_dev_met *met) {
    *met = (fig_dev_met){0};
    FIG_TRY(count_call(dev, FIG_DRIVER, "meet"));
    return fig_host_peers_open(&dev->peers, meeting, met);
}

static int is_placed(const fig_dev *dev, fig_memory kind) {
    return kind == FIG_MEMORY_PINNED && dev->placement.memory_node >= 0;
}

static fig_status borrow(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes) {
    dev->is_calling = 1;
    const fig_status status = fig_lender_take(&dev->lender, block, kind, bytes);
    dev->is_calling = 0;
    if (status == FIG_OK && bytes > 0) memset(block->device, 0, bytes);
    return status;
}

/* calloc takes a large block from the system, which clears each page when it is first touched, so
 * memory that no step uses costs nothing. calloc cannot align the block, so the word in front of
 * the block stores the pointer to free. Up to BLOCK_ALIGNMENT spare bytes follow the block, and a
 * sanitizer does not report accesses to them. */
static void *allocate_large(size_t bytes) {
    if (bytes > SIZE_MAX - BLOCK_ALIGNMENT) return NULL;
    uint8_t *whole = calloc(1, bytes + BLOCK_ALIGNMENT);
    if (whole == NULL) return NULL;
    uint8_t *memory = whole + BLOCK_ALIGNMENT - (uintptr_t)whole % BLOCK_ALIGNMENT;
    memcpy(memory - sizeof whole, &whole, sizeof whole);
    return memory;
}
static_assert(alignof(max_align_t) >= sizeof(void *), "a word fits below an aligned block");

/* A small block ends exactly where its allocation ends, so a sanitizer reports every access past
 * its end. */
static void *allocate_small(size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, BLOCK_ALIGNMENT, bytes > 0 ? bytes : 1) != 0) return NULL;
    memset(memory, 0, bytes);
    return memory;
}

static void release_own(const fig_block *block) {
    void *whole = block->device;
    if (block->bytes >= LARGE_BYTES)
        memcpy(&whole, (uint8_t *)block->device - sizeof whole, sizeof whole);
    free(whole);
}

static fig_status host_allocate(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes) {
    *block = (fig_block){0};
    FIG_TRY(count_call(dev, FIG_NOMEM, "allocate"));
    void *memory = NULL;
    if (dev->lender.allocate != NULL) return borrow(dev, block, kind, bytes);
    if (is_placed(dev, kind)) {
        FIG_TRY(fig_placement_allocate(&dev->placement, bytes, &memory));
    } else {
        memory = bytes < LARGE_BYTES ? allocate_small(bytes) : allocate_large(bytes);
        if (memory == NULL) return fig_fail(FIG_NOMEM, "host device: a block of %zu bytes", bytes);
    }
    *block = (fig_block){memory, kind == FIG_MEMORY_PINNED ? memory : NULL, bytes, kind};
    return FIG_OK;
}

static void host_release(fig_dev *dev, fig_block *block) {
    if (dev->lender.allocate != NULL) {
        fig_lender_give_back(&dev->lender, block);
    } else if (is_placed(dev, block->kind)) {
        fig_placement_release(&dev->placement, block->device, block->bytes);
    } else {
        release_own(block);
    }
    *block = (fig_block){0};
}

/* ---- Stream -------------------------------------------------------------------------------- */

static void *stream_main(void *user) {
    fig_dev_stream *stream = user;
    pthread_mutex_lock(&stream->mutex);
    for (;;) {
        while (stream->pending == 0 && !stream->closing)
            pthread_cond_wait(&stream->work, &stream->mutex);
        if (stream->pending == 0) break;
        fig_dev_exec *exec = stream->queue[stream->first];
        fig_host_fault fault;
        pthread_mutex_unlock(&stream->mutex);
        fig_host_work_run(&exec->work, &stream->random, &fault);
        pthread_mutex_lock(&stream->mutex);
        if (stream->fault.status == FIG_OK) stream->fault = fault;
        stream->first = (stream->first + 1) % QUEUE_LIMIT;
        stream->pending--;
        exec->users--;
        pthread_cond_broadcast(&stream->ended);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

/* Accepts a half-made stream: the parts are made in the order that `parts` counts. */
static void stream_free(fig_dev_stream *stream) {
    if (stream->parts >= 4) pthread_join(stream->thread, NULL);
    if (stream->parts >= 3) pthread_cond_destroy(&stream->ended);
    if (stream->parts >= 2) pthread_cond_destroy(&stream->work);
    if (stream->parts >= 1) pthread_mutex_destroy(&stream->mutex);
    free(stream);
}

static void host_stream_close(fig_dev *dev, fig_dev_stream *stream) {
    (void)dev;
    if (stream == NULL) return;
    pthread_mutex_lock(&stream->mutex);
    stream->closing = 1;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&stream->mutex);
    stream_free(stream);
}

/* Makes the four parts of a stream. Waits for `ended` use the monotonic clock. Returns 0 or an
 * error number. */
static int stream_init(fig_dev_stream *stream) {
    pthread_condattr_t monotonic;
    int error = pthread_mutex_init(&stream->mutex, NULL);
    if (error != 0) return error;
    stream->parts = 1;
    error = pthread_cond_init(&stream->work, NULL);
    if (error != 0) return error;
    stream->parts = 2;
    error = pthread_condattr_init(&monotonic);
    if (error != 0) return error;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    error = pthread_cond_init(&stream->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (error != 0) return error;
    stream->parts = 3;
    error = pthread_create(&stream->thread, NULL, stream_main, stream);
    if (error == 0) stream->parts = 4;
    return error;
}

static fig_status host_stream_open(fig_dev *dev, fig_dev_stream **out) {
    *out = NULL;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_open"));
    fig_dev_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return fig_fail(FIG_NOMEM, "host device: %zu bytes", sizeof *stream);
    stream->random = dev->shuffle;
    int error = stream_init(stream);
    if (error == 0) {
        *out = stream;
        return FIG_OK;
    }
    stream_free(stream);
    return fig_fail(FIG_DRIVER, "host device: no thread for a stream: %s", strerror(error));
}

static void wait_until_idle(fig_dev_stream *stream) {
    pthread_mutex_lock(&stream->mutex);
    while (stream->pending > 0)
        pthread_cond_wait(&stream->ended, &stream->mutex);
    pthread_mutex_unlock(&stream->mutex);
}

static struct timespec deadline_in(int64_t timeout_us) {
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    int64_t ns = deadline.tv_nsec + timeout_us % 1000000 * 1000;
    deadline.tv_sec += (time_t)(timeout_us / 1000000 + ns / 1000000000);
    deadline.tv_nsec = (long)(ns % 1000000000);
    return deadline;
}

static fig_status host_stream_wait(fig_dev *dev, fig_dev_stream *stream, int64_t timeout_us) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_wait"));
    if (timeout_us < 0) {
        wait_until_idle(stream);
        return FIG_OK;
    }
    struct timespec deadline = deadline_in(timeout_us);
    int error = 0;
    pthread_mutex_lock(&stream->mutex);
    while (stream->pending > 0 && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&stream->ended, &stream->mutex, &deadline);
    uint32_t pending = stream->pending;
    pthread_mutex_unlock(&stream->mutex);
    if (pending == 0) return FIG_OK;
    return fig_fail(FIG_TIMEOUT, "still running after %" PRId64 " us: %u step%s to end", timeout_us,
                    pending, FIG_PLURAL(pending));
}

static fig_status host_stream_query(fig_dev *dev, fig_dev_stream *stream, int64_t *pending,
                                    fig_status *fault) {
    *pending = 0;
    *fault = FIG_OK;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_query"));
    pthread_mutex_lock(&stream->mutex);
    *pending = stream->pending;
    *fault = stream->fault.status;
    pthread_mutex_unlock(&stream->mutex);
    return FIG_OK;
}

/* Returns the status of the first fault. Does not call count_call(), because this function cannot
 * fail itself. */
static fig_status host_stream_take_fault(fig_dev *dev, fig_dev_stream *stream) {
    (void)dev;
    pthread_mutex_lock(&stream->mutex);
    fig_host_fault fault = stream->fault;
    stream->fault.status = FIG_OK;
    pthread_mutex_unlock(&stream->mutex);
    if (fault.status == FIG_OK) return FIG_OK;
    return fig_status_relay(fault.status, fault.sentence);
}

/* The stream's thread does not read the clock, so the caller's thread waits for it and then reads
 * the clock itself. */
static fig_status host_stream_mark(fig_dev *dev, fig_dev_stream *stream, int32_t which) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_mark"));
    wait_until_idle(stream);
    stream->marks[which] = fig_clock_ns();
    return FIG_OK;
}

static fig_status host_stream_between(fig_dev *dev, fig_dev_stream *stream, double *ns) {
    *ns = 0;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_between"));
    *ns = (double)(stream->marks[1] - stream->marks[0]);
    return FIG_OK;
}

static fig_status check_stream(const void *stream) {
    if (stream == NULL) return FIG_OK;
    return fig_fail(FIG_INVALID, "host device: stream is %p, it must be NULL", stream);
}

/* Waits at once, so that stream_pass() has nothing left to wait for. */
static fig_status host_stream_fence(fig_dev *dev, fig_dev_stream *stream, uint32_t which) {
    (void)which;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_fence"));
    wait_until_idle(stream);
    return FIG_OK;
}

static fig_status host_stream_pass(fig_dev *dev, fig_dev_stream *stream, uint32_t which) {
    (void)stream, (void)which;
    return count_call(dev, FIG_DRIVER, "stream_pass");
}

/* Compares the thread first: the stream's thread must not read dev->is_calling, which the caller's
 * thread writes. */
static int host_is_calling(const fig_dev *dev, const fig_dev_stream *own) {
    return pthread_equal(pthread_self(), own->thread) || dev->is_calling;
}

static void *host_stream_handle(const fig_dev_stream *own) {
    (void)own;
    return NULL;
}

static fig_status host_stream_capture(fig_dev *dev, void *stream, uint64_t *capture) {
    *capture = 0;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_capture"));
    return check_stream(stream);
}

/* The caller's stream is the calling thread, and all its earlier work has ended. */
static fig_status host_stream_follow(fig_dev *dev, fig_dev_stream *own, void *stream) {
    (void)own;
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_follow"));
    return check_stream(stream);
}

static fig_status host_stream_lead(fig_dev *dev, fig_dev_stream *own, void *stream) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "stream_lead"));
    FIG_TRY(check_stream(stream));
    wait_until_idle(own);
    return FIG_OK;
}

static fig_status host_copy_in(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                               size_t bytes) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "copy_in"));
    wait_until_idle(stream);
    if (bytes > 0) memcpy(to, from, bytes);
    return FIG_OK;
}

/* The stream's thread copies nothing, so the caller's thread waits for it and copies the bytes
 * itself. */
static fig_status host_push(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                            size_t bytes) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "push"));
    wait_until_idle(stream);
    memcpy(to, from, bytes);
    return FIG_OK;
}

static fig_status host_copy_out(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                                size_t bytes) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "copy_out"));
    wait_until_idle(stream);
    if (bytes > 0) memcpy(to, from, bytes);
    return FIG_OK;
}

/* ---- Execs --------------------------------------------------------------------------------- */

static void host_exec_destroy(fig_dev *dev, fig_dev_exec *exec) {
    (void)dev;
    if (exec == NULL) return;
    fig_host_work_finish(&exec->work);
    free(exec);
}

static fig_status make_exec(fig_dev *dev, fig_dev_exec **out, const fig_host_work *work) {
    *out = NULL;
    fig_dev_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) return fig_fail(FIG_NOMEM, "host device: %zu bytes", sizeof *exec);
    fig_status status = fig_host_work_copy(&exec->work, work);
    if (status == FIG_OK && dev->shuffle != 0) status = fig_host_work_add_scratch(&exec->work);
    if (status == FIG_OK) {
        *out = exec;
        return FIG_OK;
    }
    host_exec_destroy(dev, exec);
    return status;
}

static fig_status host_hold(fig_dev *dev) {
    (void)dev;
    return FIG_OK;
}

static void host_let_go(fig_dev *dev) {
    (void)dev;
}

static fig_status host_exec_create(fig_dev *dev, fig_dev_exec **out, const fig_dev_graph *graph) {
    *out = NULL;
    FIG_TRY(count_call(dev, FIG_DRIVER, "exec_create"));
    return make_exec(dev, out, &graph->work);
}

/* First waits until the exec's launches have ended, because they read the params that change. A
 * GPU's driver gives each launch its own copy instead. */
static fig_status host_exec_patch(fig_dev *dev, fig_dev_exec *exec, uint32_t node,
                                  const void *params, size_t params_bytes) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "exec_patch"));
    fig_dev_stream *stream = exec->stream;
    if (stream != NULL) {
        pthread_mutex_lock(&stream->mutex);
        while (exec->users > 0)
            pthread_cond_wait(&stream->ended, &stream->mutex);
        pthread_mutex_unlock(&stream->mutex);
    }
    return fig_host_work_patch(&exec->work, node, params, params_bytes);
}

static fig_status launch(fig_dev_exec *exec, fig_dev_stream *stream) {
    pthread_mutex_lock(&stream->mutex);
    int full = stream->pending == QUEUE_LIMIT;
    if (!full) {
        exec->stream = stream;
        exec->users++;
        stream->queue[(stream->first + stream->pending++) % QUEUE_LIMIT] = exec;
        pthread_cond_signal(&stream->work);
    }
    pthread_mutex_unlock(&stream->mutex);
    if (full) return fig_fail(FIG_BUSY, "host device: %d launches are in flight", QUEUE_LIMIT);
    return FIG_OK;
}

static fig_status host_exec_launch(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream) {
    FIG_TRY_OURS(exec != NULL && (exec->stream == NULL || exec->stream == stream),
                 "host device: an exec of another stream, or none");
    FIG_TRY(count_call(dev, FIG_DRIVER, "exec_launch"));
    return launch(exec, stream);
}

/* ---- Graphs -------------------------------------------------------------------------------- */

static void host_graph_destroy(fig_dev *dev, fig_dev_graph *graph) {
    if (graph == NULL) return;
    host_exec_destroy(dev, graph->exec);
    fig_host_work_finish(&graph->work);
    free(graph);
}

static fig_status host_graph_create(fig_dev *dev, fig_dev_graph **graph) {
    *graph = NULL;
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_create"));
    *graph = calloc(1, sizeof **graph);
    if (*graph == NULL) return fig_fail(FIG_NOMEM, "host device: %zu bytes", sizeof **graph);
    return FIG_OK;
}

static fig_status host_graph_kernel(fig_dev *dev, fig_dev_graph *graph,
                                    const fig_dev_launch *launch, fig_dev_after after) {
    FIG_TRY(fig_device_check_launch(launch));
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_kernel"));
    return fig_host_work_kernel(&graph->work, launch, after);
}

static fig_status host_graph_call(fig_dev *dev, fig_dev_graph *graph, const fig_dev_call *call,
                                  fig_dev_after after) {
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_call"));
    return fig_host_work_call(&graph->work, call, after);
}

/* The host has no captures and only the engine's stream, so the graph always runs at once. */
static fig_status host_graph_append(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own,
                                    void *stream, fig_graph_refs *refs) {
    (void)refs;
    FIG_TRY(count_call(dev, FIG_DRIVER, "graph_append"));
    FIG_TRY(check_stream(stream));
    if (graph->exec == NULL) FIG_TRY(make_exec(dev, &graph->exec, &graph->work));
    return launch(graph->exec, own);
}

const fig_device_api fig_device_host = {
    .name = "host",
    .kind = FIG_DEVICE_HOST,
    .is_absent = host_is_absent,
    .open = host_open,
    .close = host_close,
    .read_traits = host_read_traits,
    .read_kernel_traits = host_read_traits,
    .bind_thread = host_bind_thread,
    .take_images = host_take_images,
    .meet = host_meet,
    .allocate = host_allocate,
    .release = host_release,
    .copy_in = host_copy_in,
    .copy_out = host_copy_out,
    .push = host_push,
    .stream_open = host_stream_open,
    .stream_close = host_stream_close,
    .stream_wait = host_stream_wait,
    .stream_query = host_stream_query,
    .stream_take_fault = host_stream_take_fault,
    .stream_mark = host_stream_mark,
    .stream_between = host_stream_between,
    .stream_fence = host_stream_fence,
    .stream_pass = host_stream_pass,
    .stream_handle = host_stream_handle,
    .stream_capture = host_stream_capture,
    .stream_follow = host_stream_follow,
    .stream_lead = host_stream_lead,
    .is_calling = host_is_calling,
    .hold = host_hold,
    .let_go = host_let_go,
    .graph_create = host_graph_create,
    .graph_destroy = host_graph_destroy,
    .graph_kernel = host_graph_kernel,
    .graph_call = host_graph_call,
    .graph_append = host_graph_append,
    .exec_create = host_exec_create,
    .exec_destroy = host_exec_destroy,
    .exec_patch = host_exec_patch,
    .exec_launch = host_exec_launch,
};
