/* cuda_work.c: adds nodes and edges to a CUgraph, captures calls into the CUgraph, and makes execs
 * from it.
 *
 * Invariant: edges are added one at a time. Some drivers apply the first edge's type to every edge
 * that the same call adds, which would lose programmatic edges or create wrong ones. Before a graph
 * becomes an exec, this file checks that the driver holds as many programmatic edges as were
 * added. */
#include "engine/graph/cuda_work.h"

#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/cuda_maps.h"
#include "planner/size.h"
#include "planner/status.h"

/* ---- Life ---------------------------------------------------------------------------------- */

fig_status fig_cuda_work_create(fig_cuda_work **out, fig_cuda_gpu *gpu) {
    *out = NULL;
    fig_cuda_work *work = calloc(1, sizeof *work);
    if (work == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes", sizeof *work);
    work->users = 1;
    fig_cu_result result = gpu->cu->GraphCreate(&work->graph, 0);
    if (result != FIG_CU_SUCCESS) {
        free(work);
        return fig_cuda_gpu_refuse(gpu, result, "cuGraphCreate");
    }
    *out = work;
    return FIG_OK;
}

void fig_cuda_work_enter(fig_cuda_work *work, fig_cu_graph graph, const fig_cuda_tail *tails,
                         uint32_t tail_count) {
    *work =
        (fig_cuda_work){.graph = graph, .tails = tails, .tail_count = tail_count, .is_callers = 1};
}

void fig_cuda_work_finish(fig_cuda_work *work) {
    free(work->nodes);
    free(work->places);
    free(work->before);
    free(work->before_nodes);
}

void fig_cuda_work_release(fig_cuda_work *work, const fig_cuda_gpu *gpu) {
    if (work == NULL || --work->users > 0) return;
    if (work->graph != NULL) gpu->cu->GraphDestroy(work->graph);
    fig_cuda_work_finish(work);
    free(work);
}

static fig_status check_whole(const fig_cuda_work *work) {
    if (!work->broken) return FIG_OK;
    return fig_fail(FIG_ORDER, "cuda device: a call that failed has left the graph half-done");
}

/* Makes room for one more node, and in `before` for the handles of all nodes. */
static fig_status reserve(fig_cuda_work *work) {
    FIG_TRY(check_whole(work));
    if (work->node_count < work->node_capacity) return FIG_OK;
    size_t capacity = work->node_capacity == 0 ? 64 : (size_t)work->node_capacity * 2;
    fig_cuda_node *nodes = realloc(work->nodes, capacity * sizeof *nodes);
    if (nodes != NULL) work->nodes = nodes;
    fig_cuda_lane_place *places = realloc(work->places, capacity * sizeof *places);
    if (places != NULL) work->places = places;
    fig_cu_node *before = realloc(work->before, (capacity + 1) * sizeof(fig_cu_node));
    if (before != NULL) work->before = before;
    uint32_t *before_nodes = realloc(work->before_nodes, (capacity + 1) * sizeof *before_nodes);
    if (before_nodes != NULL) work->before_nodes = before_nodes;
    if (nodes == NULL || places == NULL || before == NULL || before_nodes == NULL ||
        capacity > UINT32_MAX)
        return fig_fail(FIG_NOMEM, "cuda device: a graph of %" PRIu32 " nodes",
                        work->node_count + 1);
    work->node_capacity = (uint32_t)capacity;
    return FIG_OK;
}

/* Returns the nodes that the next node must follow in the graph. Unless that node is a leaf, the
 * list lies in `before_nodes`. A leaf takes no lane, so no later node waits for the leaf. */
static fig_dev_after place_next(const fig_cuda_work *work, fig_dev_after after, int is_leaf,
                                fig_cuda_lane_place *place) {
    *place = (fig_cuda_lane_place){0};
    assert(after.count <= work->node_count);
    for (uint32_t i = 0; i < after.count; i++)
        assert(after.nodes[i] < work->node_count);
    if (is_leaf) return after;
    const uint32_t count =
        fig_cuda_lanes_find(&work->lanes, work->places, after, place, work->before_nodes);
    return (fig_dev_after){work->before_nodes, count};
}

static void keep_next(fig_cuda_work *work, const fig_cuda_node *node, int is_leaf,
                      const fig_cuda_lane_place *place) {
    if (!is_leaf) fig_cuda_lanes_take(&work->lanes, place, work->node_count);
    work->places[work->node_count] = *place;
    work->nodes[work->node_count++] = *node;
}

/* ---- Kernels ------------------------------------------------------------------------------- */

/* The driver copies params before it returns, but takes a pointer to non-const. */
typedef struct params_copy {
    alignas(64) uint8_t bytes[FIG_PARAMS_LIMIT];
    void *pointer;
} params_copy;

static fig_status make_driver_params(fig_cuda_gpu *gpu, const fig_cuda_node *node,
                                     const void *params, params_copy *copy,
                                     fig_cu_kernel_params *out) {
    assert(node->params_bytes <= FIG_PARAMS_LIMIT);
    memcpy(copy->bytes, params, node->params_bytes);
    copy->pointer = copy->bytes;
    *out = (fig_cu_kernel_params){.shared_bytes = node->shared_bytes,
                                  .params = &copy->pointer,
                                  .kernel = node->kernel,
                                  .context = gpu->context};
    memcpy(out->grid, node->grid, sizeof out->grid);
    memcpy(out->block, node->block, sizeof out->block);
    return fig_cuda_maps_fill(gpu, node->op, node->family, copy->bytes);
}

/* Adds the edges into one of our kernels. Two kinds of nodes can begin early: our own kernels, and
 * kernels that a call launched with the programmatic attribute. Both keep the law of programmatic
 * edges (kernels/common/block.cuh), so our kernel may begin early behind either kind. There is one
 * exception: because some of our kernels read the plan before they wait, the edge from a call that
 * may run while the plan is being made is a full edge. */
static fig_status add_edges(const fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_node to,
                            fig_dev_after after, int is_plain, size_t *programmatic_count) {
    is_plain |= gpu->path != FIG_IMAGE_HOPPER || gpu->plain_edges;
    *programmatic_count = 0;
    for (uint32_t i = 0; i < after.count; i++) {
        const fig_cuda_node *from = &work->nodes[after.nodes[i]];
        fig_cu_edge edge = {.from_port = FIG_CU_EDGE_FULL, .type = FIG_CU_EDGE_FULL};
        if ((from->kernel != NULL || (from->is_kernel && !from->meets_plan)) && !is_plain) {
            edge.from_port = FIG_CU_EDGE_PROGRAMMATIC;
            edge.type = FIG_CU_EDGE_PROGRAMMATIC;
            ++*programmatic_count;
        }
        CU_TRY(gpu, GraphAddDependencies, work->graph, &from->node, &to, &edge, 1);
    }
    return FIG_OK;
}

/* Sets whether a kernel that is added directly behind nodes of a caller's capture reads early. Its
 * params say what is allowed at its place in our own graphs.
 *
 * A programmatic edge lets our kernel begin before the caller's kernel has ended, and only the
 * caller knows what that kernel writes: the page table, say, or the cache. So directly behind a
 * caller's kernel, or behind one of our kernels that makes the plan, our kernel reads nothing
 * before its wait, and lets later kernels begin only after its wait.
 *
 * Directly behind other kernels of ours, the plan is complete, so our kernel may read early. Its
 * params do not always say so: in our own graphs the kernel may directly follow the launch that
 * makes the plan, while the caller captured it behind a later kernel. If our kernel then waited
 * before it let the next kernel begin, the next kernel could not load old keys and values in the
 * meantime. The flags of split attention stay unchanged, because early_reads.c decides them from
 * more facts. A kernel that cannot keep the law of programmatic edges gets full edges. */
static void set_early_reads(fig_op op, int is_early, uint8_t *params) {
    const fig_kernel *kernel = &fig_kernel_table[op];
    for (uint32_t i = 0; i < kernel->field_count; i++) {
        uint32_t early_reads;
        if (kernel->fields[i].kind != FIG_FIELD_EARLY_READS) continue;
        memcpy(&early_reads, params + kernel->fields[i].offset, sizeof early_reads);
        early_reads &= ~(uint32_t)FIG_EARLY_READS_ON;
        if (is_early) early_reads |= FIG_EARLY_READS_ON;
        memcpy(params + kernel->fields[i].offset, &early_reads, sizeof early_reads);
    }
}

static int comes_first(const fig_cuda_work *work, fig_dev_after after) {
    return after.count == 0 && work->tail_count > 0;
}

static void suit_early_reads(const fig_cuda_work *work, fig_dev_after after, fig_op op,
                             uint8_t *params) {
    int must_wait = 0, keep_law = 1;
    if (!comes_first(work, after)) return;
    for (uint32_t i = 0; i < work->tail_count; i++) {
        must_wait |= work->tails[i].is_kernel && !work->tails[i].keeps_law;
        keep_law &= work->tails[i].keeps_law;
    }
    if (must_wait) set_early_reads(op, 0, params);
    if (keep_law && fig_kernel_table[op].split == NULL) set_early_reads(op, 1, params);
}

/* Some drivers refuse a programmatic edge from a kernel that is not ours; this function then adds a
 * full edge instead. */
static fig_status add_tail_edges(const fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_node to,
                                 int is_plain) {
    is_plain |= gpu->path != FIG_IMAGE_HOPPER || gpu->plain_edges;
    for (uint32_t i = 0; i < work->tail_count; i++) {
        const fig_cuda_tail *tail = &work->tails[i];
        const uint8_t kind =
            tail->is_kernel && !is_plain ? FIG_CU_EDGE_PROGRAMMATIC : FIG_CU_EDGE_FULL;
        fig_cu_edge edge = {.from_port = kind, .type = kind};
        fig_cu_result result =
            gpu->cu->GraphAddDependencies(work->graph, &tail->node, &to, &edge, 1);
        if (result == FIG_CU_SUCCESS) continue;
        if (kind == FIG_CU_EDGE_FULL || tail->keeps_law)
            return fig_cuda_gpu_refuse(gpu, result, "cuGraphAddDependencies");
        edge = (fig_cu_edge){.from_port = FIG_CU_EDGE_FULL, .type = FIG_CU_EDGE_FULL};
        CU_TRY(gpu, GraphAddDependencies, work->graph, &tail->node, &to, &edge, 1);
    }
    return FIG_OK;
}

fig_status fig_cuda_work_kernel(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                                const fig_dev_launch *launch, fig_dev_after after) {
    fig_cuda_node node = {.op = launch->op,
                          .family = launch->family,
                          .shared_bytes = launch->shared_bytes,
                          .params_bytes = launch->params_bytes};
    fig_cuda_kernel_wish wish = {
        .op = launch->op, .family = launch->family, .shared_bytes = launch->shared_bytes};
    size_t programmatic_count;
    params_copy copy;
    fig_cu_kernel_params params;
    fig_cuda_lane_place place;
    fig_status status = FIG_OK;
    memcpy(node.grid, launch->grid, sizeof node.grid);
    memcpy(node.block, launch->block, sizeof node.block);
    FIG_TRY(reserve(work));
    fig_families_entry(launch->op, launch->family, launch->params, wish.entry);
    if (fig_families_of(launch->op, launch->family)->compiles)
        wish.score = &((const fig_scored_attention_params *)launch->params)->score;
    FIG_TRY(fig_cuda_kernels_take(kernels, gpu, &wish, &node.kernel));
    FIG_TRY(make_driver_params(gpu, &node, launch->params, &copy, &params));
    after = place_next(work, after, launch->is_leaf, &place);
    suit_early_reads(work, after, node.op, copy.bytes);
    CU_TRY(gpu, GraphAddKernelNode, &node.node, work->graph, NULL, 0, &params);
    if (comes_first(work, after)) status = add_tail_edges(work, gpu, node.node, launch->is_plain);
    if (status == FIG_OK)
        status = add_edges(work, gpu, node.node, after, launch->is_plain, &programmatic_count);
    if (status != FIG_OK) {
        work->broken = work->is_callers;
        if (!work->is_callers) gpu->cu->GraphDestroyNode(node.node);
        return status;
    }
    keep_next(work, &node, launch->is_leaf, &place);
    work->programmatic_count += programmatic_count;
    return FIG_OK;
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* The results of one capture. */
typedef struct captured {
    int answer;                  /* what the callback returned */
    fig_cu_result seen, ended;   /* the driver's results of querying and ending the capture */
    fig_cu_result joined;        /* the driver's result of finding or adding the call's last node */
    unsigned int capture_status; /* the capture's status just before it was ended */
    fig_cu_node node;
    int is_kernel;
} captured;

/* Finds the node that ends the call. If the capture's only tail is a kernel of the call, that
 * kernel is the end, because an empty node behind it would only make later nodes wait longer.
 * Otherwise an empty node joins the tails. */
static fig_cu_result join(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_cu_node *tails,
                          size_t tail_count, size_t before_count, captured *out) {
    unsigned int type = FIG_CU_NODE_KERNEL;
    int is_own = tail_count == 1;
    /* if the tail is one of these nodes, the call captured nothing */
    for (size_t i = 0; i < before_count; i++)
        is_own &= tails[0] != work->before[i];
    if (is_own) {
        const fig_cu_result result = gpu->cu->GraphNodeGetType(tails[0], &type);
        if (result != FIG_CU_SUCCESS) return result;
    }
    out->is_kernel = is_own && type == FIG_CU_NODE_KERNEL;
    if (!out->is_kernel)
        return gpu->cu->GraphAddEmptyNode(&out->node, work->graph, tails, tail_count);
    out->node = tails[0];
    return FIG_CU_SUCCESS;
}

/* This function always ends the capture that it begins, so the stream never stays in a capture. It
 * finds the node that ends the call while the stream still captures, because the driver's array of
 * tails is valid only until the capture ends. The mode is relaxed: a library that the callback uses
 * may allocate memory or load code at its first call. In any other mode, such work would break the
 * capture; in the relaxed mode, the driver leaves such work out of the graph. */
static fig_status capture(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                          size_t before_count, captured *out) {
    fig_call_args args = call->args;
    const fig_cu_node *tails = NULL;
    const fig_cu_edge *edges = NULL;
    size_t tail_count = 0;
    fig_cu_graph graph = NULL;
    *out = (captured){.joined = FIG_CU_SUCCESS};
    args.stream = gpu->aside;
    args.rows = args.bucket.batch;
    CU_TRY(gpu, StreamBeginCaptureToGraph, gpu->aside, work->graph,
           before_count > 0 ? work->before : NULL, NULL, before_count, FIG_CU_CAPTURE_RELAXED);
    out->answer = call->callback(call->user, &args);
    out->seen = gpu->cu->StreamGetCaptureInfo(gpu->aside, &out->capture_status, NULL, NULL, &tails,
                                              &edges, &tail_count);
    if (out->answer == 0 && out->seen == FIG_CU_SUCCESS &&
        out->capture_status == FIG_CU_CAPTURE_STATUS_ACTIVE)
        out->joined = join(work, gpu, tails, tail_count, before_count, out);
    out->ended = gpu->cu->StreamEndCapture(gpu->aside, &graph);
    /* When a capture breaks, the driver destroys the capture's graph, even a graph that we
     * created. */
    if (out->ended != FIG_CU_SUCCESS || graph == NULL) work->graph = NULL;
    return FIG_OK;
}

/* Reports one failure, in this order of precedence: a lost device, the value that the callback
 * returned, a broken capture, and a failure to find or add the node that ends the call. */
static fig_status judge(fig_cuda_gpu *gpu, const fig_dev_call *call, const captured *how) {
    fig_cu_result result = how->seen != FIG_CU_SUCCESS ? how->seen : how->ended;
    fig_status status = FIG_OK;
    if (result != FIG_CU_SUCCESS) status = fig_cuda_gpu_refuse(gpu, result, "ending its capture");
    if (status == FIG_LOST) return status;
    if (how->answer != 0)
        return fig_fail(FIG_CALLBACK, "call \"%s\" returned %d", call->name, how->answer);
    if (status != FIG_OK)
        return fig_fail(FIG_CALLBACK, "call \"%s\" broke the capture: %s", call->name,
                        fig_message());
    if (how->capture_status != FIG_CU_CAPTURE_STATUS_ACTIVE)
        return fig_fail(FIG_CALLBACK, "call \"%s\" broke the capture: its status is %u", call->name,
                        how->capture_status);
    if (how->joined != FIG_CU_SUCCESS)
        return fig_cuda_gpu_refuse(gpu, how->joined, "the end of a call");
    return FIG_OK;
}

/* Returns 1 if a node that follows the nodes in `after` may run while the plan is being made. This
 * can happen only behind a kernel that makes the plan, or behind a call that itself may run while
 * the plan is being made: each of our other kernels has waited for the plan. */
static int meets_plan(const fig_cuda_work *work, fig_dev_after after) {
    for (uint32_t i = 0; i < after.count; i++) {
        const fig_cuda_node *from = &work->nodes[after.nodes[i]];
        if (from->kernel != NULL ? fig_kernel_table[from->op].makes_plan : from->meets_plan)
            return 1;
    }
    return 0;
}

fig_status fig_cuda_work_call(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after) {
    captured how;
    fig_cuda_lane_place place;
    FIG_TRY(reserve(work));
    after = place_next(work, after, 0, &place);
    for (uint32_t i = 0; i < after.count; i++)
        work->before[i] = work->nodes[after.nodes[i]].node;
    FIG_TRY(capture(work, gpu, call, after.count, &how));
    fig_status status = judge(gpu, call, &how);
    if (status != FIG_OK) {
        work->broken = 1;
        return status;
    }
    keep_next(work,
              &(fig_cuda_node){.node = how.node,
                               .is_kernel = how.is_kernel,
                               .meets_plan = meets_plan(work, after)},
              0, &place);
    return FIG_OK;
}

/* Captures a call into a separate graph. NCCL identifies a capture by the id of its graph, so after
 * a second capture into the same graph it would go on using the streams of the first. */
static fig_status capture_apart(fig_cuda_gpu *gpu, const fig_dev_call *call, fig_cu_graph *part) {
    fig_call_args args = call->args;
    captured how = {.joined = FIG_CU_SUCCESS};
    const fig_cu_node *tails;
    const fig_cu_edge *edges;
    size_t tail_count;
    args.stream = gpu->aside;
    *part = NULL;
    CU_TRY(gpu, StreamBeginCapture, gpu->aside, FIG_CU_CAPTURE_RELAXED);
    how.answer = call->callback(call->user, &args);
    how.seen = gpu->cu->StreamGetCaptureInfo(gpu->aside, &how.capture_status, NULL, NULL, &tails,
                                             &edges, &tail_count);
    how.ended = gpu->cu->StreamEndCapture(gpu->aside, part);
    const fig_status status = judge(gpu, call, &how);
    if (status == FIG_OK) return FIG_OK;
    if (how.ended == FIG_CU_SUCCESS && *part != NULL) gpu->cu->GraphDestroy(*part);
    *part = NULL;
    return status;
}

fig_status fig_cuda_work_part(fig_cuda_work *work, fig_cuda_gpu *gpu, const fig_dev_call *call,
                              fig_dev_after after) {
    fig_cuda_node node = {.kernel = NULL};
    fig_cuda_lane_place place;
    fig_cu_graph part;
    FIG_TRY(reserve(work));
    FIG_TRY(capture_apart(gpu, call, &part));
    after = place_next(work, after, 0, &place);
    for (uint32_t i = 0; i < after.count; i++)
        work->before[i] = work->nodes[after.nodes[i]].node;
    const fig_cu_result result =
        gpu->cu->GraphAddChildGraphNode(&node.node, work->graph, work->before, after.count, part);
    gpu->cu->GraphDestroy(part); /* the node holds a copy */
    if (result != FIG_CU_SUCCESS)
        return fig_cuda_gpu_refuse(gpu, result, "cuGraphAddChildGraphNode");
    keep_next(work, &node, 0, &place);
    work->last_part = work->node_count;
    return FIG_OK;
}

/* ---- Execs --------------------------------------------------------------------------------- */

/* Returns 1 if the node is one of our kernels. A linear search is fast enough: a graph has hundreds
 * of nodes, and fig_engine_bind() makes one search for each programmatic edge. */
static int is_kernel(const fig_cuda_work *work, fig_cu_node node) {
    for (uint32_t i = 0; i < work->node_count; i++)
        if (work->nodes[i].node == node) return work->nodes[i].kernel != NULL;
    return 0;
}

/* Edges into nodes that a call captured are not counted, because this file did not add them. */
static fig_status count_programmatic(const fig_cuda_work *work, fig_cuda_gpu *gpu, size_t count,
                                     fig_cu_node *ends, fig_cu_edge *edges) {
    size_t programmatic_count = 0;
    CU_TRY(gpu, GraphGetEdges, work->graph, ends, ends + count, edges, &count);
    fig_cu_node *to = ends + count;
    for (size_t i = 0; i < count; i++)
        programmatic_count += edges[i].type == FIG_CU_EDGE_PROGRAMMATIC && is_kernel(work, to[i]);
    if (programmatic_count == work->programmatic_count) return FIG_OK;
    return fig_fail(
        FIG_DRIVER,
        "cuda device: the driver, of CUDA %d.%d, holds %zu programmatic edges where %zu "
        "were added",
        gpu->cu->version / 1000, gpu->cu->version % 1000 / 10, programmatic_count,
        work->programmatic_count);
}

fig_status fig_cuda_work_check(const fig_cuda_work *work, fig_cuda_gpu *gpu) {
    size_t count = 0;
    FIG_TRY(check_whole(work));
    CU_TRY(gpu, GraphGetEdges, work->graph, NULL, NULL, NULL, &count);
    if (count == 0) return FIG_OK;
    fig_cu_node *ends = calloc(count, 2 * sizeof *ends); /* [from][to] */
    fig_cu_edge *edges = calloc(count, sizeof *edges);
    fig_status status = ends != NULL && edges != NULL
                            ? count_programmatic(work, gpu, count, ends, edges)
                            : fig_fail(FIG_NOMEM, "cuda device: %zu edges of a graph", count);
    free(ends);
    free(edges);
    return status;
}

/* Uploads the exec, because otherwise its first launch would wait for the upload. */
static fig_status upload(fig_cuda_gpu *gpu, fig_cu_exec exec) {
    CU_TRY(gpu, GraphUpload, exec, gpu->uploads);
    CU_TRY(gpu, StreamSynchronize, gpu->uploads);
    return FIG_OK;
}

fig_status fig_cuda_work_instantiate(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec *exec) {
    fig_cu_instantiate_params params = {.flags = 0};
    fig_cu_exec made;
    *exec = NULL;
    FIG_TRY(fig_cuda_work_check(work, gpu));
    fig_cu_result result = gpu->cu->GraphInstantiateWithParams(&made, work->graph, &params);
    if (result != FIG_CU_SUCCESS)
        return fig_cuda_gpu_refuse(gpu, result, "cuGraphInstantiateWithParams");
    fig_status status = upload(gpu, made);
    if (status != FIG_OK) {
        gpu->cu->GraphExecDestroy(made);
        return status;
    }
    work->users++;
    *exec = made;
    return FIG_OK;
}

fig_status fig_cuda_work_patch(const fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cu_exec exec,
                               uint32_t node, const void *params, size_t params_bytes) {
    params_copy copy;
    fig_cu_kernel_params changed;
    FIG_TRY_OURS(node < work->node_count && work->nodes[node].kernel != NULL &&
                     params_bytes == work->nodes[node].params_bytes,
                 "cuda device: %zu bytes of params for node %" PRIu32 " of %" PRIu32, params_bytes,
                 node, work->node_count);
    FIG_TRY(make_driver_params(gpu, &work->nodes[node], params, &copy, &changed));
    CU_TRY(gpu, GraphExecKernelNodeSetParams, exec, work->nodes[node].node, &changed);
    return FIG_OK;
}
