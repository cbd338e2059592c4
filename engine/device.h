/* device.h: the one seam. What an engine asks of the machine it runs on.
 *
 * No slot is optional. Contract for all: outs are written on every path; on failure nothing is held
 * and fig_message() says why; FIG_LOST is sticky and leaves close callable. A handle is made and
 * freed by the same device; close, destroy and release take NULL or a zeroed block and never fail.
 * One thread at a time per device; but two may make graphs and execs, patch them and destroy what
 * they made, each its own, while one of them does all else.
 *
 * A stream runs its launches in order and apart from the caller; graphs hold work for it, execs are
 * graphs made launchable. */
#ifndef FIG_ENGINE_DEVICE_H
#define FIG_ENGINE_DEVICE_H

#include "engine/graph_refs.h"
#include "include/figraph.h"
#include "kernels/images.h"

typedef struct fig_dev fig_dev;
typedef struct fig_dev_stream fig_dev_stream;
typedef struct fig_dev_graph fig_dev_graph; /* being built */
typedef struct fig_dev_exec fig_dev_exec;   /* launchable */

/* FIG_MEMORY_DEVICE: workspace, plan. FIG_MEMORY_PINNED: the ring, where the options' numa_node
 * says. */
typedef struct fig_block {
    void *device;
    void *host; /* NULL unless pinned */
    size_t bytes;
    fig_memory kind;
} fig_block;

/* One kernel launch with its addresses filled in; tensor maps in its params are the device's to
 * make. params are copied before return. */
typedef struct fig_dev_launch {
    fig_op op;
    uint32_t family; /* index into the operation's; the host runs the one twin of all of them */
    uint32_t grid[3], block[3], shared_bytes;
    const void *params;
    size_t params_bytes;
    int is_leaf;  /* 1: no other node comes after it, and none is to wait for it */
    int is_plain; /* 1: it does not begin before what it comes after has ended */
} fig_dev_launch;

/* One call of a callback; args and what it points to are copied before return. args->rows and
 * stream are the device's to fill. The host calls back in every step: its rows come from `plan`,
 * the device's address of the step's plan. cuda calls back once, while the node is made, with the
 * bucket's rows and a stream that captures what the callback enqueues. */
typedef struct fig_dev_call {
    fig_callback callback;
    void *user;
    const char *name; /* outlives the graph and its execs */
    fig_call_args args;
    int32_t read_count, write_count;
    const void *plan;
} fig_dev_call;

/* Nodes made before, by number, that a node comes after. */
typedef struct fig_dev_after {
    const uint32_t *nodes;
    uint32_t count;
} fig_dev_after;

/* What a step's collectives need to know of the engine that they are of. */
typedef struct fig_dev_meeting {
    struct fig_ranks *ranks;      /* NULL: it is alone */
    uint64_t byte_limit;          /* of the largest message that a rank gives */
    const uint32_t *exec_buckets; /* [exec_count] the bucket, from 0, that a sentence names */
    uint32_t exec_count;
} fig_dev_meeting;

/* What came of it. */
typedef struct fig_dev_met {
    void *peers;   /* what collectives' params point to, the device's until close; NULL: nobody was
                        met */
    int32_t ranks; /* of the group */
    uint32_t routes; /* FIG_ROUTE_* that messages may take */
} fig_dev_met;

typedef struct fig_device_api {
    const char *name; /* "host", "cuda" */
    fig_device kind;

    /* 1: this machine has no such device at all, so that another will do for a caller who named
     * none. 0: it has one, however unusable. */
    int (*is_absent)(void);
    /* FIG_NO_DEVICE: there is none, or none that this library can use. FIG_INVALID: numa_node is no
     * node of this machine. */
    fig_status (*open)(fig_dev **dev, const fig_engine_options *options);
    void (*close)(fig_dev *dev);
    void (*read_traits)(const fig_dev *dev, fig_traits *traits); /* never fails */
    /* The same as kernels may rely on them: with the compute capability that the images in use are
     * compiled for, as fig_family says. */
    void (*read_kernel_traits)(const fig_dev *dev, fig_traits *traits);
    /* As fig_engine_bind_thread. Any thread may call. */
    fig_status (*bind_thread)(const fig_dev *dev);

    /* Before there is a graph: images that stand in the place of the library's own, and outlast the
     * device. FIG_UNSUPPORTED: it runs none. */
    fig_status (*take_images)(fig_dev *dev, const fig_image_set *images);

    /* Once, before a graph has a collective. Collective itself where there are ranks. A collective
     * that fails is a fault of the stream's work; after it the group is lost. */
    fig_status (*meet)(fig_dev *dev, const fig_dev_meeting *meeting, fig_dev_met *met);

    /* Blocks come zeroed and 256-byte aligned, lent by the caller where options say so. Releasing
     * memory that launched work uses is the caller's fault: wait first. */
    fig_status (*allocate)(fig_dev *dev, fig_block *block, fig_memory kind, size_t bytes);
    void (*release)(fig_dev *dev, fig_block *block);

    /* A copy comes after all work launched on the stream and before all launched later; `from` is
     * read, `to` written before return. */
    fig_status (*copy_in)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                          size_t bytes);
    fig_status (*copy_out)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                           size_t bytes);

    /* A copy in that returns at once: `from` is pinned or the device's, and left alone until the
     * stream is past it. */
    fig_status (*push)(fig_dev *dev, fig_dev_stream *stream, void *to, const void *from,
                       size_t bytes);

    fig_status (*stream_open)(fig_dev *dev, fig_dev_stream **stream);
    void (*stream_close)(fig_dev *dev, fig_dev_stream *stream); /* ends what was launched first */
    /* FIG_OK: idle. FIG_TIMEOUT: still running; below 0 there is no bound. A fault of the work
     * itself is not the wait's: it stays until it is taken. */
    fig_status (*stream_wait)(fig_dev *dev, fig_dev_stream *stream, int64_t timeout_us);
    /* Execs launched and not ended, or, where the device cannot tell, launched since the stream was
     * last idle; *fault: the first not taken. Never blocks. */
    fig_status (*stream_query)(fig_dev *dev, fig_dev_stream *stream, int64_t *pending,
                               fig_status *fault);
    /* The first fault of work on the stream, once, its sentence in this thread's message. */
    fig_status (*stream_take_fault)(fig_dev *dev, fig_dev_stream *stream);
    /* Two marks, 0 and 1, that a stream passes once all launched before them has ended; a mark that
     * is set again moves. between waits for mark 1 and says how long after mark 0 it was passed;
     * both were set. The host sets one only when it is passed. */
    fig_status (*stream_mark)(fig_dev *dev, fig_dev_stream *stream, int32_t which);
    fig_status (*stream_between)(fig_dev *dev, fig_dev_stream *stream, double *ns);
    /* Two fences, 0 and 1: the stream passes one once all launched before it has ended, and a fence
     * that is set again moves. pass waits for that; a fence that was never set is passed. */
    fig_status (*stream_fence)(fig_dev *dev, fig_dev_stream *stream, uint32_t which);
    fig_status (*stream_pass)(fig_dev *dev, fig_dev_stream *stream, uint32_t which);

    /* A stream of the caller's goes by its handle, which may be `own`'s. The host has no stream but
     * its own, whose handle is NULL. FIG_INVALID: the device has no such stream. */
    void *(*stream_handle)(const fig_dev_stream *own);
    /* The number of the capture that a stream is in, which no other capture has; 0: none. */
    fig_status (*stream_capture)(fig_dev *dev, void *stream, uint64_t *capture);
    /* follow: what is launched on `own` later comes after all that the caller's stream holds now.
     * lead: what the caller puts there later comes after all launched on `own`; on the host, where
     * that is the calling thread, it waits. FIG_ORDER: one of the two captures. */
    fig_status (*stream_follow)(fig_dev *dev, fig_dev_stream *own, void *stream);
    fig_status (*stream_lead)(fig_dev *dev, fig_dev_stream *own, void *stream);

    /* 1: the calling thread is inside of a callback that this device made. */
    int (*is_calling)(const fig_dev *dev, const fig_dev_stream *own);

    /* Between the two a thread makes graphs and execs, many calls one behind the other, for which
     * the device is made ready once. */
    fig_status (*hold)(fig_dev *dev);
    void (*let_go)(fig_dev *dev);

    /* Nodes are numbered from 0 as they are added. FIG_CALLBACK from graph_call: the callback
     * failed or broke its capture; the graph can then only be destroyed. */
    fig_status (*graph_create)(fig_dev *dev, fig_dev_graph **graph);
    void (*graph_destroy)(fig_dev *dev, fig_dev_graph *graph);
    fig_status (*graph_kernel)(fig_dev *dev, fig_dev_graph *graph, const fig_dev_launch *launch,
                               fig_dev_after after);
    fig_status (*graph_call)(fig_dev *dev, fig_dev_graph *graph, const fig_dev_call *call,
                             fig_dev_after after);

    /* Enqueues what a graph holds on a stream of the caller's: where that captures, as part of the
     * capture, which from then on holds a reference; else once, at once, behind all launched on
     * `own` and before all launched there later, so that who waits for `own` waits for it. Any
     * number of times; no node is added after the first, and it has ended on `own` before it is
     * destroyed. Where it fails in a capture, that is to be dropped. */
    fig_status (*graph_append)(fig_dev *dev, fig_dev_graph *graph, fig_dev_stream *own,
                               void *stream, fig_graph_refs *refs);

    /* An exec needs its graph no more and is launched on one stream only. patch rewrites one
     * kernel node's params for launches from here on, never its grid, family or entry; calls are
     * made anew with their graph. */
    fig_status (*exec_create)(fig_dev *dev, fig_dev_exec **exec, const fig_dev_graph *graph);
    void (*exec_destroy)(fig_dev *dev, fig_dev_exec *exec); /* only once it has ended everywhere */
    fig_status (*exec_patch)(fig_dev *dev, fig_dev_exec *exec, uint32_t node, const void *params,
                             size_t params_bytes);
    fig_status (*exec_launch)(fig_dev *dev, fig_dev_exec *exec, fig_dev_stream *stream); /* hot */
} fig_device_api;

extern const fig_device_api fig_device_host;
extern const fig_device_api fig_device_cuda;

#endif
