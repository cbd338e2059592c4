/* cuda_splice.h: our nodes in a graph that a caller captures.
 *
 * An exec cannot be launched into a stream that captures (error 900), so a graph becomes a child
 * node there: the driver clones it, and what is captured next comes after it. Invariant: a graph
 * that was given a child holds a reference for as long as it, or an exec made of it, lives.
 *
 * The context is entered. */
#ifndef FIG_ENGINE_CUDA_SPLICE_H
#define FIG_ENGINE_CUDA_SPLICE_H

#include "engine/cuda/cuda_gpu.h"
#include "engine/graph_refs.h"

/* What a stream captures. */
typedef struct fig_cuda_splice {
    uint64_t capture;         /* its number; 0: none */
    fig_cu_graph graph;       /* the caller's, half built */
    const fig_cu_node *tails; /* [tail_count] what comes next comes after; the driver's array, which
                                 lasts until the next call on the stream */
    size_t tail_count;
} fig_cuda_splice;

/* FIG_INVALID: the stream is of another context, or its capture is broken. */
fig_status fig_cuda_splice_look(fig_cuda_gpu *gpu, fig_cu_stream stream, fig_cuda_splice *splice);
/* Puts a clone of `child` behind all that the stream has captured. Where it fails the capture may
 * hold nodes that nothing waits for: the caller is to drop it. */
fig_status fig_cuda_splice_add(fig_cuda_gpu *gpu, fig_cu_stream stream,
                               const fig_cuda_splice *splice, fig_cu_graph child,
                               fig_graph_refs *refs);

#endif
