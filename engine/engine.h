/* engine.h: what an engine is made of.
 *
 * Owns nothing but the struct: engine.c sets it up and serves what is rare, replay.c runs the
 * steps, append.c hands them to a caller's own graphs. Invariant: launched <= staged, the steps
 * between are in the ring, and each was staged with the bindings that its exec still holds. */
#ifndef FIG_ENGINE_ENGINE_H
#define FIG_ENGINE_ENGINE_H

#include "engine/binding.h"
#include "engine/device.h"
#include "engine/execs.h"
#include "engine/ring.h"
#include "graphs/step.h"

/* The last fetch appended in one capture, or at once. */
typedef struct fig_engine_fetch {
    uint64_t capture; /* 0: at once */
    int32_t bucket;   /* index; -1: there was none */
} fig_engine_fetch;

/* Captures in which a caller can be between a fetch and a segment at the same time, and what runs
 * at once; of more, the oldest is forgotten and needs its fetch again. */
enum { FIG_ENGINE_FETCH_LIMIT = 1 + 8 };

struct fig_engine {
    const fig_graphs *graphs;        /* the caller's, shared */
    const fig_program_view *program; /* theirs */
    const fig_device_api *api;
    fig_dev *dev;
    fig_dev_stream *stream;
    fig_block workspace; /* graphs->workspace.bytes */
    fig_block plan;      /* graphs->plan_bytes: the step's that runs */
    fig_block cursor;    /* u64: number of the last plan fetched */
    fig_block pinned;    /* [words][slots] */
    fig_ring ring;
    fig_binding_table bindings;
    fig_execs execs;
    fig_step_stamps stamps;
    int32_t busy_us;
    int64_t staged, launched;
    int64_t own_launched; /* the last of them that was launched on `stream` by a call of ours */
    uint32_t staged_buckets[FIG_SLOT_LIMIT]; /* step n's at n % FIG_SLOT_LIMIT, n from 0 */
    int64_t busy_count, uploaded_bytes;
    int32_t last_bucket;
    uint64_t missed; /* misses that were reported */
    fig_tie *tie;    /* to the pieces that callers' graphs hold */
    fig_engine_fetch fetches[FIG_ENGINE_FETCH_LIMIT];
    uint32_t capture_count; /* with a fetch, so far */
};

/* Steps launched: by calls of ours, or by a graph of the caller's, which the ring shows once it has
 * fetched them. */
static inline int64_t fig_engine_launched(const fig_engine *engine) {
    const int64_t consumed = (int64_t)fig_ring_consumed(&engine->ring);
    return consumed > engine->launched ? consumed : engine->launched;
}

static inline void fig_engine_catch_up(fig_engine *engine) {
    engine->launched = fig_engine_launched(engine);
}

/* What a step that ran no rows is: too large, where only the device knew its lengths. */
static inline fig_status fig_engine_miss_status(const fig_engine *engine) {
    return fig_program_reads_lengths(engine->program) ? FIG_TOO_LARGE : FIG_DRIVER;
}

#endif
