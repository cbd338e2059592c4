/* append.c: segments of a step on a stream of the caller's, as part of what it captures or at once.
 *
 * A fetch takes the plan staged longest ago; what comes behind it in the same capture, or at once
 * on the same engine, runs under that plan. Cold: a graph is built once, and replayed without a
 * call of ours but stage. Steps that a graph of the caller's has fetched count as launched as soon
 * as the ring shows it.
 *
 * What is enqueued at once on a stream of the caller's comes behind all launched on the engine's
 * own, and before all launched there later, so that who waits for the one waits for both. Only the
 * caller knows where a graph of theirs is launched, and puts it in order. Invariant: while a graph
 * lives that was captured here, every tensor that its nodes name is marked in the bindings. */
#include "engine/prepare.h"

#include <inttypes.h>
#include <string.h>

#include "planner/status.h"

/* What fig_append asks for. */
typedef struct append_request {
    const char *segment; /* "all" stands for NULL in sentences */
    uint32_t bucket;     /* index from 0 */
    fig_exec_part part;
    void *stream;
    uint64_t capture; /* 0: none */
} append_request;

/* The node that makes a plan of lengths on the device is part of the fetch, and of no segment. */
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

/* The last fetch in the capture, or at once; NULL: there was none. */
static fig_engine_fetch *find_fetch(fig_engine *engine, uint64_t capture) {
    for (uint32_t i = 0; i < FIG_ENGINE_FETCH_LIMIT; i++) {
        fig_engine_fetch *fetch = &engine->fetches[i];
        if (fetch->bucket >= 0 && fetch->capture == capture) return fetch;
    }
    return NULL;
}

/* Place 0 is that of what runs at once; a new capture takes the place of the oldest. */
static void note_fetch(fig_engine *engine, const append_request *request) {
    fig_engine_fetch *fetch = find_fetch(engine, request->capture);
    if (fetch == NULL && request->capture == 0) fetch = &engine->fetches[0];
    if (fetch == NULL)
        fetch = &engine->fetches[1 + engine->capture_count++ % (FIG_ENGINE_FETCH_LIMIT - 1)];
    *fetch = (fig_engine_fetch){request->capture, (int32_t)request->bucket};
}

/* A fetch that runs at once is a launch: it needs a step, and that step's bucket. */
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

/* A fetch at once was a launch. */
static void note(fig_engine *engine, const append_request *request) {
    if (!request->part.fetches) return;
    note_fetch(engine, request);
    if (request->capture != 0) return;
    fig_engine_pass(engine, 1);
    engine->own_launched = engine->launched;
}

/* The mark comes first: where appending fails half-way, the capture may hold the nodes. */
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
