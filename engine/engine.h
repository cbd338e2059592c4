/* engine.h: the engine's struct.
 *
 * This file owns only the struct. open.c sets it up, engine.c serves the calls that are not made in
 * every step, prepare.c makes buckets launchable, replay.c runs the steps, append.c puts steps into
 * the caller's own graphs, and measure.c and timing.c measure times. An exec is a graph that the
 * device can launch. Invariant: launched <= staged. The plans of steps that are staged and not yet
 * launched are in the ring, and their execs still hold the bindings with which the steps were
 * staged. */
#ifndef FIG_ENGINE_ENGINE_H
#define FIG_ENGINE_ENGINE_H

#include "engine/bind/binding.h"
#include "engine/seam/device.h"
#include "engine/execs/execs.h"
#include "engine/seam/fork_check.h"
#include "engine/seam/thread_check.h"
#include "engine/plans/page_tables.h"
#include "engine/plans/ring.h"
#include "engine/plans/sharing.h"
#include "engine/seam/stats.h"
#include "graphs/step.h"
#include "planner/status.h"

/* The last fetch that was appended in one capture, or outside captures. */
typedef struct fig_engine_fetch {
    uint64_t capture; /* number of the capture; 0: the fetch ran at once */
    int32_t bucket;   /* index; -1: no fetch yet */
} fig_engine_fetch;

/* largest numa_node of the options, which counts nodes from 1 */
enum { FIG_NUMA_NODE_LIMIT = 1024 };

/* One entry for work that runs at once, and one for each of the 8 captures for which the engine
 * remembers a fetch. If the caller appends a fetch in a ninth capture, the engine drops its record
 * of the oldest; a later segment in the oldest capture then needs another fetch before it. */
enum { FIG_ENGINE_FETCH_LIMIT = 1 + 8 };

/* A staged plan. */
typedef struct fig_engine_plan {
    uint32_t bucket;
    fig_dev_exec *exec; /* launches the plan's steps */
    /* the plan serves launches first to end - 1, counted from 0 since fig_engine_open() */
    int64_t first, end;
    fig_sharing_counts shared;
} fig_engine_plan;

/* Enough entries for all plans that have launches left: one plan for each slot of the ring, and the
 * running plan. */
enum { FIG_ENGINE_PLAN_LIMIT = 2 * FIG_SLOT_LIMIT };

/* Counters that fig_engine_read_stats may read at any time, from any thread. */
typedef struct fig_engine_counters {
    int64_t staged, launched, taken_back, busy, reused_splits, uploaded_bytes, page_bytes;
    int64_t prepares, patched_launches, owned_bytes;
    int64_t last_bucket; /* counted from 1; 0 before the first step is staged */
    int64_t shared_steps, shared_groups, shared_read, shared_saved;
    fig_histogram host, period;
} fig_engine_counters;

struct fig_engine {
    fig_thread_check owner;
    fig_fork_check fork;
    const fig_graphs *graphs;        /* owned by the caller, who may share them between engines */
    const fig_program_view *program; /* part of graphs */
    const fig_device_api *api;
    fig_dev *dev;
    fig_archive_admitted admitted; /* kernel images of the graphs' file, if it is trusted */
    fig_dev_stream *stream;
    fig_block workspace; /* graphs->workspace.bytes */
    fig_block plan;      /* graphs->plan_bytes: the plan of the running step */
    fig_block state;     /* [fig_fetch_state][a slot] */
    fig_block pinned;    /* [words][slots][pages in bulk] */
    fig_ring ring;
    fig_binding_table bindings;
    fig_execs execs;
    fig_page_tables tables;
    fig_sharing sharing;
    fig_plan_held held;
    fig_mask_lines lines;
    fig_step_stamps stamps;
    int32_t busy_us, check_plans;
    int64_t staged, launched; /* numbers of launches; a horizon has several */
    int64_t own_launched;     /* value of `launched` after the last launch on `stream` */
    fig_engine_plan plans[FIG_ENGINE_PLAN_LIMIT]; /* plan n is entry n % FIG_ENGINE_PLAN_LIMIT */
    uint64_t running; /* number of the plan that the next launch will run */
    /* The kernel to enqueue before the next step if the device may still hold a plan that was taken
     * back. FIG_FETCH_FORGET: a whole plan was taken back. FIG_FETCH_DROP: the rest of a horizon
     * was taken back. 0: there is nothing to enqueue. */
    uint32_t drop_due;
    uint32_t plan_bytes; /* size of the plan staged last */
    int64_t host_ns;     /* host time spent on steps since the last launch */
    int64_t launch_ns;   /* time of the last launch; 0: no launch yet */
    uint64_t missed;     /* launches without a plan that fig_engine_wait() has reported */
    uint64_t torn;       /* damaged plans for which `held` has been reset */
    uint64_t told_torn;  /* damaged plans that fig_engine_wait() has reported */
    uint64_t told_late;  /* the same for plans behind them, see fig_ring_late() */
    fig_engine_counters counters;
    fig_graph_refs *refs; /* counts our pieces in callers' graphs; see graph_refs.h */
    fig_engine_fetch fetches[FIG_ENGINE_FETCH_LIMIT];
    uint32_t capture_count; /* number of captures so far that appended a fetch */
};

static inline fig_engine_plan *fig_engine_plan_of(fig_engine *engine, uint64_t number) {
    return &engine->plans[number % FIG_ENGINE_PLAN_LIMIT];
}

/* Fails for two kinds of callers: a child forked from the process that opened the engine, and a
 * callback that the engine has called. Any thread may make this check. */
static inline fig_status fig_engine_check_caller(const fig_engine *engine) {
    if (fig_fork_check_is_child(&engine->fork))
        return fig_fail(FIG_LOST,
                        "engine: this process was forked from the one that opened it; only "
                        "that one may use it");
    if (engine->api->is_calling(engine->dev, engine->stream))
        return fig_fail(FIG_ORDER, "engine: a callback may not call the engine that called it");
    return FIG_OK;
}

/* Every call that uses the device begins with fig_engine_enter() and ends with fig_engine_leave(),
 * which returns `status`. */
static inline fig_status fig_engine_enter(fig_engine *engine) {
    FIG_TRY(fig_engine_check_caller(engine));
    return fig_thread_check_enter(&engine->owner);
}

static inline fig_status fig_engine_leave(fig_engine *engine, fig_status status) {
    return fig_thread_check_leave(&engine->owner, status);
}

/* Records the launch of `count` more steps. */
static inline void fig_engine_pass(fig_engine *engine, int64_t count) {
    engine->launched += count;
    fig_stats_set(&engine->counters.launched, engine->launched);
    while (engine->running < engine->ring.next &&
           fig_engine_plan_of(engine, engine->running)->end <= engine->launched)
        engine->running++;
}

/* Counts the steps that callers' graphs have launched. Such a step shows in the ring when the graph
 * has fetched its plan. The engine's own launches are counted when they are made. */
static inline void fig_engine_catch_up(fig_engine *engine) {
    const int64_t replays = (int64_t)fig_ring_replays(&engine->ring);
    if (replays > engine->launched) fig_engine_pass(engine, replays - engine->launched);
}

/* Updates owned_bytes, the counter of the bytes that the engine has allocated for tensors. */
static inline void fig_engine_count_owned(fig_engine *engine) {
    fig_stats_set(&engine->counters.owned_bytes,
                  (int64_t)fig_binding_owned_bytes(&engine->bindings));
}

/* Returns the bucket of the step that will be launched next. A step must be staged. */
static inline uint32_t fig_engine_next_bucket(fig_engine *engine) {
    assert(engine->launched < engine->staged);
    return fig_engine_plan_of(engine, engine->running)->bucket;
}

/* Returns the exec that launches the steps of a bucket. Execs and buckets count from 0. */
static inline uint32_t fig_engine_exec_of(const fig_engine *engine, uint32_t bucket) {
    return engine->graphs->buckets[bucket].plan.exec;
}

/* Returns the status for a step that ran no rows. If the program reads lengths on the device, the
 * lengths were too large for the bucket. Otherwise the launch found no plan, or none that was
 * sound. */
static inline fig_status fig_engine_miss_status(const fig_engine *engine) {
    if (fig_ring_torn(&engine->ring) != engine->told_torn ||
        fig_ring_late(&engine->ring) != engine->told_late)
        return FIG_DRIVER;
    return fig_program_view_reads_lengths(engine->program) ? FIG_TOO_LARGE : FIG_DRIVER;
}

#endif
