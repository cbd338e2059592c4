/* sketch.h: arranges a bucket's launches as a drawing: boxes in rows and columns, with edges.
 *
 * Decides which launches form one box, the box's place, and the reason of each edge;
 * inspect_svg.c and inspect_dot.c draw them. Layers that repeat form one box. Invariant: each
 * launch is in one box, edges point to later boxes, and a box stands alone at its place, in a
 * row below all boxes that it comes after. */
#ifndef FIG_TOOLS_SKETCH_H
#define FIG_TOOLS_SKETCH_H

#include "tools/figraph/inspect/inspect.h"

typedef struct fig_sketch_box {
    uint32_t launch, launch_count; /* one launch, or all launches of the layers that repeat */
    int32_t layer, last_layer;     /* -1: no layer */
    int repeats;                   /* 1: the box stands for layers that repeat earlier ones */
    uint32_t row, column;
} fig_sketch_box;

/* The reason why a later launch comes after an earlier one. */
typedef enum fig_sketch_reason {
    FIG_SKETCH_PLAN,      /* the later launch reads the plan that the earlier one copies */
    FIG_SKETCH_READ,      /* the later launch reads a tensor that the earlier one writes */
    FIG_SKETCH_OVERWRITE, /* the later launch writes a tensor that the earlier one accesses */
    FIG_SKETCH_WORKSPACE, /* both write partials to the same place */
    FIG_SKETCH_REST,      /* the later launch completes the earlier one's node */
    FIG_SKETCH_ORDER,     /* both are collectives, which all ranks run in one order */
    FIG_SKETCH_REASON_COUNT
} fig_sketch_reason;

typedef struct fig_sketch_edge {
    uint32_t from, to; /* the numbers of two boxes */
    uint32_t from_launch, to_launch;
    fig_sketch_reason reason;
    uint32_t tensor; /* the tensor's id, for FIG_SKETCH_READ and FIG_SKETCH_OVERWRITE */
    /* 1: one of the two launches is a call, so the later one waits until the earlier one has ended.
     * 0: on a GPU of compute capability 9.0, the later one may start before that. */
    int ends;
} fig_sketch_edge;

typedef struct fig_sketch {
    fig_sketch_box *boxes;  /* [box_count], in the order of their launches */
    fig_sketch_edge *edges; /* [edge_count], sorted by `to` */
    uint32_t *box_of;       /* [launch] the number of its box */
    uint32_t box_count, edge_count, row_count, column_count;
} fig_sketch;

fig_status fig_sketch_make(fig_sketch *sketch, const fig_inspect_bucket *bucket);
void fig_sketch_finish(fig_sketch *sketch); /* accepts a zeroed struct */

/* Returns the edge, with the reason why its later launch comes after its earlier one. */
fig_sketch_edge fig_sketch_explain(const fig_inspect_bucket *bucket, const fig_edge *edge);
/* Returns "plan", "reads", ... */
const char *fig_sketch_reason_name(fig_sketch_reason reason);

#endif
