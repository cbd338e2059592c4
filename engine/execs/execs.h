/* execs.h: makes the graphs that the device launches, and the parts of them that callers append.
 *
 * An exec is a bucket's graph in launchable form; buckets that need the same launches share an
 * exec. This file owns the lowered launches, fills in their addresses and chooses the family that
 * serves each launch. When bindings change, it decides whether to patch an exec or to make it
 * again; parts are always made again. An exec contains a look ahead: a node that runs beside the
 * later half of the step, prefetches the next plan and reports progress to the host. A part has no
 * look ahead, so the part's fetch reports progress.
 *
 * fig_execs_settle() makes new bindings current; no step may be staged then. An exec gets the new
 * bindings when it is next prepared: when a step first needs the exec, or earlier if the caller
 * asks. Only fig_execs_lower() and fig_execs_prepare() may run on two threads at once. Each exec
 * has its own lock, so a thread never waits for an exec that it does not need. Invariant: the
 * params of a ready exec equal those in its lowered form, filled in from the current bindings. */
#ifndef FIG_ENGINE_EXECS_H
#define FIG_ENGINE_EXECS_H

#include <pthread.h>

#include "engine/bind/binding.h"
#include "include/figraph_unstable.h"
#include "kernels/table/families.h"

/* The values, besides the bound tensors, to which relocations refer. */
typedef struct fig_exec_places {
    uint8_t *workspace;
    void *plan, *ring, *state, *words;
    fig_dev_met met;
    uint32_t slot_count, slot_bytes;
} fig_exec_places;

/* A part of a step: nodes [node, node + node_count). If `fetches` is 1, the fetch runs before these
 * nodes. */
typedef struct fig_exec_part {
    uint32_t node, node_count;
    int fetches;
} fig_exec_part;

typedef struct fig_exec_segment {
    fig_exec_part part;
    fig_dev_graph *graph;
} fig_exec_segment;

typedef struct fig_exec {
    pthread_mutex_t making; /* held by the thread that prepares this exec */
    /* Version of the bindings for which this exec is ready; 0: the exec was never prepared. Another
     * thread may set this field in fig_execs_prepare(). */
    uint64_t version;
    fig_lowered lowered; /* addresses filled in */
    /* [launch_count] the families that serve the launches with the addresses in `lowered`; zeroed
     * for a call */
    fig_family_choice *choices;
    fig_dev_exec *exec;
    fig_dev_exec *retired; /* the previous `exec`, which may still be running; or NULL */
    int serves_tails;      /* 1: the launches that read rows in groups can read tails (plan.h) */
    int is_true;           /* 1: `exec` holds exactly the launches of `lowered` */
    /* version of the bindings with which this exec's call nodes were made */
    uint64_t calls_version;
    /* [segment_count of the program + 2]; NULL: no caller has asked for a part */
    fig_exec_segment *segments;
    uint32_t segment_count; /* parts made so far with the current bindings */
} fig_exec;

typedef struct fig_execs {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    fig_exec_places places;
    fig_traits traits;           /* the device's read_kernel_traits */
    int compiles_scores;         /* 1: the device may compile scores */
    fig_exec *of;                /* [exec_count of the graphs] */
    fig_dev_exec *drop, *forget; /* FIG_FETCH_DROP, FIG_FETCH_FORGET; NULL before settle */
    /* version of the bindings at the last fig_execs_settle(); 0: none yet */
    uint64_t version;
    int64_t settles, patched_launches, made; /* made: number of execs that exist */
} fig_execs;

/* fig_execs_finish() accepts a zeroed or half-made struct; the device must be idle. */
fig_status fig_execs_init(fig_execs *execs, fig_binding_table *bindings, fig_dev_stream *stream,
                          const fig_exec_places *places);
void fig_execs_finish(fig_execs *execs);

/* Returns 1 if no binding has changed since the last fig_execs_settle(). */
int fig_execs_settled(const fig_execs *execs);
/* Checks the bindings and makes them current. No step may be staged with earlier bindings. After a
 * failure no exec is ready until a later call succeeds. */
fig_status fig_execs_settle(fig_execs *execs);

/* Returns 1 if the exec was prepared with the current bindings and so can be launched. */
static inline int fig_execs_ready(const fig_execs *execs, uint32_t exec) {
    /* Partner: the release in fig_execs_prepare. */
    return __atomic_load_n(&execs->of[exec].version, __ATOMIC_ACQUIRE) == execs->bindings->version;
}
/* Does the part of fig_execs_prepare() that needs no device. A caller that prepares all execs
 * should lower all of them first: lowering reads data that the execs share, which would leave the
 * cache while the driver makes an exec. */
fig_status fig_execs_lower(fig_execs *execs, uint32_t exec);
/* Makes the exec ready. The caller must have called fig_execs_settle() since the last change of
 * bindings. */
fig_status fig_execs_prepare(fig_execs *execs, uint32_t exec);

/* The functions below need an exec that is ready. */

/* Reports which family serves a launch. Returns FIG_INVALID if there is no such launch. */
fig_status fig_execs_launch_info(const fig_execs *execs, uint32_t exec, int32_t launch,
                                 fig_launch_info *info);

/* Sets *graph to the graph of a part of the exec; the first call after fig_execs_settle() makes
 * that graph. A part is the whole step, the fetch, or a segment of the program. The graph has no
 * edges to launches outside the part: the caller's stream orders the part relative to those
 * launches. */
fig_status fig_execs_segment(fig_execs *execs, uint32_t exec, const fig_exec_part *part,
                             fig_dev_graph **graph);

/* Returns the number of launches that the exec makes, including the fetch and the look ahead. */
uint32_t fig_execs_launch_count(const fig_execs *execs, uint32_t exec);

#endif
