/* inspect_dot.c: prints the launches of a bucket as a graph for Graphviz.
 *
 * Graphviz places the boxes. Invariant: names consist of [A-Za-z0-9._-], so no name ends a
 * string early. */
#include "tools/figraph/inspect/inspect_dot.h"

#include <inttypes.h>
#include <stdio.h>

static void print_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_inspect_launch *launch = &bucket->view->launches[l];
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_operation(bucket, launch, name);
    fig_print_text(print, "    l%" PRIu32 " [label=\"%" PRIu32 " ", l, l);
    fig_print_raw(print, name);
    if (launch->is_call) {
        fig_print_text(print, "\", style=rounded];\n");
        return;
    }
    fig_print_text(print, "\\ngrid %" PRIu32 " x %" PRIu32 " x %" PRIu32 ", block %" PRIu32 "\"",
                   launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0]);
    if (launch->left_out) fig_print_text(print, ", style=dotted");
    fig_print_text(print, "];\n");
}

static void print_box(fig_print *print, const fig_inspect_bucket *bucket,
                      const fig_sketch_box *box) {
    const uint32_t layers[2] = {(uint32_t)box->layer, (uint32_t)box->last_layer};
    const uint32_t launches[2] = {box->launch, box->launch + box->launch_count - 1};
    char text[FIG_PRINT_RANGE];
    if (!box->repeats) {
        print_launch(print, bucket, box->launch);
        return;
    }
    fig_print_text(print, "    l%" PRIu32 " [label=\"", box->launch);
    fig_print_raw(print, fig_print_range(text, "layer", layers, ".."));
    fig_print_raw(print, "\\nthe same in ");
    fig_print_raw(print, fig_print_range(text, "launch", launches, ".."));
    fig_print_raw(print, "\", peripheries=2];\n");
}

static void print_edge(fig_print *print, const fig_inspect_bucket *bucket, const fig_sketch *sketch,
                       const fig_sketch_edge *edge) {
    fig_print_text(print, "    l%" PRIu32 " -> l%" PRIu32 " [label=\"%s",
                   sketch->boxes[edge->from].launch, sketch->boxes[edge->to].launch,
                   fig_sketch_reason_name(edge->reason));
    if (edge->tensor != 0) {
        fig_print_text(print, " ");
        fig_print_raw(print, bucket->view->tensors[edge->tensor - 1].name);
    }
    fig_print_text(print, "\"%s];\n", edge->ends ? ", style=dashed" : "");
}

void fig_inspect_dot_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch) {
    fig_print_text(print, "digraph bucket_%" PRIu32 " {\n", bucket->index + 1);
    fig_print_text(print, "    node [shape=box, fontname=\"sans-serif\"];\n");
    fig_print_text(print, "    edge [fontname=\"sans-serif\", fontsize=10];\n");
    for (uint32_t i = 0; i < sketch->box_count; i++)
        print_box(print, bucket, &sketch->boxes[i]);
    for (uint32_t i = 0; i < sketch->edge_count; i++)
        print_edge(print, bucket, sketch, &sketch->edges[i]);
    fig_print_text(print, "}\n");
}
