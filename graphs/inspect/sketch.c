/* sketch.c: a bucket's launches as a drawing.
 *
 * Rows follow from edges alone; a box continues the column of what it comes after where it can, so
 * that most edges are short and straight. Invariant: an edge's reason is found in the tensors of
 * its two nodes, as edges.c looked at them. */
#include "graphs/inspect/sketch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

/* ---- Why an edge is there */

static uint32_t access_of(const fig_program_view *view, const fig_node *node, uint32_t tensor) {
    uint32_t access = 0;
    for (uint32_t i = 0; i < node->operand_count; i++)
        if (view->operands[node->operand + i] == tensor)
            access |= fig_program_view_access(view, node, i);
    return access;
}

/* The first tensor that `later` reads of those that `earlier` writes, else one that it writes of
 * those that `earlier` has; 0: neither. */
static uint32_t shared_tensor(const fig_program_view *view, const fig_node *earlier,
                              const fig_node *later, fig_sketch_reason *reason) {
    uint32_t overwritten = 0;
    for (uint32_t i = 0; i < later->operand_count; i++) {
        const uint32_t tensor = view->operands[later->operand + i];
        if (tensor == 0) continue;
        const uint32_t before = access_of(view, earlier, tensor);
        const uint32_t after = fig_program_view_access(view, later, i);
        if ((before & FIG_ACCESS_WRITE) && (after & FIG_ACCESS_READ)) {
            *reason = FIG_SKETCH_READ;
            return tensor;
        }
        if (before != 0 && (after & FIG_ACCESS_WRITE) && overwritten == 0) overwritten = tensor;
    }
    *reason = FIG_SKETCH_OVERWRITE;
    return overwritten;
}

fig_sketch_edge fig_sketch_explain(const fig_inspect_bucket *bucket, const fig_edge *edge) {
    const fig_program_view *view = bucket->view;
    const fig_launch *launches = bucket->lowered.launches;
    const fig_launch *from = &launches[edge->from], *to = &launches[edge->to];
    fig_sketch_edge made = {.from_launch = edge->from,
                            .to_launch = edge->to,
                            .reason = FIG_SKETCH_PLAN,
                            .ends = from->op == FIG_OP_CALL || to->op == FIG_OP_CALL};
    if (from->op == FIG_OP_FETCH || from->op == FIG_OP_PLAN) return made;
    if (from->node == to->node) {
        made.reason = FIG_SKETCH_REST;
        return made;
    }
    const fig_node *earlier = &view->nodes[from->node], *later = &view->nodes[to->node];
    made.tensor = shared_tensor(view, earlier, later, &made.reason);
    if (made.tensor != 0) return made;
    made.reason = fig_program_view_meets(earlier) && fig_program_view_meets(later)
                      ? FIG_SKETCH_ORDER
                      : FIG_SKETCH_WORKSPACE;
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

/* Those of one node, which are shown with the first node that they serve. */
static void add_node(fig_sketch *sketch, const fig_inspect_bucket *bucket, uint32_t node) {
    const fig_launch_range range = bucket->lowered.node_launches[node];
    const int32_t layer = bucket->view->nodes[node].layer;
    for (uint32_t l = range.first; l < range.first + range.count; l++)
        if (bucket->lowered.launches[l].node == node)
            add_box(sketch,
                    &(fig_sketch_box){
                        .launch = l, .launch_count = 1, .layer = layer, .last_layer = layer});
}

static void add_repeats(fig_sketch *sketch, const fig_inspect_bucket *bucket,
                        const fig_inspect_stretch *s) {
    const fig_node *nodes = bucket->view->nodes;
    const fig_launch_range *ranges = bucket->lowered.node_launches;
    const uint32_t node = s->node + s->count, last = s->node + s->count * s->times - 1;
    const uint32_t first = ranges[node].first, end = ranges[last].first + ranges[last].count;
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

/* 1: the box has such an edge already, among those from edges[first] on. */
static int has_edge(const fig_sketch *sketch, uint32_t first, uint32_t from, uint32_t to) {
    for (uint32_t i = first; i < sketch->edge_count; i++)
        if (sketch->edges[i].from == from && sketch->edges[i].to == to) return 1;
    return 0;
}

/* Launches are sorted, and so are the edges of the boxes that they are in. */
static void add_edges(fig_sketch *sketch, const fig_inspect_bucket *bucket) {
    const fig_lowered *lowered = &bucket->lowered;
    uint32_t first = 0; /* edge of the box that is being reached */
    for (uint32_t i = 0; i < lowered->edge_count; i++) {
        const uint32_t from = sketch->box_of[lowered->edges[i].from];
        const uint32_t to = sketch->box_of[lowered->edges[i].to];
        if (sketch->edge_count > 0 && sketch->edges[sketch->edge_count - 1].to != to)
            first = sketch->edge_count;
        if (from == to || has_edge(sketch, first, from, to)) continue;
        fig_sketch_edge *edge = &sketch->edges[sketch->edge_count++];
        *edge = fig_sketch_explain(bucket, &lowered->edges[i]);
        edge->from = from;
        edge->to = to;
    }
}

/* ---- Rows and columns */

/* The column of a box: that of the lowest box that it comes after, where nothing stands below that
 * one yet; else the first in which nothing stands so low. ends: [box_count] rows that are taken. */
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
    const fig_lowered *lowered = &bucket->lowered;
    const size_t count = lowered->launch_count;
    uint32_t *ends = calloc(count + 1, sizeof *ends);
    *sketch = (fig_sketch){.boxes = calloc(count, sizeof *sketch->boxes),
                           .edges = calloc((size_t)lowered->edge_count + 1, sizeof *sketch->edges),
                           .box_of = calloc(count, sizeof *sketch->box_of)};
    if (ends == NULL || sketch->boxes == NULL || sketch->edges == NULL || sketch->box_of == NULL) {
        free(ends);
        fig_sketch_finish(sketch);
        return fig_fail(FIG_NOMEM, "sketch: %zu launches", count);
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
