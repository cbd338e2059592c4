/* cuda_splice.c: look into a capture, and put a child node into it.
 *
 * Invariant: a user object exists only as long as some graph holds it. */
#include "engine/cuda/cuda_splice.h"

#include "planner/status.h"

/* Edges' data is asked for, since without it the driver refuses to show tails behind a programmatic
 * launch of the caller's; a child node takes none, and comes after their end. */
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

/* The graph has the object's one reference, or nobody has it. */
static fig_status hold_references(fig_cuda_gpu *gpu, fig_cu_graph graph, fig_graph_refs *refs) {
    fig_cu_object object = NULL;
    fig_graph_refs_take(refs);
    fig_cu_result result = gpu->cu->UserObjectCreate(&object, refs, fig_graph_refs_drop, 1,
                                                     FIG_CU_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != FIG_CU_SUCCESS) {
        fig_graph_refs_drop(refs);
        return fig_cuda_gpu_refuse(gpu, result, "cuUserObjectCreate");
    }
    result = gpu->cu->GraphRetainUserObject(graph, object, 1, FIG_CU_OBJECT_MOVE);
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    gpu->cu->UserObjectRelease(object, 1); /* which calls fig_graph_refs_drop */
    return fig_cuda_gpu_refuse(gpu, result, "cuGraphRetainUserObject");
}

/* The reference comes first: a graph that holds nodes without one could not be told from none. */
fig_status fig_cuda_splice_add(fig_cuda_gpu *gpu, fig_cu_stream stream,
                               const fig_cuda_splice *splice, fig_cu_graph child,
                               fig_graph_refs *refs) {
    fig_cu_node node = NULL;
    FIG_TRY(hold_references(gpu, splice->graph, refs));
    CU_TRY(gpu, GraphAddChildGraphNode, &node, splice->graph, splice->tails, splice->tail_count,
           child);
    CU_TRY(gpu, StreamUpdateCaptureDependencies, stream, &node, NULL, 1,
           FIG_CU_CAPTURE_SET_DEPENDENCIES);
    return FIG_OK;
}
