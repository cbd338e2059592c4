/* cuda_splice.h: puts our nodes into a graph that a caller captures.
 *
 * The driver refuses to launch an exec into a stream that captures (error 900). A graph that holds
 * only our kernels is added node by node (cuda_inlay.h). A graph that holds other nodes becomes a
 * child node: the driver clones it, and the nodes captured next come after the clone. Invariant: a
 * caller's graph to which our nodes were added in either way holds a reference, which lasts as long
 * as that graph and every exec made from it.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_SPLICE_H
#define FIG_ENGINE_CUDA_SPLICE_H

#include "engine/driver/cuda_gpu.h"
#include "engine/seam/graph_refs.h"

/* The capture that a stream is in. */
typedef struct fig_cuda_splice {
    uint64_t capture;   /* the id of the capture; 0: none */
    fig_cu_graph graph; /* the caller's graph, half built */
    /* [tail_count] The nodes after which the next node comes. The driver owns the array, which is
     * valid until the next call on the stream. */
    const fig_cu_node *tails;
    size_t tail_count;
} fig_cuda_splice;

/* Returns FIG_INVALID if the stream belongs to another context, and FIG_ORDER if its capture is
 * broken. */
fig_status fig_cuda_splice_look(fig_cuda_gpu *gpu, fig_cu_stream stream, fig_cuda_splice *splice);
/* Gives the graph a reference. The caller must do so before it adds any of our nodes to the
 * capture: if the reference failed afterwards, nothing would show that the graph holds our
 * nodes. */
fig_status fig_cuda_splice_hold(fig_cuda_gpu *gpu, const fig_cuda_splice *splice,
                                fig_graph_refs *refs);
/* Puts a clone of `child` behind everything that the stream has captured. After a failure the
 * capture may hold nodes that no other node waits for, so the caller must drop the capture. */
fig_status fig_cuda_splice_child(fig_cuda_gpu *gpu, fig_cu_stream stream,
                                 const fig_cuda_splice *splice, fig_cu_graph child);

#endif
