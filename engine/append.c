/* append.c: puts segments of a step on a caller's stream, either into its capture or to run at
 * once.
 *
 * A fetch is the part of a step that takes the oldest staged plan. The segments that follow a fetch
 * in the same capture run under that plan. Outside captures, the same holds for the segments that
 * follow a fetch on the same engine. This file is cold: the caller builds a graph once, and then
 * needs only fig_engine_stage() to replay it. A step that such a graph runs counts as launched as
 * soon as the ring shows that its plan was fetched.
 *
 * Outside a capture, work that is appended to a caller's stream runs after everything launched on
 * the engine's own stream before, and before everything launched there later. So a wait for the
 * engine's stream also waits for that work. Only the caller knows on which stream a captured graph
 * is launched, so the caller must order the graph with respect to other work. Invariant: as long as
 * a graph captured here exists, every tensor that its nodes name is marked in the bindings. */
#include "engine/prepare.h"

#include <inttypes.h>
#include <string.h>

#include "planner/status.h"

/* The content of a fig_append after its checks. */
typedef struct append_request {
    const char *segment; /* "all" if the caller gave NULL, so that messages can name it */
    uint32_t bucket;     /* index from 0 */
    fig_exec_part part;
    void *stream;
    uint64_t capture; /* number of the capture that the stream is in; 0: none */
} append_request;

/* Finds the nodes of the requested segment. If the program reads lengths on the device, its first
 * node makes the plan from them. That node belongs to the fetch and to no segment. */
static fig_status find_part(const fig_engine *engine, append_request *request) {
    const fig_program_view *program = engine->program;
    fig_segment found;
    if (request->segment == NULL) {
        request->segment = "all";
        request->part = (fig_exec_part){0, program->node_count, 1};
        return FIG_OK;
    }
    if (strcmp(request->segment, "fetch") == 0) {
        request->part = (fig_exec_part){0, fig_program_view_reads_lengths(program) ? 1 : 0, 1};
        return FIG_OK;
    }
    if (!fig_program_view_find_segment(program, request->segment, &found))
        return fig_fail(FIG_INVALID, "append: the program has no segment %s", request->segment);
    request->part = (fig_exec_part){found.node, found.node_count, 0};
    return FIG_OK;
}

/* ---- Order --------------------------------------------------------------------------------- */

/* Returns the last fetch in the given capture, or NULL if there was none. Capture 0 stands for work
 * outside any capture. */
static fig_engine_fetch *find_fetch(fig_engine *engine, uint64_t capture) {
    for (uint32_t i = 0; i < FIG_ENGINE_FETCH_LIMIT; i++) {
        fig_engine_fetch *fetch = &engine->fetches[i];
        if (fetch->bucket >= 0 && fetch->capture == capture) return fetch;
    }
    return NULL;
}

/* Stores a fetch. Entry 0 is for fetches that run at once. A new capture replaces the oldest
 * one. */
static void note_fetch(fig_engine *engine, const append_request *request) {
    fig_engine_fetch *fetch = find_fetch(engine, request->capture);
    if (fetch == NULL && request->capture == 0) fetch = &engine->fetches[0];
    if (fetch == NULL)
        fetch = &engine->fetches[1 + engine->capture_count++ % (FIG_ENGINE_FETCH_LIMIT - 1)];
    *fetch = (fig_engine_fetch){request->capture, (int32_t)request->bucket};
}

/* Checks that a step of the requested bucket is staged, because a fetch that runs at once launches
 * that step. */
static fig_status check_staged(fig_engine *engine, const append_request *request) {
    fig_engine_catch_up(engine);
    if (engine->launched == engine->staged) return fig_fail(FIG_ORDER, "append: nothing is staged");
    const uint32_t staged = fig_engine_next_bucket(engine);
    if (staged == request->bucket) return FIG_OK;
    return fig_fail(FIG_ORDER,
                    "append: bucket is %" PRIu32
                    ", the step staged longest ago is of bucket %" PRIu32,
                    request->bucket + 1, staged + 1);
}

static fig_status check_order(fig_engine *engine, const append_request *request) {
    if (request->part.fetches)
        return request->capture == 0 ? check_staged(engine, request) : FIG_OK;
    const fig_engine_fetch *fetch = find_fetch(engine, request->capture);
    if (fetch == NULL)
        return fig_fail(FIG_ORDER, "append: segment %s comes before \"fetch\" in this %s",
                        request->segment, request->capture != 0 ? "capture" : "engine");
    if (fetch->bucket == (int32_t)request->bucket) return FIG_OK;
    return fig_fail(FIG_ORDER,
                    "append: segment %s of bucket %" PRIu32 ", the fetch before it is of bucket "
                    "%" PRId32,
                    request->segment, request->bucket + 1, fetch->bucket + 1);
}

/* ---- Appending ----------------------------------------------------------------------------- */

/* Records a fetch. A fetch outside a capture has already run, so it also counts as a launch. */
static void note(fig_engine *engine, const append_request *request) {
    if (!request->part.fetches) return;
    note_fetch(engine, request);
    if (request->capture != 0) return;
    fig_engine_pass(engine, 1);
    engine->own_launched = engine->launched;
}

/* Marks the tensors before it appends, because after a graph_append that fails half-way the capture
 * may already hold nodes. */
static fig_status append(fig_engine *engine, const append_request *request) {
    fig_dev_graph *graph;
    if (!request->part.fetches && request->part.node_count == 0) return FIG_OK;
    FIG_TRY(fig_execs_segment(&engine->execs, fig_engine_exec_of(engine, request->bucket),
                              &request->part, &graph));
    if (request->capture != 0)
        fig_binding_mark(&engine->bindings, request->part.node, request->part.node_count);
    return engine->api->graph_append(engine->dev, graph, engine->stream, request->stream,
                                     engine->refs);
}

static fig_status append_segment(fig_engine *engine, const fig_append *given) {
    fig_append ours;
    const uint32_t bucket_count = engine->graphs->bucket_count;
    FIG_TRY(fig_status_take_options(&ours, sizeof ours, given, "fig_append"));
    if (ours.bucket < 1 || (uint32_t)ours.bucket > bucket_count)
        return fig_fail(FIG_INVALID, "append: bucket is %" PRId32 ", limits 1 to %" PRIu32,
                        ours.bucket, bucket_count);
    append_request request = {.segment = ours.segment,
                              .bucket = (uint32_t)ours.bucket - 1,
                              .stream =
                                  ours.stream != NULL ? *ours.stream : fig_engine_stream(engine)};
    FIG_TRY(find_part(engine, &request));
    FIG_TRY(engine->api->stream_capture(engine->dev, request.stream, &request.capture));
    FIG_TRY(check_order(engine, &request));
    FIG_TRY(fig_prepare_bucket(engine, request.bucket));
    FIG_TRY(append(engine, &request));
    note(engine, &request);
    return FIG_OK;
}

fig_status fig_engine_append(fig_engine *engine, const fig_append *given) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, append_segment(engine, given));
}
