/* execs.h: each bucket as a graph that the device can launch, parts of it that a caller asks for,
 * and its nodes alone.
 *
 * Owns the lowered launches, the filling in of addresses and the choice between patching a launch
 * and making its bucket anew; parts are always made anew. A bucket's own exec also looks ahead for
 * the next plan, beside its later half; of a part the fetch itself tells the host what it did.
 * Invariant: a bucket's own exec holds exactly the params that stand in its lowered form, so what a
 * new binding changes is found by comparing. */
#ifndef FIG_ENGINE_EXECS_H
#define FIG_ENGINE_EXECS_H

#include "engine/binding.h"
#include "include/figraph_unstable.h"
#include "kernels/families.h"

/* What relocations mean, beside the tensors. */
typedef struct fig_exec_places {
    uint8_t *workspace;
    void *plan, *ring, *state, *words;
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

typedef struct fig_exec_bucket {
    fig_lowered lowered; /* addresses filled in */
    fig_family_choice
        *choices; /* [launch_count] of families, for those addresses; of a call: zero */
    fig_dev_exec *exec;
    int is_true;                /* 1: it holds the launches that stand above */
    uint64_t calls_version;     /* of the bindings that its calls were made with */
    fig_exec_segment *segments; /* [segment_count of the program + 2]; NULL: none was asked for */
    uint32_t segment_count;     /* made, with the bindings in force */
} fig_exec_bucket;

typedef struct fig_execs {
    fig_binding_table *bindings;
    fig_dev_stream *stream;
    fig_exec_places places;
    fig_traits traits;           /* what kernels may rely on */
    fig_exec_bucket *buckets;    /* [bucket_count of the graphs] */
    fig_dev_exec *drop, *forget; /* FIG_FETCH_DROP, FIG_FETCH_FORGET; NULL before prepare */
    uint64_t version;            /* of the bindings that all of them hold; 0: of none */
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

/* Which family serves a launch of a bucket. FIG_INVALID: there is no such launch. Ready by then. */
fig_status fig_execs_launch_info(const fig_execs *execs, uint32_t bucket, int32_t launch,
                                 fig_launch_info *info);

/* The graph of a part of a bucket, made on the first call since prepare made something; ready by
 * then. A part is all of a bucket, its fetch, or a segment of the program. Launches outside it
 * are nobody's to wait for: the stream that the graph is enqueued on orders them. */
fig_status fig_execs_segment(fig_execs *execs, uint32_t bucket, const fig_exec_part *part,
                             fig_dev_graph **graph);

/* Launches of a bucket's own exec, the fetch and the look ahead among them; prepared by then. */
uint32_t fig_execs_launch_count(const fig_execs *execs, uint32_t bucket);
/* A bucket's nodes alone, under whatever plan the device holds: no fetch and no look ahead. */
typedef struct fig_exec_bare {
    uint32_t bucket;
    uint32_t copies; /* one after another, each as a launch of its own would come after the one
                        before */
    int serial;      /* 1: within a copy too each launch comes after the one before it */
} fig_exec_bare;
/* Holds the bindings in force; the caller's to destroy once it has ended. Ready by then. */
fig_status fig_execs_bare(const fig_execs *execs, const fig_exec_bare *bare, fig_dev_exec **exec);

/* One launch that reads memory from end to end. The caller's to destroy once it has ended. */
typedef struct fig_exec_reading {
    const void *from;
    uint64_t *folded; /* device memory: changed by exclusive or with every word */
    size_t bytes;     /* read in pieces of 16, up to 64 GB of them */
    uint32_t blocks;
} fig_exec_reading;
fig_status fig_execs_reading(const fig_execs *execs, const fig_exec_reading *reading,
                             fig_dev_exec **exec);

#endif
