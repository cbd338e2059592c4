/* device.h: the seam between an engine and the device that it runs on.
 *
 * A device is one record of functions, and no function is optional. All functions share a contract.
 * Every function sets its outputs on every path. A function that fails holds no resources
 * afterwards, and fig_message() gives the reason. FIG_LOST is sticky; after FIG_LOST, `close` may
 * still be called. Only the device that made a handle may free that handle. `close`, `release` and
 * the functions that destroy accept NULL or a zeroed block, and never fail. Only one thread at a
 * time may use a device, with one exception: meanwhile a second thread may create, patch and
 * destroy its own graphs and execs.
 *
 * A stream runs its launches in order, asynchronously to the caller. A graph describes work for a
 * stream; an exec is a graph in launchable form. */
#ifndef FIG_ENGINE_DEVICE_H
#define FIG_ENGINE_DEVICE_H

#include "engine/seam/graph_refs.h"
#include "include/figraph.h"
#include "kernels/table/families.h"
#include "kernels/table/images.h"
#include "planner/status.h"

typedef struct fig_dev fig_dev;
typedef struct fig_dev_stream fig_dev_stream;
typedef struct fig_dev_graph fig_dev_graph; /* being built */
typedef struct fig_dev_exec fig_dev_exec;   /* launchable */

/* A piece of memory. The workspace and the plan, for example, are FIG_MEMORY_DEVICE. The ring is
 * FIG_MEMORY_PINNED, on the NUMA node that numa_node of the options names. */
typedef struct fig_block {
    void *device;
    void *host; /* NULL unless pinned */
    size_t bytes;
    fig_memory kind;
} fig_block;

/* One kernel launch with its addresses filled in. The device makes the tensor maps in the params.
 * graph_kernel copies the params before it returns. */
typedef struct fig_dev_launch {
    fig_op op;
    /* index in the operation's list of families; the host's reference kernel serves all families */
    uint32_t family;
    uint32_t grid[3], block[3], shared_bytes;
    const void *params;
    size_t params_bytes;
    int is_leaf;  /* 1: no other node may wait for this launch */
    int is_plain; /* 1: the launch begins only after its predecessors have ended */
} fig_dev_launch;

/* Checks a launch. Both devices call this before they use the launch's fields as indices. */
static inline fig_status fig_device_check_launch(const fig_dev_launch *launch) {
    FIG_TRY_OURS((uint32_t)launch->op < FIG_OP_KERNEL_COUNT &&
                     launch->params_bytes == fig_kernel_table[launch->op].params_bytes &&
                     fig_families_of(launch->op, launch->family) != NULL,
                 "device: a launch of operation %u, family %u, with %zu bytes of params",
                 (unsigned)launch->op, (unsigned)launch->family, launch->params_bytes);
    return FIG_OK;
}

/* A call node: work that the caller's callback does. graph_call copies args and the arrays that
 * args points to. The device fills in args.rows and args.stream. The host device runs the callback
 * in every step; it takes the rows from `plan`, the device address of the step's plan. The cuda
 * device runs the callback once, while it makes the node. It gives the callback the bucket's rows,
 * and a stream that captures the work that the callback enqueues. */
typedef struct fig_dev_call {
    fig_callback callback;
    void *user;
    const char *name; /* outlives the graph and its execs */
    fig_call_args args;
    int32_t read_count, write_count;
    const void *plan;
    uint32_t queries_offset; /* offset of the plan's query tokens; 0: there are none in the plan */
} fig_dev_call;

/* The predecessors of a node, as numbers of nodes that the graph already has. */
typedef struct fig_dev_after {
    const uint32_t *nodes;
    uint32_t count;
} fig_dev_after;

/* Input of `meet`: the facts about an engine that its collectives need. */
typedef struct fig_dev_meeting {
    struct fig_ranks *ranks; /* NULL: the engine is the only rank */
    uint64_t byte_limit;     /* size of the largest message that a rank sends */
    /* [exec_count] for each exec, the bucket (from 0) that error messages name */
    const uint32_t *exec_buckets;
    uint32_t exec_count;
} fig_dev_meeting;

/* Result of `meet`. */
typedef struct fig_dev_met {
    /* Data to which the params of collectives point; the device owns it until `close`. NULL: the
     * ranks have not met. */
    void *peers;
    int32_t ranks;   /* number of ranks in the group */
    uint32_t routes; /* bits FIG_ROUTE_*: the routes that messages may take */
} fig_dev_met;

typedef struct fig_device_api {
    const char *name; /* "host", "cuda" */
    fig_device kind;

    /* Returns 1 if this machine has no device of this kind; a caller that named no device then gets
     * another kind. Returns 0 if the machine has such a device, even if the library cannot use
     * it. */
    int (*is_absent)(void);
    /* Returns FIG_NO_DEVICE if there is no device that this library can use, and FIG_INVALID if
     * numa_node is not a node of this machine. */
    fig_status (*open)(fig_dev **dev, const fig_engine_options *options);
    void (*close)(fig_dev *dev);
    void (*read_traits)(const fig_dev *dev, fig_traits *traits); /* never fails */
    /* Gives the same traits, except that the compute capability is that for which the images in use
     * were compiled. Kernels may rely only on that capability (see fig_family). */
    void (*read_kernel_traits)(const fig_dev *dev, fig_traits *traits);
    /* Serves fig_engine_bind_thread(). Any thread may call it. */
    fig_status (*bind_thread)(const fig_dev *dev);

    /* Makes the device use these kernel images instead of the library's own. The engine calls it
     * before it makes the first graph, and keeps the images until after `close`. Returns
     * FIG_UNSUPPORTED if the device runs no images. */
    fig_status (*take_images)(fig_dev *dev, const fig_image_set *images);

    /* Connects the ranks. The engine calls it once, before a graph gets a collective. If the engine
     * has a group of ranks, all ranks must call it. If a collective fails later, the device reports
     * a fault of the stream's work, and the group is lost. */
    fig_status (*meet)(fig_dev *dev, const fig_dev_meeting *meeting, fig_dev_met *met);

    /* Allocates a block, zeroed and 256-byte aligned, from the allocator in the options if there is
     * one. Before the caller releases a block, it must wait for launched work that uses the
     * block. */
    fig_status (*allocate)(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes);
    void (*release)(fig_dev *dev, fig_block *block);

    /* A copy runs behind all work launched on the stream and before all work launched later. The
     * copy is complete when the call returns. */
    fig_status (*copy_in)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                          size_t bytes);
    fig_status (*copy_out)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                           size_t bytes);

    /* Like copy_in, but returns at once. `from` is pinned or device memory, which the caller must
     * not change until the stream has passed the copy. */
    fig_status (*push)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                       size_t bytes);

    fig_status (*stream_open)(fig_dev *dev, fig_dev_stream **stream);
    /* Waits for everything launched on the stream, then frees the stream. */
    void (*stream_close)(fig_dev *dev, fig_dev_stream *stream);
    /* Returns FIG_OK when the stream is idle, and FIG_TIMEOUT if the stream still runs after
     * timeout_us; a negative timeout waits forever. A fault of the work itself does not make the
     * wait fail; stream_take_fault returns it. */
    fig_status (*stream_wait)(fig_dev *dev, fig_dev_stream *stream, int64_t timeout_us);
    /* Never blocks. *pending: the number of execs that were launched and have not ended. A device
     * that cannot count them gives the number of execs launched since the stream was last idle.
     * *fault: the first fault that stream_take_fault has not yet returned. */
    fig_status (*stream_query)(fig_dev *dev, fig_dev_stream *stream, int64_t *pending,
                               fig_status *fault);
    /* Returns the first fault of work on the stream and clears it; fig_message() describes it. */
    fig_status (*stream_take_fault)(fig_dev *dev, fig_dev_stream *stream);
    /* A stream has two marks, 0 and 1. The stream passes a mark when everything launched before the
     * mark has ended; setting a mark again moves it. stream_between needs both marks set, waits for
     * mark 1, and gives the time from passing mark 0 to passing mark 1. On the host, stream_mark
     * waits until the mark is passed. */
    fig_status (*stream_mark)(fig_dev *dev, fig_dev_stream *stream, int32_t which);
    fig_status (*stream_between)(fig_dev *dev, fig_dev_stream *stream, double *ns);
    /* A stream has two fences, 0 and 1. The stream passes a fence when everything launched before
     * the fence has ended; setting a fence again moves it. stream_pass waits until the stream has
     * passed the fence, and returns at once for a fence that was never set. */
    fig_status (*stream_fence)(fig_dev *dev, fig_dev_stream *stream, uint32_t which);
    fig_status (*stream_pass)(fig_dev *dev, fig_dev_stream *stream, uint32_t which);

    /* Callers pass their streams as handles, and may also pass the handle of `own`. The host device
     * has only its own stream, and the handle of that stream is NULL. A function that takes a
     * handle returns FIG_INVALID if the device has no such stream. */
    void *(*stream_handle)(const fig_dev_stream *own);
    /* Gives the number of the capture that a stream is in, or 0 if the stream is not capturing.
     * Each capture has its own number. */
    fig_status (*stream_capture)(fig_dev *dev, void *stream, uint64_t *capture);
    /* After stream_follow, work that is launched on `own` later runs after all work that the
     * caller's stream held at the call. After stream_lead, work that the caller enqueues on their
     * stream later runs after all work that was launched on `own` before the call. On the host the
     * caller's stream is the calling thread, so stream_lead waits. Both return FIG_ORDER if one of
     * the two streams is capturing. */
    fig_status (*stream_follow)(fig_dev *dev, fig_dev_stream *own, void *stream);
    fig_status (*stream_lead)(fig_dev *dev, fig_dev_stream *own, void *stream);

    /* Returns 1 if the calling thread is inside a callback that this device has called. */
    int (*is_calling)(const fig_dev *dev, const fig_dev_stream *own);

    /* hold prepares the device once for the many calls that make a graph and its exec; let_go ends
     * this. The thread that makes the graph calls both. */
    fig_status (*hold)(fig_dev *dev);
    void (*let_go)(fig_dev *dev);

    /* Nodes are numbered from 0 in the order in which they are added. graph_call returns
     * FIG_CALLBACK if the callback failed or broke its capture; the graph can then only be
     * destroyed. */
    fig_status (*graph_create)(fig_dev *dev, fig_dev_graph **graph);
    void (*graph_destroy)(fig_dev *dev, fig_dev_graph *graph);
    fig_status (*graph_kernel)(fig_dev *dev, fig_dev_graph *graph, const fig_dev_launch *launch,
                               fig_dev_after after);
    fig_status (*graph_call)(fig_dev *dev, fig_dev_graph *graph, const fig_dev_call *call,
                             fig_dev_after after);

    /* Enqueues the work of a graph on one of the caller's streams. If that stream is capturing, the
     * work becomes part of the capture, which then holds a reference in `refs`; if the call fails,
     * the caller must drop the capture. If the stream is not capturing, the work runs once, behind
     * everything that was launched on `own` before and before everything launched there later. A
     * wait for `own` therefore also waits for this work. A graph can be appended any number of
     * times. The engine adds no node to a graph after the first append, and destroys the graph only
     * when `own` is idle. */
    fig_status (*graph_append)(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own,
                               void *stream, fig_graph_refs *refs);

    /* An exec does not need its graph after exec_create, and is launched on only one stream.
     * exec_patch rewrites the params of one kernel node for all later launches, but never the
     * node's grid, family or entry. A call node cannot be patched; the engine makes the exec again
     * instead. */
    fig_status (*exec_create)(fig_dev *dev, fig_dev_exec **exec, const fig_dev_graph *graph);
    /* All launches of the exec must have ended. */
    void (*exec_destroy)(fig_dev *dev, fig_dev_exec *exec);
    fig_status (*exec_patch)(fig_dev *dev, fig_dev_exec *exec, uint32_t node, const void *params,
                             size_t params_bytes);
    fig_status (*exec_launch)(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream); /* hot */
} fig_device_api;

extern const fig_device_api fig_device_host;
extern const fig_device_api fig_device_cuda;

#endif
