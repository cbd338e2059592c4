/* engine.h: what an engine is made of.
 *
 * Owns nothing but the struct: open.c sets it up, engine.c serves what is rare, prepare.c makes
 * buckets launchable, replay.c runs the steps, append.c hands them to a caller's own graphs,
 * measure.c times them. Invariant: launched <= staged, the steps between are those of plans in the
 * ring, and each was staged with the bindings that its exec still holds. */
#ifndef FIG_ENGINE_ENGINE_H
#define FIG_ENGINE_ENGINE_H

#include "engine/binding.h"
#include "engine/device.h"
#include "engine/execs.h"
#include "engine/fork_check.h"
#include "engine/thread_check.h"
#include "engine/page_tables.h"
#include "engine/ring.h"
#include "engine/stats.h"
#include "graphs/step.h"
#include "planner/status.h"

/* The last fetch appended in one capture, or at once. */
typedef struct fig_engine_fetch {
    uint64_t capture; /* 0: at once */
    int32_t bucket;   /* index; -1: there was none */
} fig_engine_fetch;

enum { FIG_NUMA_NODE_LIMIT = 1024 }; /* counted from 1 */

/* Captures in which a caller can be between a fetch and a segment at the same time, and what runs
 * at once; of more, the oldest is forgotten and needs its fetch again. */
enum { FIG_ENGINE_FETCH_LIMIT = 1 + 8 };

/* A plan that was staged. */
typedef struct fig_engine_plan {
    uint32_t bucket;
    fig_dev_exec *exec; /* that its steps are launched by */
    int64_t first, end; /* launches that it is for, counted from 0 since open */
} fig_engine_plan;

/* Plans with launches to come: as many as the ring has slots, and the one that runs. */
enum { FIG_ENGINE_PLAN_LIMIT = 2 * FIG_SLOT_LIMIT };

/* What fig_engine_read_stats may read at any time. */
typedef struct fig_engine_counters {
    int64_t staged, launched, taken_back, busy, reused_splits, uploaded_bytes, page_bytes;
    int64_t prepares, patched_launches, owned_bytes;
    int64_t last_bucket; /* counted from 1; 0 before the first */
    fig_histogram host, period;
} fig_engine_counters;

struct fig_engine {
    fig_thread_check owner;
    fig_fork_check fork;
    const fig_graphs *graphs;        /* the caller's, shared */
    const fig_program_view *program; /* theirs */
    const fig_device_api *api;
    fig_dev *dev;
    fig_archive_admitted admitted; /* images of the graphs' file, where the caller trusts them */
    fig_dev_stream *stream;
    fig_block workspace; /* graphs->workspace.bytes */
    fig_block plan;      /* graphs->plan_bytes: the step's that runs */
    fig_block state;     /* [fig_fetch_state][a slot] */
    fig_block pinned;    /* [words][slots][pages in bulk] */
    fig_ring ring;
    fig_binding_table bindings;
    fig_execs execs;
    fig_page_tables tables;
    fig_plan_held held;
    fig_step_stamps stamps;
    int32_t busy_us, check_plans;
    int64_t staged, launched; /* steps */
    int64_t own_launched; /* the last of them that a call of ours launched: `stream` ends then */
    fig_engine_plan plans[FIG_ENGINE_PLAN_LIMIT]; /* number n at n % FIG_ENGINE_PLAN_LIMIT */
    uint64_t running;  /* number of the plan that the step launched next is of */
    uint32_t drop_due; /* FIG_FETCH_DROP, FIG_FETCH_FORGET: what the device may hold of a plan that
                          was taken back, or of the rest of one; 0: nothing */
    uint32_t plan_bytes; /* of the plan staged last */
    int64_t host_ns;     /* spent on the step that is being made */
    int64_t launch_ns;   /* when the last launch was made; 0: none was */
    uint64_t missed;     /* misses that were reported */
    uint64_t torn;       /* torn plans that are accounted for in `held` */
    uint64_t told_torn;  /* torn plans that were reported */
    fig_engine_counters counters;
    fig_graph_refs *refs; /* to the pieces that callers' graphs hold */
    fig_engine_fetch fetches[FIG_ENGINE_FETCH_LIMIT];
    uint32_t capture_count; /* with a fetch, so far */
};

static inline fig_engine_plan *fig_engine_plan_of(fig_engine *engine, uint64_t number) {
    return &engine->plans[number % FIG_ENGINE_PLAN_LIMIT];
}

/* What is refused on whatever thread: a child of the process that opened it, and a callback. */
static inline fig_status fig_engine_check_caller(const fig_engine *engine) {
    if (fig_fork_check_is_child(&engine->fork))
        return fig_fail(FIG_LOST, "engine: this process was forked from the one that opened it, "
                                  "which alone may use it");
    if (engine->api->is_calling(engine->dev, engine->stream))
        return fig_fail(FIG_ORDER, "engine: a callback may not call the engine that called it");
    return FIG_OK;
}

/* At the head of every call that works with the device; leave returns `status`. */
static inline fig_status fig_engine_enter(fig_engine *engine) {
    FIG_TRY(fig_engine_check_caller(engine));
    return fig_thread_check_enter(&engine->owner);
}

static inline fig_status fig_engine_leave(fig_engine *engine, fig_status status) {
    return fig_thread_check_leave(&engine->owner, status);
}

/* Notes that `count` more steps were launched. */
static inline void fig_engine_pass(fig_engine *engine, int64_t count) {
    engine->launched += count;
    fig_stats_set(&engine->counters.launched, engine->launched);
    while (engine->running < engine->ring.next &&
           fig_engine_plan_of(engine, engine->running)->end <= engine->launched)
        engine->running++;
}

/* Steps are launched by calls of ours, or by a graph of the caller's, which the ring shows once it
 * has fetched them. */
static inline void fig_engine_catch_up(fig_engine *engine) {
    const int64_t replays = (int64_t)fig_ring_replays(&engine->ring);
    if (replays > engine->launched) fig_engine_pass(engine, replays - engine->launched);
}

/* Brings the counter of the engine's own bytes up to date. */
static inline void fig_engine_count_owned(fig_engine *engine) {
    fig_stats_set(&engine->counters.owned_bytes,
                  (int64_t)fig_binding_owned_bytes(&engine->bindings));
}

/* The bucket of the step that is launched next; there is one. */
static inline uint32_t fig_engine_next_bucket(fig_engine *engine) {
    assert(engine->launched < engine->staged);
    return fig_engine_plan_of(engine, engine->running)->bucket;
}

/* The exec that a bucket's steps are launched by; index from 0. */
static inline uint32_t fig_engine_exec_of(const fig_engine *engine, uint32_t bucket) {
    return engine->graphs->buckets[bucket].plan.exec;
}

/* What a step that ran no rows is: too large, where only the device knew its lengths. */
static inline fig_status fig_engine_miss_status(const fig_engine *engine) {
    return fig_program_view_reads_lengths(engine->program) ? FIG_TOO_LARGE : FIG_DRIVER;
}

#endif
