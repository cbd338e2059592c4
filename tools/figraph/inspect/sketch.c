/* sketch.c: arranges a bucket's launches as a drawing.
 *
 * Rows follow only from edges. If possible, a box is placed in the column of a box that it comes
 * after, so that most edges are short and straight. Invariant: the reason of an edge is found in
 * the tensors of its two nodes, by the rules of edges.c. */
#include "tools/figraph/inspect/sketch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tools/figraph/inspect/failure.h"

/* ---- Reasons of edges */

static uint32_t access_of(const fig_inspection *view, const fig_inspect_node *node,
                          uint32_t tensor) {
    uint32_t access = 0;
    for (uint32_t i = 0; i < node->operand_count; i++)
        if (view->operands[node->operand + i].tensor == tensor)
            access |= view->operands[node->operand + i].access;
    return access;
}

/* Returns the first tensor that `earlier` writes and `later` reads; else one that `later` writes
 * and `earlier` reads or writes; 0 if there is neither. */
static uint32_t shared_tensor(const fig_inspection *view, const fig_inspect_node *earlier,
                              const fig_inspect_node *later, fig_sketch_reason *reason) {
    uint32_t overwritten = 0;
    for (uint32_t i = 0; i < later->operand_count; i++) {
        const uint32_t tensor = view->operands[later->operand + i].tensor;
        if (tensor == 0) continue;
        const uint32_t before = access_of(view, earlier, tensor);
        const uint32_t after = view->operands[later->operand + i].access;
        if ((before & FIG_INSPECT_WRITES) && (after & FIG_INSPECT_READS)) {
            *reason = FIG_SKETCH_READ;
            return tensor;
        }
        if (before != 0 && (after & FIG_INSPECT_WRITES) && overwritten == 0) overwritten = tensor;
    }
    *reason = FIG_SKETCH_OVERWRITE;
    return overwritten;
}

fig_sketch_edge fig_sketch_explain(const fig_inspect_bucket *bucket, const fig_edge *edge) {
    const fig_inspection *view = bucket->view;
    const fig_inspect_launch *launches = bucket->view->launches;
    const fig_inspect_launch *from = &launches[edge->from], *to = &launches[edge->to];
    fig_sketch_edge made = {.from_launch = edge->from,
                            .to_launch = edge->to,
                            .reason = FIG_SKETCH_PLAN,
                            .ends = from->is_call || to->is_call};
    if (from->gives_plan) return made;
    if (from->node == to->node) {
        made.reason = FIG_SKETCH_REST;
        return made;
    }
    const fig_inspect_node *earlier = &view->nodes[from->node], *later = &view->nodes[to->node];
    made.tensor = shared_tensor(view, earlier, later, &made.reason);
    if (made.tensor != 0) return made;
    made.reason = earlier->meets && later->meets ? FIG_SKETCH_ORDER : FIG_SKETCH_WORKSPACE;
    return made;
}

const char *fig_sketch_reason_name(fig_sketch_reason reason) {
    switch (reason) {
    case FIG_SKETCH_PLAN: return "plan";
    case FIG_SKETCH_READ: return "reads";
    case FIG_SKETCH_OVERWRITE: return "overwrites";
    case FIG_SKETCH_WORKSPACE: return "workspace";
    case FIG_SKETCH_REST: return "rest";
    case FIG_SKETCH_ORDER: return "order";
    case FIG_SKETCH_REASON_COUNT: break;
    }
    return "unknown";
}

/* ---- Boxes */

static void add_box(fig_sketch *sketch, const fig_sketch_box *box) {
    for (uint32_t l = box->launch; l < box->launch + box->launch_count; l++)
        sketch->box_of[l] = sketch->box_count;
    sketch->boxes[sketch->box_count++] = *box;
}

/* Adds the launches of one node. A launch is shown with the first node that it serves. */
static void add_node(fig_sketch *sketch, const fig_inspect_bucket *bucket, uint32_t node) {
    const fig_inspect_node *of = &bucket->view->nodes[node];
    for (uint32_t l = of->launch; l < of->launch + of->launch_count; l++)
        if (bucket->view->launches[l].node == node)
            add_box(sketch, &(fig_sketch_box){.launch = l,
                                              .launch_count = 1,
                                              .layer = of->layer,
                                              .last_layer = of->layer});
}

static void add_repeats(fig_sketch *sketch, const fig_inspect_bucket *bucket,
                        const fig_inspect_stretch *s) {
    const fig_inspect_node *nodes = bucket->view->nodes;
    const uint32_t node = s->node + s->count, last = s->node + s->count * s->times - 1;
    const uint32_t first = nodes[node].launch, end = nodes[last].launch + nodes[last].launch_count;
    add_box(sketch, &(fig_sketch_box){.launch = first,
                                      .launch_count = end - first,
                                      .layer = nodes[node].layer,
                                      .last_layer = nodes[last].layer,
                                      .repeats = 1});
}

static void add_boxes(fig_sketch *sketch, const fig_inspect_bucket *bucket) {
    add_box(sketch, &(fig_sketch_box){.launch_count = 1, .layer = -1, .last_layer = -1});
    for (uint32_t n = 0; n < bucket->view->node_count;) {
        const fig_inspect_stretch s = fig_inspect_stretch_at(bucket->view, bucket, n);
        for (uint32_t i = n; i < n + s.count; i++)
            add_node(sketch, bucket, i);
        if (s.times > 1) add_repeats(sketch, bucket, &s);
        n += s.count * s.times;
    }
}

/* ---- Edges */

/* Returns 1 if the box already has such an edge, among those from edges[first] on. */
static int has_edge(const fig_sketch *sketch, uint32_t first, uint32_t from, uint32_t to) {
    for (uint32_t i = first; i < sketch->edge_count; i++)
        if (sketch->edges[i].from == from && sketch->edges[i].to == to) return 1;
    return 0;
}

/* Launches are sorted, so the edges of their boxes are sorted too. */
static void add_edges(fig_sketch *sketch, const fig_inspect_bucket *bucket) {
    const fig_inspection *view = bucket->view;
    uint32_t first = 0; /* the first edge of the current box */
    for (uint32_t i = 0; i < view->edge_count; i++) {
        const uint32_t from = sketch->box_of[view->edges[i].from];
        const uint32_t to = sketch->box_of[view->edges[i].to];
        if (sketch->edge_count > 0 && sketch->edges[sketch->edge_count - 1].to != to)
            first = sketch->edge_count;
        if (from == to || has_edge(sketch, first, from, to)) continue;
        fig_sketch_edge *edge = &sketch->edges[sketch->edge_count++];
        *edge = fig_sketch_explain(bucket, &view->edges[i]);
        edge->from = from;
        edge->to = to;
    }
}

/* ---- Rows and columns */

/* Returns the column of a box. It is the column of the lowest box that this box comes after, if
 * nothing stands below that box yet; otherwise it is the first column that is free at this row.
 * ends: [box_count] the rows taken in each column. */
static uint32_t choose_column(const fig_sketch *sketch, uint32_t box, uint32_t first_edge,
                              const uint32_t *ends) {
    const fig_sketch_box *best = NULL;
    for (uint32_t i = first_edge; i < sketch->edge_count && sketch->edges[i].to == box; i++) {
        const fig_sketch_box *from = &sketch->boxes[sketch->edges[i].from];
        if (ends[from->column] != from->row + 1) continue;
        if (best == NULL || from->row > best->row) best = from;
    }
    if (best != NULL) return best->column;
    uint32_t column = 0;
    while (ends[column] > sketch->boxes[box].row)
        column++;
    return column;
}

static void place(fig_sketch *sketch, uint32_t *ends) {
    uint32_t edge = 0;
    for (uint32_t b = 0; b < sketch->box_count; b++) {
        fig_sketch_box *box = &sketch->boxes[b];
        const uint32_t first = edge;
        for (; edge < sketch->edge_count && sketch->edges[edge].to == b; edge++) {
            const uint32_t row = sketch->boxes[sketch->edges[edge].from].row + 1;
            if (row > box->row) box->row = row;
        }
        box->column = choose_column(sketch, b, first, ends);
        ends[box->column] = box->row + 1;
        if (box->row >= sketch->row_count) sketch->row_count = box->row + 1;
        if (box->column >= sketch->column_count) sketch->column_count = box->column + 1;
    }
}

fig_status fig_sketch_make(fig_sketch *sketch, const fig_inspect_bucket *bucket) {
    const fig_inspection *view = bucket->view;
    const size_t count = view->launch_count;
    uint32_t *ends = calloc(count + 1, sizeof *ends);
    *sketch = (fig_sketch){.boxes = calloc(count, sizeof *sketch->boxes),
                           .edges = calloc((size_t)view->edge_count + 1, sizeof *sketch->edges),
                           .box_of = calloc(count, sizeof *sketch->box_of)};
    if (ends == NULL || sketch->boxes == NULL || sketch->edges == NULL || sketch->box_of == NULL) {
        free(ends);
        fig_sketch_finish(sketch);
        return fig_failure(FIG_NOMEM, "sketch: %zu launches", count);
    }
    add_boxes(sketch, bucket);
    add_edges(sketch, bucket);
    place(sketch, ends);
    free(ends);
    return FIG_OK;
}

void fig_sketch_finish(fig_sketch *sketch) {
    free(sketch->boxes);
    free(sketch->edges);
    free(sketch->box_of);
    *sketch = (fig_sketch){0};
}
