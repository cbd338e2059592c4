/* fake_capture.c: captures of the fake driver, and the user objects that graphs retain.
 *
 * Invariant: when a capture breaks, its graph is destroyed, and when a graph is destroyed, it
 * releases its objects. */
#include "tests/support/driver/fake_graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- Objects ------------------------------------------------------------------------------- */

static void let_go(fig_cu_object object, unsigned int count) {
    object->references -= count;
    if (object->references > 0) return;
    object->destroy(object->user);
    free(object);
    fake.held--;
}

void fig_fake_capture_let_go(fig_fake_objects *objects) {
    for (size_t i = 0; i < objects->count; i++)
        let_go(objects->of[i], 1);
}

static fig_cu_result object_create(fig_cu_object *object, void *user, void (*end)(void *),
                                   unsigned int references, unsigned int flags) {
    BEGIN("cuUserObjectCreate");
    if (flags != FIG_CU_OBJECT_NO_DESTRUCTOR_SYNC) return FIG_CU_INVALID_VALUE;
    *object = calloc(1, sizeof **object);
    if (*object == NULL) return FIG_CU_OUT_OF_MEMORY;
    **object = (struct CUuserObject_st){user, end, references};
    fake.held++;
    return FIG_CU_SUCCESS;
}

static fig_cu_result object_release(fig_cu_object object, unsigned int count) {
    let_go(object, count);
    BEGIN("cuUserObjectRelease");
    return FIG_CU_SUCCESS;
}

static fig_cu_result graph_retain(fig_cu_graph graph, fig_cu_object object, unsigned int count,
                                  unsigned int flags) {
    BEGIN("cuGraphRetainUserObject");
    if (count != 1 || flags != FIG_CU_OBJECT_MOVE) return fig_fake_cuda_unsafe();
    if (graph->objects.count == FIG_FAKE_OBJECT_LIMIT) return FIG_CU_OUT_OF_MEMORY;
    graph->objects.of[graph->objects.count++] = object;
    return FIG_CU_SUCCESS;
}

/* ---- Captures ------------------------------------------------------------------------------ */

static void capture_into(fig_cu_stream stream, fig_cu_graph graph, unsigned int mode) {
    static uint64_t last;
    stream->capturing = graph;
    stream->capture = ++last;
    stream->mode = mode;
    stream->tail_count = 0;
    graph->is_captured = 1;
    fake.captures += mode != FIG_CU_CAPTURE_RELAXED;
}

static fig_cu_result begin_capture(fig_cu_stream stream, fig_cu_graph graph,
                                   const fig_cu_node *nodes, const fig_cu_edge *data, size_t count,
                                   unsigned int mode) {
    BEGIN_INSIDE("cuStreamBeginCaptureToGraph");
    if (stream->capturing != NULL || data != NULL || mode != FIG_CU_CAPTURE_RELAXED)
        return fig_fake_cuda_unsafe();
    capture_into(stream, graph, mode);
    stream->tail_count = count;
    if (count > 0) memcpy(stream->tails, nodes, count * sizeof *nodes);
    return FIG_CU_SUCCESS;
}

static fig_cu_result stream_begin_capture(fig_cu_stream stream, unsigned int mode) {
    BEGIN("cuStreamBeginCapture");
    if (stream->capturing != NULL) return FIG_FAKE_ILLEGAL_STATE;
    fig_cu_graph graph = calloc(1, sizeof *graph);
    if (graph == NULL) return FIG_CU_OUT_OF_MEMORY;
    fake.held++;
    capture_into(stream, graph, mode);
    return FIG_CU_SUCCESS;
}

static fig_cu_result update_tails(fig_cu_stream stream, fig_cu_node *tails, const fig_cu_edge *data,
                                  size_t count, unsigned int flags) {
    BEGIN("cuStreamUpdateCaptureDependencies");
    if (stream->capturing == NULL) return FIG_FAKE_ILLEGAL_STATE;
    if (flags != FIG_CU_CAPTURE_SET_DEPENDENCIES || data != NULL) return fig_fake_cuda_unsafe();
    for (size_t i = 0; i < count; i++)
        stream->tails[i] = tails[i];
    stream->tail_count = count;
    return FIG_CU_SUCCESS;
}

void fig_fake_cuda_enqueue(fig_cu_stream stream, void (*work)(void *user), void *user) {
    fig_cu_node to[FIG_FAKE_NODE_LIMIT];
    if (stream->capturing == NULL) abort();
    if (stream->broken) return;
    fig_cu_node node = fig_fake_graph_node(stream->capturing);
    if (node == NULL) {
        stream->broken = 1;
        return;
    }
    node->work = work;
    node->user = user;
    for (size_t i = 0; i < stream->tail_count; i++)
        to[i] = node;
    if (fig_fake_graph_edges(stream->capturing, stream->tails, to, NULL, stream->tail_count) != 0)
        abort();
    stream->tails[0] = node;
    stream->tail_count = 1;
}

void fig_fake_cuda_break(fig_cu_stream stream) {
    stream->broken = 1;
}

static fig_cu_result get_capture_info(fig_cu_stream stream, unsigned int *status, uint64_t *id,
                                      fig_cu_graph *graph, const fig_cu_node **tails,
                                      const fig_cu_edge **data, size_t *count) {
    static const fig_cu_edge full[FIG_FAKE_NODE_LIMIT];
    BEGIN_INSIDE("cuStreamGetCaptureInfo");
    stream = fig_fake_cuda_stream(stream);
    *status = stream->broken ? 2 : stream->capturing != NULL;
    if (id != NULL) *id = stream->capture;
    if (graph != NULL) *graph = stream->capturing;
    if (stream->capturing == NULL) return FIG_CU_SUCCESS; /* the other outputs stay unchanged */
    *tails = stream->tails;
    *data = full;
    *count = stream->tail_count;
    return FIG_CU_SUCCESS;
}

static fig_cu_result end_capture(fig_cu_stream stream, fig_cu_graph *graph) {
    fig_cu_result result = fig_fake_cuda_begin("cuStreamEndCapture");
    *graph = NULL;
    if (stream->capturing == NULL) return FIG_FAKE_ILLEGAL_STATE;
    if (result == FIG_CU_SUCCESS && stream->broken) result = FIG_CU_CAPTURE_INVALIDATED;
    stream->capturing->is_captured = 0;
    if (result == FIG_CU_SUCCESS)
        *graph = stream->capturing;
    else
        fig_fake_graph_destroy(stream->capturing);
    fake.captures -= stream->mode != FIG_CU_CAPTURE_RELAXED;
    stream->capturing = NULL;
    stream->broken = 0;
    return result;
}

/* ---- A caller's captures ------------------------------------------------------------------- */

int fig_fake_cuda_capture(fig_cu_stream stream) {
    if (stream->capturing != NULL) abort();
    fig_cu_graph graph = calloc(1, sizeof *graph);
    if (graph == NULL) return 0;
    fake.held++;
    capture_into(stream, graph, 0);
    return 1;
}

fig_cu_exec fig_fake_cuda_end(fig_cu_stream stream) {
    fig_cu_graph graph = stream->capturing;
    graph->is_captured = 0;
    fig_cu_exec exec = stream->broken ? NULL : fig_fake_graph_exec(graph);
    if (exec != NULL) exec->graph = graph;
    if (exec == NULL) fig_fake_graph_destroy(graph);
    fake.captures -= stream->mode != FIG_CU_CAPTURE_RELAXED;
    stream->capturing = NULL;
    stream->broken = 0;
    return exec;
}

void fig_fake_cuda_drop(fig_cu_exec exec) {
    if (exec == NULL) return;
    fig_fake_graph_destroy(exec->graph);
    fig_fake_capture_let_go(&exec->objects);
    free(exec);
    fake.held--;
}

/* ---- The table ----------------------------------------------------------------------------- */

void fig_fake_capture_fill(fig_cuda_api *table) {
    table->StreamBeginCapture = stream_begin_capture;
    table->StreamBeginCaptureToGraph = begin_capture;
    table->StreamUpdateCaptureDependencies = update_tails;
    table->UserObjectCreate = object_create;
    table->UserObjectRelease = object_release;
    table->GraphRetainUserObject = graph_retain;
    table->StreamGetCaptureInfo = get_capture_info;
    table->StreamEndCapture = end_capture;
}
