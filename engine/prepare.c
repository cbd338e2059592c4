/* prepare.c: takes up new bindings, and makes buckets launchable with them.
 *
 * execs.c makes the execs. Invariant: once the bindings are settled, fig_engine_prepare() touches
 * only execs, which any thread may prepare. So a second thread can prepare buckets while the
 * engine's own thread runs steps. */
#include "engine/prepare.h"

#include <inttypes.h>

#include "include/figraph_unstable.h"
#include "planner/status.h"

fig_status fig_prepare_settle(fig_engine *engine) {
    if (fig_execs_settled(&engine->execs)) return FIG_OK;
    fig_engine_catch_up(engine);
    if (engine->staged != engine->launched)
        return fig_fail(FIG_ORDER,
                        "prepare: %" PRId64 " step%s staged with earlier bindings must be launched "
                        "first",
                        engine->staged - engine->launched,
                        FIG_PLURAL(engine->staged - engine->launched));
    const fig_status status = fig_execs_settle(&engine->execs);
    fig_stats_set(&engine->counters.prepares, engine->execs.settles);
    fig_engine_count_owned(engine);
    return status;
}

fig_status fig_prepare_bucket(fig_engine *engine, uint32_t bucket) {
    const uint32_t exec = fig_engine_exec_of(engine, bucket);
    FIG_TRY(fig_prepare_settle(engine));
    if (fig_execs_ready(&engine->execs, exec)) return FIG_OK;
    return fig_execs_prepare(&engine->execs, exec);
}

static fig_status enter_and_settle(fig_engine *engine) {
    FIG_TRY(fig_engine_enter(engine));
    return fig_engine_leave(engine, fig_prepare_settle(engine));
}

fig_status fig_engine_prepare(fig_engine *engine, int32_t bucket) {
    const fig_graphs *graphs = engine->graphs;
    FIG_TRY(fig_engine_check_caller(engine));
    if (bucket < 0 || (uint32_t)bucket > graphs->bucket_count)
        return fig_fail(FIG_INVALID, "prepare: bucket is %" PRId32 ", limits 0 to %" PRIu32, bucket,
                        graphs->bucket_count);
    if (!fig_execs_settled(&engine->execs)) FIG_TRY(enter_and_settle(engine));
    if (bucket > 0)
        return fig_execs_prepare(&engine->execs, fig_engine_exec_of(engine, (uint32_t)bucket - 1));
    for (uint32_t exec = 0; exec < graphs->exec_count; exec++)
        FIG_TRY(fig_execs_lower(&engine->execs, exec));
    for (uint32_t exec = 0; exec < graphs->exec_count; exec++)
        FIG_TRY(fig_execs_prepare(&engine->execs, exec));
    return FIG_OK;
}

static fig_status launch_info(fig_engine *engine, int32_t bucket, int32_t launch,
                              fig_launch_info *info) {
    const uint32_t bucket_count = engine->graphs->bucket_count;
    if (bucket < 1 || (uint32_t)bucket > bucket_count)
        return fig_fail(FIG_INVALID, "launch: bucket is %" PRId32 ", limits 1 to %" PRIu32, bucket,
                        bucket_count);
    const uint32_t exec = fig_engine_exec_of(engine, (uint32_t)bucket - 1);
    if (!fig_execs_ready(&engine->execs, exec))
        return fig_fail(FIG_ORDER,
                        "launch: bucket %" PRId32 " is not prepared with the bindings in force",
                        bucket);
    return fig_execs_launch_info(&engine->execs, exec, launch, info);
}

fig_status fig_engine_launch_info(fig_engine *engine, int32_t bucket, int32_t launch,
                                  fig_launch_info *info) {
    fig_launch_info ours = {.size = sizeof ours};
    FIG_TRY(fig_engine_enter(engine));
    const fig_status status = launch_info(engine, bucket, launch, &ours);
    const fig_status given = fig_status_give(info, &ours, sizeof ours, "fig_launch_info");
    return fig_engine_leave(engine, status != FIG_OK ? status : given);
}
