/* replay.c: stage a step, launch it, see how far the steps are.
 *
 * The only file that runs per step: nothing here allocates, locks or logs, and the one wait is for
 * a slot and bounded. A step changes the bytes of one slot, never a graph. Invariant: what was
 * staged is launched once, in the order staged, by the exec of the bucket that it was planned
 * for, or by a graph of the caller's that append.c gave that bucket's nodes. */
#include "engine/engine.h"

#include "planner/status.h"

fig_status fig_engine_stage(fig_engine *engine, const fig_step *step) {
    const fig_graphs *graphs = engine->graphs;
    fig_plan_step planned;
    uint8_t *slot;
    int32_t index;
    fig_engine_catch_up(engine);
    FIG_TRY(fig_step_check(engine->program, step, &engine->stamps, &planned));
    if (!fig_execs_ready(&engine->execs)) FIG_TRY(fig_engine_prepare(engine));
    FIG_TRY(fig_bucket_choose(graphs->buckets, (int32_t)graphs->bucket_count, &planned, &index));
    fig_status status = fig_ring_claim(&engine->ring, engine->busy_us, &slot);
    engine->busy_count += status == FIG_BUSY;
    FIG_TRY(status);

    engine->uploaded_bytes += fig_plan_write(&graphs->buckets[index].plan, &planned, slot);
    fig_ring_publish(&engine->ring, slot);
    engine->staged_buckets[engine->staged % FIG_SLOT_LIMIT] = (uint32_t)index;
    engine->staged++;
    engine->last_bucket = index;
    return FIG_OK;
}

fig_status fig_engine_launch(fig_engine *engine) {
    fig_engine_catch_up(engine);
    if (engine->launched == engine->staged)
        return fig_fail(FIG_INVALID, "launch: nothing is staged");
    uint32_t index = engine->staged_buckets[engine->launched % FIG_SLOT_LIMIT];
    FIG_TRY(
        engine->api->exec_launch(engine->dev, engine->execs.buckets[index].exec, engine->stream));
    engine->own_launched = ++engine->launched;
    return FIG_OK;
}

/* Where the launch fails nothing is staged by it either, so that a caller who tries again is not a
 * plan behind for ever after. */
fig_status fig_engine_step(fig_engine *engine, const fig_step *step) {
    const int64_t uploaded_bytes = engine->uploaded_bytes;
    const int32_t last_bucket = engine->last_bucket;
    FIG_TRY(fig_engine_stage(engine, step));
    fig_status status = fig_engine_launch(engine);
    if (status == FIG_OK) return FIG_OK;
    /* A graph of the caller's that ran without a plan of its own may have taken this one. */
    if (fig_engine_launched(engine) == engine->staged) return status;
    fig_ring_take_back(&engine->ring);
    engine->staged--;
    engine->uploaded_bytes = uploaded_bytes;
    engine->last_bucket = last_bucket;
    return status;
}

/* Steps that are known to have ended. A fetch begins when all before it have ended, on whatever
 * stream; and those that we launched on our own stream have ended but for as many as are pending
 * there, each of them one launch or, of segments, several. */
static int64_t count_completed(const fig_engine *engine, int64_t pending) {
    const int64_t consumed = (int64_t)fig_ring_consumed(&engine->ring);
    const int64_t fetched = consumed > 0 ? consumed - 1 : 0, own = engine->own_launched - pending;
    return own > fetched ? own : fetched;
}

fig_status fig_engine_poll(fig_engine *engine, fig_progress *progress) {
    fig_progress ours = {.staged = engine->staged};
    int64_t pending;
    fig_status status =
        engine->api->stream_query(engine->dev, engine->stream, &pending, &ours.fault);
    if (status == FIG_OK) ours.completed = count_completed(engine, pending);
    fig_engine_catch_up(engine);
    ours.launched = engine->launched;
    if (ours.fault == FIG_OK && fig_ring_missed(&engine->ring) != engine->missed)
        ours.fault = fig_engine_miss_status(engine);
    const fig_status given = fig_status_give(progress, &ours, sizeof ours, "fig_progress");
    return status == FIG_OK ? given : status;
}

void fig_engine_read_stats(const fig_engine *engine, fig_engine_stats *stats) {
    fig_engine_stats ours = {
        .steps = fig_engine_launched(engine),
        .busy = engine->busy_count,
        .uploaded_bytes = engine->uploaded_bytes,
        .prepares = engine->execs.prepares,
        .patched_launches = engine->execs.patched_launches,
        .last_bucket = engine->last_bucket,
        .workspace_bytes = engine->workspace.bytes,
        .owned_bytes = fig_binding_owned_bytes(&engine->bindings),
        .pinned_bytes = engine->pinned.bytes,
    };
    fig_status_give(stats, &ours, sizeof ours, "fig_engine_stats");
}
