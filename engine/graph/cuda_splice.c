/* cuda_splice.c: queries a capture, gives its graph a reference, and adds a child node to the
 * graph.
 *
 * Invariant: a user object exists only as long as a graph holds it. */
#include "engine/graph/cuda_splice.h"

#include "planner/status.h"

/* The query asks for the edge data too, because after a programmatic launch by the caller the
 * driver reports the tails only together with the edge data. The result is not needed: a child node
 * has only full edges, and starts after the tails have ended. */
fig_status fig_cuda_splice_look(fig_cuda_gpu *gpu, fig_cu_stream stream, fig_cuda_splice *splice) {
    fig_cu_context context = NULL;
    const fig_cu_edge *edges = NULL;
    unsigned int capture_status = 0;
    *splice = (fig_cuda_splice){0};
    CU_TRY(gpu, StreamGetCtx, stream, &context);
    if (context != gpu->context)
        return fig_fail(FIG_INVALID,
                        "cuda device: the stream given is not of GPU %d's primary context",
                        gpu->ordinal);
    fig_cuda_splice seen = {0};
    CU_TRY(gpu, StreamGetCaptureInfo, stream, &capture_status, &seen.capture, &seen.graph,
           &seen.tails, &edges, &seen.tail_count);
    if (capture_status == FIG_CU_CAPTURE_STATUS_NONE) return FIG_OK;
    if (capture_status != FIG_CU_CAPTURE_STATUS_ACTIVE)
        return fig_fail(FIG_ORDER, "cuda device: the stream's capture is broken");
    *splice = seen;
    return FIG_OK;
}

/* Moves the object's only reference to the graph. If that fails, releases the object. */
fig_status fig_cuda_splice_hold(fig_cuda_gpu *gpu, const fig_cuda_splice *splice,
                                fig_graph_refs *refs) {
    fig_cu_object object = NULL;
    fig_graph_refs_take(refs);
    fig_cu_result result = gpu->cu->UserObjectCreate(&object, refs, fig_graph_refs_drop, 1,
                                                     FIG_CU_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != FIG_CU_SUCCESS) {
        fig_graph_refs_drop(refs);
        return fig_cuda_gpu_refuse(gpu, result, "cuUserObjectCreate");
    }
    result = gpu->cu->GraphRetainUserObject(splice->graph, object, 1, FIG_CU_OBJECT_MOVE);
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    gpu->cu->UserObjectRelease(object, 1); /* this calls fig_graph_refs_drop() */
    return fig_cuda_gpu_refuse(gpu, result, "cuGraphRetainUserObject");
}

fig_status fig_cuda_splice_child(fig_cuda_gpu *gpu, fig_cu_stream stream,
                                 const fig_cuda_splice *splice, fig_cu_graph child) {
    fig_cu_node node = NULL;
    CU_TRY(gpu, GraphAddChildGraphNode, &node, splice->graph, splice->tails, splice->tail_count,
           child);
    CU_TRY(gpu, StreamUpdateCaptureDependencies, stream, &node, NULL, 1,
           FIG_CU_CAPTURE_SET_DEPENDENCIES);
    return FIG_OK;
}
