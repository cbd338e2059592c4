/* cuda_probe.c: small graphs and captures that show how a driver behaves.
 *
 * Invariant: whatever the driver returns, every capture that was begun is ended, and every object
 * that was made is destroyed. */
#include "engine/cuda/cuda_probe.h"

#include "engine/graph/cuda_splice.h"
#include "engine/graph/cuda_work.h"
#include "planner/status.h"

/* ---- Edges --------------------------------------------------------------------------------- */

/*        full ──→ 1 ── programmatic ──┐
 *     0 ─┤                            ├─→ 3
 *        programmatic ──→ 2 ── full ──┘      */
enum { KERNELS = 4, EDGES = 4 };
static const struct {
    uint8_t from, to, kind;
} edges[EDGES] = {{0, 1, FIG_CU_EDGE_FULL},
                  {0, 2, FIG_CU_EDGE_PROGRAMMATIC},
                  {1, 3, FIG_CU_EDGE_PROGRAMMATIC},
                  {2, 3, FIG_CU_EDGE_FULL}};

/* The probe never launches these kernels, so their params are empty. */
static fig_status add_kernels(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels) {
    static const fig_fetch_params params;
    const fig_dev_launch launch = {.op = FIG_OP_FETCH,
                                   .grid = {1, 1, 1},
                                   .block = {32, 1, 1},
                                   .params = &params,
                                   .params_bytes = sizeof params,
                                   .is_leaf = 1};
    for (int i = 0; i < KERNELS; i++)
        FIG_TRY(fig_cuda_work_kernel(work, gpu, kernels, &launch, (fig_dev_after){NULL, 0}));
    return FIG_OK;
}

static fig_status add_edges(const fig_cuda_work *work, fig_cuda_gpu *gpu, int together) {
    fig_cu_node from[EDGES], to[EDGES];
    fig_cu_edge data[EDGES] = {{0}};
    for (int i = 0; i < EDGES; i++) {
        from[i] = work->nodes[edges[i].from].node;
        to[i] = work->nodes[edges[i].to].node;
        data[i].from_port = data[i].type = edges[i].kind;
    }
    const size_t at_once = together ? EDGES : 1;
    for (size_t i = 0; i < EDGES; i += at_once)
        CU_TRY(gpu, GraphAddDependencies, work->graph, from + i, to + i, data + i, at_once);
    return FIG_OK;
}

static int kind_of(const fig_cuda_work *work, fig_cu_node from, fig_cu_node to) {
    for (int i = 0; i < EDGES; i++)
        if (work->nodes[edges[i].from].node == from && work->nodes[edges[i].to].node == to)
            return edges[i].kind;
    return -1;
}

static fig_status read_edges(const fig_cuda_work *work, fig_cuda_gpu *gpu, int *kept) {
    fig_cu_node from[EDGES], to[EDGES];
    fig_cu_edge data[EDGES];
    size_t count = 0;
    CU_TRY(gpu, GraphGetEdges, work->graph, NULL, NULL, NULL, &count);
    *kept = count == EDGES;
    if (!*kept) return FIG_OK;
    CU_TRY(gpu, GraphGetEdges, work->graph, from, to, data, &count);
    for (int i = 0; i < EDGES; i++)
        *kept = *kept && data[i].type == kind_of(work, from[i], to[i]);
    return FIG_OK;
}

fig_status fig_cuda_probe_edges(fig_cuda_gpu *gpu, int together, int *kept) {
    fig_cuda_kernels kernels = {0};
    fig_cuda_work *work;
    *kept = 0;
    FIG_TRY(fig_cuda_work_create(&work, gpu));
    fig_status status = add_kernels(work, gpu, &kernels);
    if (status == FIG_OK) status = add_edges(work, gpu, together);
    if (status == FIG_OK) status = read_edges(work, gpu, kept);
    fig_cuda_work_release(work, gpu);
    fig_cuda_kernels_finish(&kernels, gpu);
    return status;
}

/* ---- Captures ------------------------------------------------------------------------------ */

/* A graph of one empty node. */
static fig_status make_empty(fig_cuda_work **out, fig_cuda_gpu *gpu) {
    fig_cu_node node;
    FIG_TRY(fig_cuda_work_create(out, gpu));
    fig_cu_result result = gpu->cu->GraphAddEmptyNode(&node, (*out)->graph, NULL, 0);
    if (result == FIG_CU_SUCCESS) return FIG_OK;
    fig_cuda_work_release(*out, gpu);
    *out = NULL;
    return fig_cuda_gpu_refuse(gpu, result, "cuGraphAddEmptyNode");
}

static fig_status launch_into_capture(fig_cuda_gpu *gpu, fig_cu_exec exec, int *taken) {
    fig_cu_graph graph = NULL;
    CU_TRY(gpu, StreamBeginCapture, gpu->aside, FIG_CU_CAPTURE_RELAXED);
    const fig_cu_result result = gpu->cu->GraphLaunch(exec, gpu->aside);
    /* if the launch was refused, the capture is broken */
    gpu->cu->StreamEndCapture(gpu->aside, &graph);
    if (graph != NULL) gpu->cu->GraphDestroy(graph);
    *taken = result == FIG_CU_SUCCESS;
    if (*taken || result == FIG_CU_CAPTURE_UNSUPPORTED) return FIG_OK;
    return fig_cuda_gpu_refuse(gpu, result, "cuGraphLaunch into a capture");
}

fig_status fig_cuda_probe_launch(fig_cuda_gpu *gpu, int *taken) {
    fig_cuda_work *work;
    fig_cu_exec exec;
    *taken = 0;
    FIG_TRY(make_empty(&work, gpu));
    fig_status status = fig_cuda_work_instantiate(work, gpu, &exec);
    if (status == FIG_OK) {
        status = launch_into_capture(gpu, exec, taken);
        gpu->cu->GraphExecDestroy(exec);
        fig_cuda_work_release(work, gpu);
    }
    fig_cuda_work_release(work, gpu);
    return status;
}

static fig_status splice(fig_cuda_gpu *gpu, fig_cu_graph child, fig_graph_refs *refs) {
    fig_cuda_splice seen;
    FIG_TRY(fig_cuda_splice_look(gpu, gpu->aside, &seen));
    FIG_TRY(fig_cuda_splice_hold(gpu, &seen, refs));
    return fig_cuda_splice_child(gpu, gpu->aside, &seen, child);
}

static fig_status capture(fig_cuda_gpu *gpu, fig_cu_graph child, fig_graph_refs *refs,
                          fig_cu_graph *graph) {
    *graph = NULL;
    CU_TRY(gpu, StreamBeginCapture, gpu->aside, FIG_CU_CAPTURE_RELAXED);
    const fig_status status = splice(gpu, child, refs);
    const fig_cu_result ended = gpu->cu->StreamEndCapture(gpu->aside, graph);
    if (status != FIG_OK || ended == FIG_CU_SUCCESS) return status;
    return fig_cuda_gpu_refuse(gpu, ended, "cuStreamEndCapture");
}

static fig_status launch(fig_cuda_gpu *gpu, fig_cu_graph graph) {
    fig_cu_instantiate_params params = {.flags = 0};
    fig_cu_exec exec = NULL;
    CU_TRY(gpu, GraphInstantiateWithParams, &exec, graph, &params);
    const char *call = "cuGraphLaunch";
    fig_cu_result result = gpu->cu->GraphLaunch(exec, gpu->aside);
    if (result == FIG_CU_SUCCESS) {
        call = "cuStreamSynchronize";
        result = gpu->cu->StreamSynchronize(gpu->aside);
    }
    gpu->cu->GraphExecDestroy(exec);
    return result == FIG_CU_SUCCESS ? FIG_OK : fig_cuda_gpu_refuse(gpu, result, call);
}

/* The driver drops its reference some time after the graph is destroyed. The side that drops the
 * last reference frees the object. */
fig_status fig_cuda_probe_splice(fig_cuda_gpu *gpu) {
    fig_cu_graph graph = NULL;
    fig_cuda_work *work;
    fig_graph_refs *refs = fig_graph_refs_create();
    if (refs == NULL) return fig_fail(FIG_NOMEM, "cuda device: a reference count");
    fig_status status = make_empty(&work, gpu);
    if (status == FIG_OK) status = capture(gpu, work->graph, refs, &graph);
    if (status == FIG_OK) status = launch(gpu, graph);
    if (graph != NULL) gpu->cu->GraphDestroy(graph);
    fig_cuda_work_release(work, gpu);
    fig_graph_refs_drop(refs);
    return status;
}
