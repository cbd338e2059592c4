/* execs.h: each bucket as a graph that the device can launch.
 *
 * Owns the lowered launches, the filling in of addresses and the choice between patching a launch
 * and making its bucket anew. Invariant: an exec holds exactly the params that stand in its
 * bucket's lowered form, so what a new binding changes is found by comparing. */
#ifndef FIG_ENGINE_EXECS_H
#define FIG_ENGINE_EXECS_H

#include "engine/binding.h"

/* What relocations mean, beside the tensors. */
typedef struct fig_exec_places {
    uint8_t *workspace;
    void *plan, *ring, *cursor, *words;
    uint32_t slot_count, slot_bytes;
} fig_exec_places;

typedef struct fig_exec_bucket {
    fig_lowered lowered; /* addresses filled in */
    fig_dev_exec *exec;
    uint64_t calls_version; /* of the bindings that its calls were made with */
} fig_exec_bucket;

typedef struct fig_execs {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    fig_exec_places places;
    fig_exec_bucket *buckets; /* [bucket_count of the graphs] */
    uint64_t version;         /* of the bindings that all of them hold; 0: of none */
    int64_t prepares, patched_launches;
} fig_execs;

/* finish takes a zeroed struct and a half-made one; nothing runs by then. */
fig_status fig_execs_init(fig_execs *execs, fig_binding_table *bindings, fig_dev_stream *stream,
                          const fig_exec_places *places);
void fig_execs_finish(fig_execs *execs);

/* 1: every bucket is launchable with the bindings in force. */
int fig_execs_ready(const fig_execs *execs);
/* Makes it so. On failure nothing may be launched until a later call succeeds. */
fig_status fig_execs_prepare(fig_execs *execs);

#endif
