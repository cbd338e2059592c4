/* sketch.h: a bucket's launches as a drawing: boxes in rows and columns, and edges between them.
 *
 * Owns which launches are one box, where a box stands and why an edge is there; strokes and letters
 * are inspect_svg.c's and inspect_dot.c's. Layers that repeat are one box. Invariant: each launch
 * is of one box, edges point to later boxes, and a box stands in a row below all that it comes
 * after, where no other box stands. */
#ifndef FIG_GRAPHS_SKETCH_H
#define FIG_GRAPHS_SKETCH_H

#include "graphs/inspect/inspect.h"

typedef struct fig_sketch_box {
    uint32_t launch, launch_count; /* one, or all of the layers that repeat */
    int32_t layer, last_layer;     /* -1: of none */
    int repeats;                   /* 1: layers that repeat what stands above */
    uint32_t row, column;
} fig_sketch_box;

/* Why a launch comes after another. */
typedef enum fig_sketch_reason {
    FIG_SKETCH_PLAN,      /* it reads the plan that the other makes the device's */
    FIG_SKETCH_READ,      /* it reads a tensor that the other writes */
    FIG_SKETCH_OVERWRITE, /* it writes a tensor that the other reads or writes */
    FIG_SKETCH_WORKSPACE, /* both leave partials in the same place */
    FIG_SKETCH_REST,      /* it does the rest of the same node */
    FIG_SKETCH_ORDER,     /* of collectives, which every rank meets in one order */
    FIG_SKETCH_REASON_COUNT
} fig_sketch_reason;

typedef struct fig_sketch_edge {
    uint32_t from, to; /* boxes */
    uint32_t from_launch, to_launch;
    fig_sketch_reason reason;
    uint32_t tensor; /* id, of FIG_SKETCH_READ and FIG_SKETCH_OVERWRITE */
    int ends;        /* 1: one of the two is a call, so that the later waits for the earlier's end;
                        else it may be put on a GPU of 9.0 before */
} fig_sketch_edge;

typedef struct fig_sketch {
    fig_sketch_box *boxes;  /* [box_count], in the order of their launches */
    fig_sketch_edge *edges; /* [edge_count], by `to` */
    uint32_t *box_of;       /* [launch] */
    uint32_t box_count, edge_count, row_count, column_count;
} fig_sketch;

fig_status fig_sketch_make(fig_sketch *sketch, const fig_inspect_bucket *bucket);
void fig_sketch_finish(fig_sketch *sketch); /* takes a zeroed one */

/* Why the launch at the end of an edge of the bucket comes after that at its beginning. */
fig_sketch_edge fig_sketch_explain(const fig_inspect_bucket *bucket, const fig_edge *edge);
/* "plan", "reads", ... */
const char *fig_sketch_reason_name(fig_sketch_reason reason);

#endif
