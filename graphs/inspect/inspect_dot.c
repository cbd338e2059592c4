/* inspect_dot.c: the launches of a bucket as a graph for Graphviz.
 *
 * Leaves where boxes stand to whoever draws it. Invariant: every name is of [A-Za-z0-9._-], so that
 * none ends a string. */
#include "graphs/inspect/inspect_dot.h"

#include <inttypes.h>
#include <stdio.h>

static void print_launch(fig_print *print, const fig_inspect_bucket *bucket, uint32_t l) {
    const fig_launch *launch = &bucket->lowered.launches[l];
    char name[FIG_INSPECT_OPERATION_BYTES];
    fig_inspect_operation(bucket, launch, name);
    fig_print_text(print, "    l%" PRIu32 " [label=\"%" PRIu32 " ", l, l);
    fig_print_raw(print, name);
    if (launch->op == FIG_OP_CALL) {
        fig_print_text(print, "\", style=rounded];\n");
        return;
    }
    fig_family_choice choice;
    fig_inspect_family(bucket, launch, &choice);
    fig_print_text(print, "\\ngrid %" PRIu32 " x %" PRIu32 " x %" PRIu32 ", block %" PRIu32 "\"",
                   choice.shape.grid[0], choice.shape.grid[1], choice.shape.grid[2],
                   choice.shape.block[0]);
    if (fig_inspect_is_left_out(bucket, l)) fig_print_text(print, ", style=dotted");
    fig_print_text(print, "];\n");
}

static void print_box(fig_print *print, const fig_inspect_bucket *bucket,
                      const fig_sketch_box *box) {
    if (!box->repeats) {
        print_launch(print, bucket, box->launch);
        return;
    }
    fig_print_text(print,
                   "    l%" PRIu32 " [label=\"layers %" PRId32 "..%" PRId32
                   "\\nthe same in launches %" PRIu32 "..%" PRIu32 "\", peripheries=2];\n",
                   box->launch, box->layer, box->last_layer, box->launch,
                   box->launch + box->launch_count - 1);
}

static void print_edge(fig_print *print, const fig_inspect_bucket *bucket, const fig_sketch *sketch,
                       const fig_sketch_edge *edge) {
    fig_print_text(print, "    l%" PRIu32 " -> l%" PRIu32 " [label=\"%s",
                   sketch->boxes[edge->from].launch, sketch->boxes[edge->to].launch,
                   fig_sketch_reason_name(edge->reason));
    if (edge->tensor != 0) {
        fig_print_text(print, " ");
        fig_print_raw(print, fig_program_view_tensor_name(bucket->view, edge->tensor));
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
