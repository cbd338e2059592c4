/* execs.h: graphs that the device can launch, each for all buckets that need the same launches;
 * parts of them that a caller asks for.
 *
 * Owns the lowered launches, the filling in of addresses, the choice of families, and that between
 * patching a launch and making an exec anew; parts are always made anew. An exec also looks ahead
 * for the next plan, beside its later half; of a part the fetch itself tells the host what it did.
 *
 * New bindings are taken up by settle, once nothing is staged, and reach an exec when it is next
 * prepared: when a step first needs it, or earlier. prepare alone may run on two threads: each exec
 * has a lock of its own, so neither waits for an exec that it has no use for. Invariant: an
 * exec that is ready holds exactly the params that stand in its lowered form, filled in from the
 * bindings in force. */
#ifndef FIG_ENGINE_EXECS_H
#define FIG_ENGINE_EXECS_H

#include <pthread.h>

#include "engine/binding.h"
#include "include/figraph_unstable.h"
#include "kernels/families.h"

/* What relocations mean, beside the tensors. */
typedef struct fig_exec_places {
    uint8_t *workspace;
    void *plan, *ring, *state, *words;
    fig_dev_met met;
    uint32_t slot_count, slot_bytes;
} fig_exec_places;

/* What a caller may ask for: so many nodes from one on, and the fetch before them or not. */
typedef struct fig_exec_part {
    uint32_t node, node_count;
    int fetches;
} fig_exec_part;

typedef struct fig_exec_segment {
    fig_exec_part part;
    fig_dev_graph *graph;
} fig_exec_segment;

typedef struct fig_exec {
    pthread_mutex_t making; /* held by who prepares it */
    uint64_t version;       /* of the bindings that it is ready for; 0: of none. Another thread's
                               prepare may set it */
    fig_lowered lowered;    /* addresses filled in */
    fig_family_choice *choices; /* [launch_count] for those addresses; of a call: zero */
    fig_dev_exec *exec;
    fig_dev_exec *retired;      /* the one before, which may still be running; NULL: none */
    int is_true;                /* 1: `exec` holds the launches that stand above */
    uint64_t calls_version;     /* of the bindings that its calls were made with */
    fig_exec_segment *segments; /* [segment_count of the program + 2]; NULL: none was asked for */
    uint32_t segment_count;     /* made, with the bindings in force */
} fig_exec;

typedef struct fig_execs {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    fig_exec_places places;
    fig_traits traits;           /* what kernels may rely on */
    fig_exec *of;                /* [exec_count of the graphs] */
    fig_dev_exec *drop, *forget; /* FIG_FETCH_DROP, FIG_FETCH_FORGET; NULL before settle */
    uint64_t version;            /* of the bindings that were taken up; 0: of none */
    int64_t settles, patched_launches, made; /* made: execs that there are */
} fig_execs;

/* finish takes a zeroed struct and a half-made one; nothing runs by then. */
fig_status fig_execs_init(fig_execs *execs, fig_binding_table *bindings, fig_dev_stream *stream,
                          const fig_exec_places *places);
void fig_execs_finish(fig_execs *execs);

/* 1: the bindings in force were taken up. */
int fig_execs_settled(const fig_execs *execs);
/* Takes them up. Nothing is staged with those before. On failure no exec is ready, until a later
 * call succeeds. */
fig_status fig_execs_settle(fig_execs *execs);

/* 1: the exec can be launched, and holds the bindings in force. */
static inline int fig_execs_ready(const fig_execs *execs, uint32_t exec) {
    /* Partner: the release in fig_execs_prepare. */
    return __atomic_load_n(&execs->of[exec].version, __ATOMIC_ACQUIRE) == execs->bindings->version;
}
/* The part of that which takes nothing of the device: done for all execs first, what they have in
 * common is read once from memory, and not again behind each that the driver makes. */
fig_status fig_execs_lower(fig_execs *execs, uint32_t exec);
/* Makes it so; settled by then. */
fig_status fig_execs_prepare(fig_execs *execs, uint32_t exec);

/* What follows is of an exec that is ready. */

/* Which family serves a launch. FIG_INVALID: there is no such launch. */
fig_status fig_execs_launch_info(const fig_execs *execs, uint32_t exec, int32_t launch,
                                 fig_launch_info *info);

/* The graph of a part of it, made on the first call since its bindings were taken up. A part is all
 * of it, its fetch, or a segment of the program. Launches outside it are nobody's to wait for: the
 * stream that the graph is enqueued on orders them. */
fig_status fig_execs_segment(fig_execs *execs, uint32_t exec, const fig_exec_part *part,
                             fig_dev_graph **graph);

/* Its launches, the fetch and the look ahead among them. */
uint32_t fig_execs_launch_count(const fig_execs *execs, uint32_t exec);

#endif
