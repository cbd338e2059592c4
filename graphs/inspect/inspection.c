/* inspection.c: reports the contents of graphs as arrays, for programs that show, draw or compare
 * graphs.
 *
 * Those programs own wording, folding and layout. Invariant: an inspection points only to its own
 * memory and the graphs' memory, and nothing in an open inspection changes. */
#include "graphs/inspect/inspection.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/plan_report.h"
#include "graphs/view/segment.h"
#include "kernels/table/families.h"
#include "planner/status.h"

static_assert((int)FIG_INSPECT_CLASS_LIMIT == (int)FIG_CLASS_LIMIT, "a class for each");
static_assert((int)FIG_INSPECT_FAMILY_LIMIT == (int)FIG_FAMILY_LIMIT, "a refusal for each");
static_assert((int)FIG_INSPECT_READS == (int)FIG_ACCESS_READ, "access is told as it is kept");
static_assert((int)FIG_INSPECT_WRITES == (int)FIG_ACCESS_WRITE, "access is told as it is kept");

const fig_inspection_own *fig_inspection_own_of(const fig_inspection *inspection) {
    return (const fig_inspection_own *)(const void *)inspection;
}

/* ---- The program */

static int32_t symbol_of(const fig_tensor_record *record) {
    if (record->symbol == FIG_SYMBOL_BATCH) return FIG_DIM_BATCH;
    if (record->symbol == FIG_SYMBOL_QUERIES) return FIG_DIM_QUERIES;
    return record->symbol == FIG_SYMBOL_PAGES ? FIG_DIM_PAGES : 0;
}

static void fill_tensors(fig_inspection_own *own) {
    const fig_program_view *view = own->view;
    const uint64_t *temps = own->told.graphs->workspace.temps;
    for (uint32_t i = 0; i < view->tensor_count; i++) {
        const fig_tensor_record *record = &view->tensors[i];
        fig_inspect_tensor *to = &own->tensors[i];
        *to = (fig_inspect_tensor){.name = view->strings + record->name,
                                   .role = record->role,
                                   .dtype = record->dtype,
                                   .layout = record->layout,
                                   .rank = record->rank,
                                   .symbol = symbol_of(record),
                                   .offset = temps[i]};
        memcpy(to->dims, record->dims, sizeof to->dims);
    }
}

/* Returns the number of operands to report. A node may have fewer or more operands than its row;
 * the inspection reports every operand of the row. */
static uint32_t operand_count_of(const fig_node *node) {
    return node->op < FIG_OP_KERNEL_COUNT ? fig_kernel_table[node->op].operand_count
                                          : node->operand_count;
}

/* `first`: the index in own->operands of the node's first operand. */
static void fill_operands(fig_inspection_own *own, const fig_node *node, uint32_t first) {
    const fig_program_view *view = own->view;
    for (uint32_t i = 0; i < operand_count_of(node); i++) {
        const fig_operand *row =
            node->op < FIG_OP_KERNEL_COUNT ? &fig_kernel_table[node->op].operands[i] : NULL;
        own->operands[first + i] = (fig_inspect_operand){
            .name = row != NULL ? row->name : NULL,
            .tensor = fig_program_view_operand(view, node, i),
            .access = row != NULL ? row->access : fig_program_view_access(view, node, i)};
    }
}

/* Fills in a call by pointers into the node's attributes, which lie at a multiple of 8. */
static void fill_call(const fig_program_view *view, const fig_node *node, fig_inspect_node *to) {
    const uint8_t *attributes = view->attributes + node->attribute;
    fig_call_attributes call;
    memcpy(&call, attributes, sizeof call);
    to->call = view->strings + call.name;
    to->tag = call.tag;
    to->read_count = call.read_count;
    to->call_bytes = attributes + offsetof(fig_call_attributes, bytes);
    to->call_byte_count = call.byte_count;
}

static void fill_node(fig_inspection_own *own, uint32_t n, uint32_t first) {
    const fig_program_view *view = own->view;
    const fig_node *node = &view->nodes[n];
    const fig_segment *segment = fig_segment_of(view, n);
    const uint32_t split_class =
        fig_split_classes_index(&own->told.graphs->common.classes, view, node);
    fig_inspect_node *to = &own->nodes[n];
    *to = (fig_inspect_node){.operation = fig_table_op_name(node->op),
                             .layer = node->layer,
                             .segment = segment != NULL ? (int32_t)(segment - view->segments) : -1,
                             .split_class = split_class == UINT32_MAX ? -1 : (int32_t)split_class,
                             .meets = fig_program_view_meets(node),
                             .operand = first,
                             .operand_count = operand_count_of(node),
                             .attributes = view->attributes + node->attribute,
                             .attribute_bytes = node->attribute_bytes};
    fill_operands(own, node, first);
    if (node->op == FIG_OP_CALL) fill_call(view, node, to);
    if (own->told.bucket == 0) return;
    to->launch = own->lowered.node_launches[n].first;
    to->launch_count = own->lowered.node_launches[n].count;
}

static void fill_classes(fig_inspection_own *own) {
    const fig_graphs *graphs = own->told.graphs;
    own->told.class_count = graphs->common.classes.count;
    for (int32_t i = 0; i < own->told.class_count; i++) {
        const fig_split_class *of = &graphs->common.classes.of[i];
        own->told.classes[i] = (fig_inspect_class){.kv_heads = of->kv_heads,
                                                   .window = of->window,
                                                   .row_tokens = of->row_tokens,
                                                   .q_heads = of->q_heads,
                                                   .head_dim = of->head_dim,
                                                   .value_bytes = of->value_bytes,
                                                   .counters = graphs->workspace.counters[i],
                                                   .partials = graphs->workspace.partials[i],
                                                   .sums = graphs->workspace.sums[i]};
    }
}

static void fill_program(fig_inspection_own *own) {
    const fig_program_view *view = own->view;
    uint32_t operand = 0;
    fill_tensors(own);
    for (uint32_t n = 0; n < view->node_count; n++) {
        fill_node(own, n, operand);
        operand += operand_count_of(&view->nodes[n]);
    }
    for (uint32_t i = 0; i < view->segment_count; i++)
        own->segments[i] = (fig_inspect_segment){.name = view->strings + view->segments[i].name,
                                                 .node = view->segments[i].node,
                                                 .node_count = view->segments[i].node_count};
    fill_classes(own);
}

/* ---- Launches */

static int does_all(const fig_inspection_own *own, const fig_launch *launch) {
    fig_family_choice choice;
    fig_families_choose((fig_op)launch->op, own->lowered.params + launch->params, own->told.traits,
                        &choice);
    return fig_families_of((fig_op)launch->op, choice.family)->does_all;
}

/* Returns fig_inspect_launch.left_out. */
static int32_t left_out(const fig_inspection_own *own, uint32_t l) {
    if (fig_lower_is_idle(&own->lowered, l)) return 2;
    const fig_launch *of = &own->lowered.launches[l], *next = of + 1;
    if (of->node_count == 0 || l + 1 == own->lowered.launch_count) return 0;
    if (next->node != of->node || next->op == FIG_OP_CALL) return 0;
    return does_all(own, next);
}

static void fill_family(const fig_inspection_own *own, const fig_launch *launch,
                        fig_inspect_launch *to) {
    const fig_op op = (fig_op)launch->op;
    fig_family_choice choice;
    fig_families_choose(op, own->lowered.params + launch->params, own->told.traits, &choice);
    to->family = fig_families_of(op, choice.family)->name;
    memcpy(to->grid, choice.shape.grid, sizeof to->grid);
    memcpy(to->block, choice.shape.block, sizeof to->block);
    to->shared_bytes = choice.shape.shared_bytes;
    while (fig_families_of(op, (uint32_t)to->family_count) != NULL)
        to->family_count++;
    to->refusal_count = (int32_t)choice.family;
    for (uint32_t i = 0; i < choice.family; i++) {
        to->refused[i] = fig_families_of(op, i)->name;
        to->needs[i] = choice.refusals[i];
    }
}

static void fill_launches(fig_inspection_own *own) {
    for (uint32_t l = 0; l < own->lowered.launch_count; l++) {
        const fig_launch *launch = &own->lowered.launches[l];
        fig_inspect_launch *to = &own->launches[l];
        *to = (fig_inspect_launch){
            .operation = fig_table_op_name(launch->op),
            .node = launch->node,
            .node_count = launch->node_count,
            .split_class = launch->split_class == UINT32_MAX ? -1 : (int32_t)launch->split_class,
            .is_call = launch->op == FIG_OP_CALL,
            .gives_plan =
                launch->op < FIG_OP_KERNEL_COUNT && fig_kernel_table[launch->op].makes_plan};
        if (to->is_call) continue;
        to->left_out = left_out(own, l);
        fill_family(own, launch, to);
    }
}

/* ---- Opening */

static void fill_whole(fig_inspection_own *own) {
    const fig_graphs *graphs = own->told.graphs;
    const fig_program_view *view = own->view;
    fig_inspection *told = &own->told;
    told->spec = &view->spec;
    told->model = &graphs->model;
    told->traits = &graphs->target.traits;
    for (int i = 0; i < 64; i++) {
        const uint8_t byte = graphs->content_id[i / 2];
        told->content_id[i] = "0123456789abcdef"[i % 2 == 0 ? byte >> 4 : byte & 15];
    }
    told->ranks = graphs->ranks;
    told->deterministic = graphs->target.deterministic;
    told->embeds_images = graphs->archive.code != NULL;
    told->bucket_count = graphs->bucket_count;
    told->digests = graphs->digests;
    told->made_digests = graphs->made_digests;
    told->workspace_bytes = graphs->workspace.bytes;
    told->plan_bytes_limit = graphs->plan_bytes;
    told->tensors = own->tensors;
    told->tensor_count = view->tensor_count;
    told->nodes = own->nodes;
    told->node_count = view->node_count;
    told->operands = own->operands;
    told->segments = own->segments;
    told->segment_count = view->segment_count;
    told->node_edges = view->edges;
    told->node_edge_count = view->edge_count;
    told->launches = own->launches;
    told->launch_count = own->lowered.launch_count;
    told->edges = own->lowered.edges;
    told->edge_count = own->lowered.edge_count;
    told->changed_kernels = own->changed;
    for (uint32_t op = 0; op < FIG_OP_KERNEL_COUNT; op++)
        if (graphs->changed_kernels >> op & 1)
            own->changed[told->changed_kernel_count++] = fig_kernel_table[op].name;
}

/* Each array gets at least one item, so that NULL always means that memory has run out. */
static fig_status take_memory(fig_inspection_own *own) {
    const fig_program_view *view = own->view;
    size_t operands = 0;
    for (uint32_t n = 0; n < view->node_count; n++)
        operands += operand_count_of(&view->nodes[n]);
    own->tensors = calloc((size_t)view->tensor_count + 1, sizeof *own->tensors);
    own->nodes = calloc((size_t)view->node_count + 1, sizeof *own->nodes);
    own->operands = calloc(operands + 1, sizeof *own->operands);
    own->segments = calloc((size_t)view->segment_count + 1, sizeof *own->segments);
    own->launches = calloc((size_t)own->lowered.launch_count + 1, sizeof *own->launches);
    own->scores = calloc((size_t)fig_score_units_count(view) + 1, sizeof *own->scores);
    if (own->tensors != NULL && own->nodes != NULL && own->operands != NULL &&
        own->segments != NULL && own->launches != NULL && own->scores != NULL)
        return FIG_OK;
    return fig_fail(FIG_NOMEM, "inspection: %u nodes", view->node_count);
}

fig_status fig_inspection_open(const fig_inspection **inspection, const fig_graphs *graphs,
                               int32_t bucket) {
    if (inspection == NULL) return fig_fail(FIG_INVALID, "inspection: inspection is NULL");
    *inspection = NULL;
    if (graphs == NULL) return fig_fail(FIG_INVALID, "inspection: graphs is NULL");
    if (bucket < 0 || (uint32_t)bucket > graphs->bucket_count)
        return fig_fail(FIG_INVALID, "inspection: bucket is %" PRId32 ", there are %" PRIu32,
                        bucket, graphs->bucket_count);
    fig_inspection_own *own = calloc(1, sizeof *own);
    if (own == NULL) return fig_fail(FIG_NOMEM, "inspection: %zu bytes", sizeof *own);
    own->told.graphs = graphs;
    own->told.bucket = bucket;
    own->view = fig_program_view_of(graphs->program);
    fig_status status = FIG_OK;
    if (bucket > 0)
        status = fig_lower_bucket(&graphs->common, &graphs->buckets[bucket - 1], &own->lowered);
    if (status == FIG_OK) status = take_memory(own);
    for (uint32_t i = 0; status == FIG_OK && i < fig_score_units_count(own->view); i++)
        status = fig_score_units_read(own->view, i + 1, &own->scores[i]);
    if (status != FIG_OK) {
        fig_inspection_close(&own->told);
        return status;
    }
    fill_whole(own);
    fill_program(own);
    fill_launches(own);
    *inspection = &own->told;
    return FIG_OK;
}

void fig_inspection_close(const fig_inspection *inspection) {
    if (inspection == NULL) return;
    fig_inspection_own *own = (fig_inspection_own *)(uintptr_t)inspection;
    if (own->told.bucket > 0) fig_lower_finish(&own->lowered);
    free(own->tensors);
    free(own->nodes);
    free(own->operands);
    free(own->segments);
    free(own->launches);
    free(own->scores);
    free(own);
}

/* ---- Plans */

fig_status fig_inspection_plan(const fig_inspection *inspection, const fig_step *step,
                               int32_t split_class, fig_plan_report *report) {
    fig_plan_report given, ours = {.size = sizeof ours};
    if (inspection == NULL || step == NULL)
        return fig_fail(FIG_INVALID, "inspection: %s is NULL",
                        inspection == NULL ? "inspection" : "step");
    if (split_class < 0 || (split_class > 0 && split_class >= inspection->class_count))
        return fig_fail(FIG_INVALID, "inspection: split_class is %" PRId32 ", there are %" PRId32,
                        split_class, inspection->class_count);
    FIG_TRY(fig_status_take_options(&given, sizeof given, report, "fig_plan_report"));
    fig_plan_report_take_inputs(&ours, &given);
    const fig_status status = fig_plan_report_class(inspection->graphs, step, split_class, &ours);
    FIG_TRY(fig_status_give(report, &ours, sizeof ours, "fig_plan_report"));
    return status;
}
