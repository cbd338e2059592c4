/* engine.h: what an engine is made of.
 *
 * Owns nothing but the struct: engine.c sets it up and serves what is rare, replay.c runs the
 * steps. Invariant: launched <= staged, the steps between are in the ring, and none of them was
 * staged with bindings that its exec no longer holds. */
#ifndef FIG_ENGINE_ENGINE_H
#define FIG_ENGINE_ENGINE_H

#include "engine/binding.h"
#include "engine/device.h"
#include "engine/execs.h"
#include "engine/ring.h"
#include "graphs/step.h"

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
    uint32_t staged_buckets[FIG_SLOT_LIMIT]; /* step n's at n % FIG_SLOT_LIMIT, n from 0 */
    int64_t busy_count, uploaded_bytes;
    int32_t last_bucket;
    uint64_t missed; /* misses that were reported */
};

/* What a step that ran no rows is: too large, where only the device knew its lengths. */
static inline fig_status fig_engine_miss_status(const fig_engine *engine) {
    return fig_program_reads_lengths(engine->program) ? FIG_TOO_LARGE : FIG_DRIVER;
}

#endif
