/* replay.c: stages a step, launches it, takes it back, and reports progress.
 *
 * These calls are made in every step. In this file nothing allocates, locks or logs, and the only
 * wait is the bounded wait for a free slot. fig_engine_stage() writes one slot and never changes a
 * graph. fig_engine_launch() makes one call to the device. Invariant: plans are launched in the
 * order in which they were staged, each once for every step of its horizon. Every launch uses the
 * exec of the plan's bucket, or a graph that the caller captured with the nodes of that bucket
 * (append.c). */
#include "engine/replay.h"

#include <inttypes.h>

#include "engine/seam/clock.h"
#include "engine/prepare.h"
#include "planner/status.h"

/* ---- Stage --------------------------------------------------------------------------------- */

/* Enqueues, behind everything launched so far, a kernel that drops the plan that the device has
 * prefetched. If the rest of a horizon was taken back, the kernel also drops that rest. */
static fig_status drop(fig_engine *engine) {
    const fig_execs *execs = &engine->execs;
    fig_dev_exec *exec = engine->drop_due == FIG_FETCH_DROP ? execs->drop : execs->forget;
    FIG_TRY(engine->api->exec_launch(engine->dev, exec, engine->stream));
    engine->drop_due = 0;
    return FIG_OK;
}

/* Handles the rare cases before a step is planned: the bindings changed, or a plan was taken
 * back. */
static fig_status catch_up_on_rare(fig_engine *engine) {
    if (!fig_execs_settled(&engine->execs)) FIG_TRY(fig_prepare_settle(engine));
    if (engine->drop_due != 0) FIG_TRY(drop(engine));
    return FIG_OK;
}

/* After a damaged plan, the next plan that the device accepts must be whole. So the number in its
 * stamp decides, which may have grown while the host waited for a slot. With an older number, a
 * host that always waits would send a part under each new stamp, and the device would refuse all
 * its plans. */
static void catch_up_on_damage(fig_engine *engine) {
    if (engine->tables.torn != engine->torn) engine->held.exec = -1;
    engine->torn = engine->tables.torn;
}

static void write_slot(fig_engine *engine, const fig_plan_shape *shape, const fig_plan_step *step,
                       uint8_t *slot) {
    fig_engine_counters *counters = &engine->counters;
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    uint32_t sections = fig_plan_settle(shape, step, &engine->held);
    if (engine->check_plans) sections |= FIG_PLAN_HAS_CHECKSUM;
    sections |= fig_plan_stamp(engine->tables.torn);
    uint32_t bytes = fig_plan_write(shape, step, sections, &engine->held, slot);
    bytes = fig_page_tables_carry(&engine->tables, slot, bytes);
    if (engine->check_plans || bytes <= FIG_PLAN_SHORT_BYTES)
        head->checksum = fig_plan_sum(slot, bytes, engine->ring.next);
    fig_ring_publish(&engine->ring, slot, bytes);
    engine->plan_bytes = bytes;
    fig_stats_add(&counters->uploaded_bytes, bytes);
    fig_stats_add(&counters->reused_splits,
                  step->lengths != NULL && !(sections & FIG_PLAN_HAS_SPLITS));
}

/* Counts the groups of a plan; `sign` is -1 if it was taken back. */
static void count_shared(fig_engine *engine, const fig_sharing_counts *shared, int64_t sign) {
    fig_engine_counters *counters = &engine->counters;
    if (shared->groups == 0) return;
    fig_stats_add(&counters->shared_steps, sign);
    fig_stats_add(&counters->shared_groups, sign * shared->groups);
    fig_stats_add(&counters->shared_read, sign * shared->tokens.read);
    fig_stats_add(&counters->shared_saved, sign * shared->tokens.saved);
}

/* Chooses as if the step had groups, but none that leave a row without work. Whether rows share
 * pages may differ from rank to rank, and all ranks must take the same bucket. */
static fig_status choose_alike(fig_engine *engine, fig_plan_step *step, int32_t *index) {
    static const fig_plan_groups none = {.count = 0};
    const fig_bucket_shape *buckets = engine->graphs->buckets;
    step->groups = engine->sharing.off == NULL ? &none : NULL;
    FIG_TRY(fig_bucket_choose(buckets, (int32_t)engine->graphs->bucket_count, step, index));
    step->groups = fig_sharing_find(&engine->sharing, &buckets[*index].plan, step);
    return FIG_OK;
}

/* A step with groups takes other buckets than one without, and its groups decide which. Mostly they
 * are those of the step before it; then one choice is enough. If that step had more rows, its
 * groups may name rows that this one does not have. */
fig_status fig_replay_choose(fig_engine *engine, fig_plan_step *step, int32_t *index) {
    const fig_bucket_shape *buckets = engine->graphs->buckets;
    const int32_t count = (int32_t)engine->graphs->bucket_count;
    const fig_sharing *sharing = &engine->sharing;
    const int had_groups = fig_sharing_had_groups(sharing) && sharing->prefixes.rows == step->rows;
    if (engine->execs.places.met.ranks > 1) return choose_alike(engine, step, index);
    if (step->bucket >= 1 && step->bucket <= count) {
        step->groups = fig_sharing_find(&engine->sharing, &buckets[step->bucket - 1].plan, step);
        return fig_bucket_choose(buckets, count, step, index);
    }
    if (had_groups) step->groups = &sharing->found;
    FIG_TRY(fig_bucket_choose(buckets, count, step, index));
    step->groups = fig_sharing_find(&engine->sharing, &buckets[*index].plan, step);
    const int has_groups = step->groups != NULL;
    if (had_groups == has_groups && !(has_groups && sharing->is_new)) return FIG_OK;
    return fig_bucket_choose(buckets, count, step, index);
}

void fig_replay_complete(fig_engine *engine, int32_t index, fig_plan_step *step) {
    const fig_bucket_shape *bucket = &engine->graphs->buckets[index];
    if (fig_plan_strips_room(&bucket->plan) == 0) step->groups = NULL; /* the step names it */
    step->hidden = fig_mask_lines_find(&engine->lines, &bucket->plan, step);
    step->paces = bucket->paces;
    step->serves_tails = engine->execs.of[bucket->plan.exec].serves_tails;
}

fig_status fig_replay_put(fig_engine *engine, const fig_plan_step *step, int32_t index) {
    const fig_plan_shape *shape = &engine->graphs->buckets[index].plan;
    uint8_t *slot;
    if (!fig_execs_ready(&engine->execs, shape->exec))
        FIG_TRY(fig_execs_prepare(&engine->execs, shape->exec));
    fig_status status = fig_ring_claim(&engine->ring, engine->busy_us, &slot);
    if (status == FIG_OK) status = fig_page_tables_make_fit(&engine->tables, engine->running);
    if (status == FIG_BUSY) fig_stats_add(&engine->counters.busy, 1);
    FIG_TRY(status);
    catch_up_on_damage(engine);

    fig_plan_step shared = *step;
    const fig_sharing_plans plans = {engine->ring.next, engine->running};
    fig_replay_complete(engine, index, &shared);
    const fig_engine_plan plan = {.bucket = (uint32_t)index,
                                  .exec = engine->execs.of[shape->exec].exec,
                                  .first = engine->staged,
                                  .end = engine->staged + step->horizon,
                                  .shared = fig_sharing_note(&engine->sharing, &shared, &plans)};
    *fig_engine_plan_of(engine, engine->ring.next) = plan;
    write_slot(engine, shape, &shared, slot);
    count_shared(engine, &plan.shared, 1);
    engine->staged += step->horizon;
    fig_stats_set(&engine->counters.staged, engine->staged);
    fig_stats_set(&engine->counters.last_bucket, index + 1);
    return FIG_OK;
}

static fig_status stage(fig_engine *engine, const fig_step *step) {
    fig_plan_step planned;
    int32_t index;
    fig_ring_warm(&engine->ring, engine->plan_bytes);
    fig_engine_catch_up(engine);
    FIG_TRY(fig_step_check(engine->program, step, &engine->stamps, &planned));
    FIG_TRY(catch_up_on_rare(engine));
    FIG_TRY(fig_replay_choose(engine, &planned, &index));
    return fig_replay_put(engine, &planned, index);
}

fig_status fig_engine_stage(fig_engine *engine, const fig_step *step) {
    FIG_TRY(fig_engine_enter(engine));
    const int64_t begin_ns = fig_clock_ns();
    const fig_status status = stage(engine, step);
    engine->host_ns += fig_clock_ns() - begin_ns;
    return fig_engine_leave(engine, status);
}

/* ---- Launch -------------------------------------------------------------------------------- */

static fig_status launch(fig_engine *engine) {
    fig_engine_catch_up(engine);
    if (engine->launched == engine->staged) return fig_fail(FIG_ORDER, "launch: nothing is staged");
    fig_dev_exec *exec = fig_engine_plan_of(engine, engine->running)->exec;
    FIG_TRY(engine->api->exec_launch(engine->dev, exec, engine->stream));
    fig_engine_pass(engine, 1);
    engine->own_launched = engine->launched;
    return FIG_OK;
}

/* Records the host time of a successful launch call that began at begin_ns. */
static void note_times(fig_engine *engine, int64_t begin_ns) {
    const int64_t end_ns = fig_clock_ns();
    fig_stats_record(&engine->counters.host, engine->host_ns + end_ns - begin_ns);
    if (engine->launch_ns != 0)
        fig_stats_record(&engine->counters.period, end_ns - engine->launch_ns);
    engine->launch_ns = end_ns;
    engine->host_ns = 0;
}

fig_status fig_engine_launch(fig_engine *engine) {
    FIG_TRY(fig_engine_enter(engine));
    const int64_t begin_ns = fig_clock_ns();
    const fig_status status = launch(engine);
    if (status == FIG_OK) note_times(engine, begin_ns);
    return fig_engine_leave(engine, status);
}

/* ---- Take back ----------------------------------------------------------------------------- */

static void note_unpublished(fig_engine *engine, const uint8_t *slot) {
    const fig_plan_head *head = (const fig_plan_head *)(const void *)slot;
    const uint64_t before = engine->ring.next - 1;
    const int64_t last = before > 0 ? (int64_t)fig_engine_plan_of(engine, before)->bucket + 1 : 0;
    fig_page_tables_restore(&engine->tables);
    fig_stats_add(&engine->counters.uploaded_bytes, -(int64_t)head->bytes);
    fig_stats_set(&engine->counters.last_bucket, last);
}

/* Takes the newest plan back. If none of the plan's steps was launched, the whole plan is taken
 * back; otherwise only the remaining steps of its horizon are. */
static fig_status take_back(fig_engine *engine) {
    fig_engine_catch_up(engine);
    if (engine->launched == engine->staged)
        return fig_fail(FIG_ORDER, "take back: nothing is staged");
    fig_engine_plan *plan = fig_engine_plan_of(engine, engine->ring.next - 1);
    const int64_t left = plan->first > engine->launched ? plan->first : engine->launched;
    const uint8_t *slot = NULL;
    if (plan->first == left && (slot = fig_ring_take_back(&engine->ring)) == NULL)
        return fig_fail(FIG_ORDER, "take back: a graph of yours has fetched the plan");
    fig_stats_add(&engine->counters.taken_back, engine->staged - left);
    engine->staged = left;
    fig_stats_set(&engine->counters.staged, left);
    plan->end = left;
    if (slot != NULL) {
        note_unpublished(engine, slot);
        count_shared(engine, &plan->shared, -1);
        if (plan->shared.groups > 0) fig_sharing_forget_plan(&engine->sharing, engine->ring.next);
        if (engine->drop_due == 0) engine->drop_due = FIG_FETCH_FORGET;
    } else {
        fig_engine_pass(engine, 0);
        engine->drop_due = FIG_FETCH_DROP;
    }
    engine->held.exec = -1;
    return FIG_OK;
}

fig_status fig_engine_take_back(fig_engine *engine) {
    FIG_TRY(fig_engine_enter(engine));
    const fig_status status = take_back(engine);
    /* If the device refuses the drop, the plan is still taken back: `drop_due` stays set, and the
     * next fig_engine_stage() first drops the plan or returns the error. */
    if (status == FIG_OK) drop(engine);
    return fig_engine_leave(engine, status);
}

/* Stages a step and launches it. If an older step still waits for its launch, the call fails: the
 * launch would run the older step and leave the new one staged, so every later step would run one
 * call late. If the launch fails, the step is taken back, because otherwise each retry would lag by
 * one plan. The device has just refused a call, so the next call enqueues the drop. */
static fig_status step_once(fig_engine *engine, const fig_step *step) {
    fig_engine_catch_up(engine);
    if (engine->launched < engine->staged)
        return fig_fail(FIG_ORDER,
                        "step: launches still due from earlier steps: %" PRId64
                        "; launch them or take them back, or stage this step behind them",
                        engine->staged - engine->launched);
    FIG_TRY(stage(engine, step));
    const int64_t staged = engine->staged;
    fig_status status = launch(engine);
    if (status == FIG_OK) return FIG_OK;
    fig_engine_catch_up(engine);
    /* If the caller replayed a graph without staging a step, that graph may have fetched this
     * plan. */
    if (engine->launched < staged) take_back(engine);
    return status;
}

fig_status fig_engine_step(fig_engine *engine, const fig_step *step) {
    FIG_TRY(fig_engine_enter(engine));
    const int64_t begin_ns = fig_clock_ns();
    const fig_status status = step_once(engine, step);
    if (status == FIG_OK) {
        note_times(engine, begin_ns);
    } else {
        engine->host_ns += fig_clock_ns() - begin_ns;
    }
    return fig_engine_leave(engine, status);
}

/* ---- Progress ------------------------------------------------------------------------------ */

/* Returns the number of steps that are known to have ended. This is the larger of two counts.
 * First, a step's fetch runs only after all earlier steps have ended, on any stream, so all fetched
 * steps except the newest have ended. Second, at most `pending` of the steps on the engine's own
 * stream have not ended, because each pending launch is a whole step or one segment of a step. */
static int64_t count_completed(const fig_engine *engine, int64_t pending) {
    const int64_t replays = (int64_t)fig_ring_replays(&engine->ring);
    const int64_t fetched = replays > 0 ? replays - 1 : 0, own = engine->own_launched - pending;
    return own > fetched ? own : fetched;
}

static fig_status poll(fig_engine *engine, fig_progress *progress) {
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

fig_status fig_engine_poll(fig_engine *engine, fig_progress *progress) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, poll(engine, progress));
}

fig_status fig_engine_read_stats(const fig_engine *engine, fig_engine_stats *stats) {
    const fig_engine_counters *counters = &engine->counters;
    fig_engine_stats ours = {
        .staged = fig_stats_get(&counters->staged),
        .launched = fig_stats_get(&counters->launched),
        .taken_back = fig_stats_get(&counters->taken_back),
        .busy = fig_stats_get(&counters->busy),
        .missed = (int64_t)fig_ring_missed(&engine->ring),
        .reused_splits = fig_stats_get(&counters->reused_splits),
        .uploaded_bytes = fig_stats_get(&counters->uploaded_bytes),
        .page_bytes = fig_stats_get(&counters->page_bytes),
        .prepares = fig_stats_get(&counters->prepares),
        .patched_launches = fig_stats_get(&engine->execs.patched_launches),
        .shared_steps = fig_stats_get(&counters->shared_steps),
        .shared_groups = fig_stats_get(&counters->shared_groups),
        .shared_read = fig_stats_get(&counters->shared_read),
        .shared_saved = fig_stats_get(&counters->shared_saved),
        .exec_count = (int32_t)fig_stats_get(&engine->execs.made),
        .last_bucket = (int32_t)fig_stats_get(&counters->last_bucket),
        .workspace_bytes = engine->workspace.bytes,
        .owned_bytes = (uint64_t)fig_stats_get(&counters->owned_bytes),
        .pinned_bytes = engine->pinned.bytes,
    };
    ours.exec_bytes = (uint64_t)ours.exec_count * fig_memory_exec_bytes(engine->graphs);
    fig_stats_read(&counters->host, &ours.host);
    fig_stats_read(&counters->period, &ours.period);
    return fig_status_give(stats, &ours, sizeof ours, "fig_engine_stats");
}
