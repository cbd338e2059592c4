/* cuda_inlay.c: records the kernels of a graph, and adds them to a graph that a caller captures.
 *
 * Invariant: the tails of a capture are copied before any node is added, because the driver's array
 * of tails is valid only for the state of the stream at the query. */
#include "engine/graph/cuda_inlay.h"

#include <stdlib.h>
#include <string.h>

#include "planner/size.h"
#include "planner/status.h"

/* ---- The record ---------------------------------------------------------------------------- */

enum { PARAMS_ALIGNMENT = 64 };

static fig_status reserve(fig_cuda_record *record) {
    if (record->count < record->capacity) return FIG_OK;
    const uint32_t capacity = record->capacity == 0 ? 64 : record->capacity * 2;
    fig_cuda_recorded *of = realloc(record->of, capacity * sizeof *of);
    if (of == NULL) return fig_fail(FIG_NOMEM, "cuda device: %u kernels of a graph", capacity);
    record->of = of;
    record->capacity = capacity;
    return FIG_OK;
}

fig_status fig_cuda_inlay_record(fig_cuda_record *record, const fig_dev_launch *launch,
                                 fig_dev_after after) {
    const size_t nodes_bytes = after.count * sizeof *after.nodes;
    const size_t params_bytes = fig_size_align(launch->params_bytes, PARAMS_ALIGNMENT);
    const size_t bytes = params_bytes + fig_size_align(nodes_bytes, PARAMS_ALIGNMENT);
    FIG_TRY(reserve(record));
    uint8_t *block = aligned_alloc(PARAMS_ALIGNMENT, bytes);
    if (block == NULL) return fig_fail(FIG_NOMEM, "cuda device: %zu bytes of a kernel", bytes);
    memcpy(block, launch->params, launch->params_bytes);
    if (nodes_bytes > 0) memcpy(block + params_bytes, after.nodes, nodes_bytes);
    fig_cuda_recorded *own = &record->of[record->count++];
    *own = (fig_cuda_recorded){
        *launch, {(uint32_t *)(void *)(block + params_bytes), after.count}, block};
    own->launch.params = block;
    return FIG_OK;
}

void fig_cuda_inlay_forget_last(fig_cuda_record *record) {
    free(record->of[--record->count].block);
}

void fig_cuda_inlay_finish(fig_cuda_record *record) {
    while (record->count > 0)
        fig_cuda_inlay_forget_last(record);
    free(record->of);
    *record = (fig_cuda_record){0};
}

/* ---- A capture's tails --------------------------------------------------------------------- */

/* If the driver does not report the type of a caller's node, our kernels get a full edge from
 * it. */
static fig_cuda_tail look_at(const fig_cuda_inlaid *inlaid, fig_cuda_gpu *gpu, uint64_t capture,
                             fig_cu_node node) {
    unsigned int type = 0;
    for (uint32_t i = 0; i < FIG_CUDA_INLAID_LIMIT; i++)
        if (inlaid->of[i].capture == capture && inlaid->of[i].node == node)
            return (fig_cuda_tail){node, 1, !inlaid->of[i].makes_plan};
    const fig_cu_result result = gpu->cu->GraphNodeGetType(node, &type);
    return (fig_cuda_tail){node, result == FIG_CU_SUCCESS && type == FIG_CU_NODE_KERNEL, 0};
}

static fig_status find_tails(const fig_cuda_inlaid *inlaid, fig_cuda_gpu *gpu,
                             const fig_cuda_splice *splice, fig_cuda_tail **tails) {
    *tails = calloc(splice->tail_count + 1, sizeof **tails);
    if (*tails == NULL)
        return fig_fail(FIG_NOMEM, "cuda device: %zu nodes of a capture", splice->tail_count);
    for (size_t i = 0; i < splice->tail_count; i++)
        (*tails)[i].node = splice->tails[i];
    for (size_t i = 0; i < splice->tail_count; i++)
        (*tails)[i] = look_at(inlaid, gpu, splice->capture, (*tails)[i].node);
    return FIG_OK;
}

/* Writes to `ends` the last node of each lane, except a node that the last node of another lane
 * already follows. Returns the number of nodes written. */
static uint32_t find_ends(const fig_cuda_work *work, uint32_t *ends) {
    const fig_cuda_lanes *lanes = &work->lanes;
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < FIG_CUDA_LANE_COUNT; lane++) {
        int is_end = lanes->counts[lane] > 0;
        for (uint32_t other = 0; other < FIG_CUDA_LANE_COUNT; other++)
            if (other != lane && lanes->counts[other] > 0 &&
                work->places[lanes->tails[other]].seen[lane] >= lanes->counts[lane])
                is_end = 0;
        if (is_end) ends[count++] = lanes->tails[lane];
    }
    return count;
}

/* ---- Adding -------------------------------------------------------------------------------- */

static fig_status add_kernels(fig_cuda_work *work, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                              const fig_cuda_record *record) {
    for (uint32_t i = 0; i < record->count; i++)
        FIG_TRY(
            fig_cuda_work_kernel(work, gpu, kernels, &record->of[i].launch, record->of[i].after));
    return FIG_OK;
}

static fig_status end_capture_with(fig_cuda_inlaid *inlaid, fig_cuda_gpu *gpu, fig_cu_stream stream,
                                   uint64_t capture, const fig_cuda_work *work) {
    uint32_t ends[FIG_CUDA_LANE_COUNT];
    fig_cu_node nodes[FIG_CUDA_LANE_COUNT];
    const uint32_t count = find_ends(work, ends);
    for (uint32_t i = 0; i < count; i++)
        nodes[i] = work->nodes[ends[i]].node;
    CU_TRY(gpu, StreamUpdateCaptureDependencies, stream, nodes, NULL, count,
           FIG_CU_CAPTURE_SET_DEPENDENCIES);
    for (uint32_t i = 0; i < count; i++) {
        const fig_op op = work->nodes[ends[i]].op;
        const uint32_t place = inlaid->count++ % FIG_CUDA_INLAID_LIMIT;
        inlaid->of[place].capture = capture;
        inlaid->of[place].node = nodes[i];
        inlaid->of[place].makes_plan = op == FIG_OP_FETCH || op == FIG_OP_PLAN;
    }
    return FIG_OK;
}

fig_status fig_cuda_inlay_add(fig_cuda_inlaid *inlaid, fig_cuda_gpu *gpu, fig_cuda_kernels *kernels,
                              fig_cu_stream stream, const fig_cuda_splice *splice,
                              const fig_cuda_record *record, int *taken) {
    fig_cuda_tail *tails;
    fig_cuda_work work;
    *taken = 0;
    FIG_TRY(find_tails(inlaid, gpu, splice, &tails));
    fig_cuda_work_enter(&work, splice->graph, tails, (uint32_t)splice->tail_count);
    fig_status status = add_kernels(&work, gpu, kernels, record);
    *taken = work.node_count > 0 || work.broken;
    if (status == FIG_OK && work.node_count > 0)
        status = end_capture_with(inlaid, gpu, stream, splice->capture, &work);
    fig_cuda_work_finish(&work);
    free(tails);
    return status;
}
