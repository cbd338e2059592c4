/* exec_graph.c: makes graphs from an exec's launches and from the engine's own kernels.
 *
 * This file is cold. Invariant: nodes are added in the order of the lowered launches. So a node's
 * number is the index of its launch in the range, minus the number of earlier launches that were
 * left out. */
#include "engine/execs/exec_graph.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "planner/status.h"

static fig_status add_call(const fig_execs *execs, const fig_bucket_shape *bucket,
                           fig_dev_graph *graph, const fig_node *node, fig_dev_after after) {
    const fig_binding_table *bindings = execs->bindings;
    const fig_program_view *program = bindings->program;
    const uint32_t *operands = program->operands + node->operand;
    void *addresses[2 * FIG_CALL_TENSOR_LIMIT];
    fig_call_attributes attributes;
    memcpy(&attributes, program->attributes + node->attribute, sizeof attributes);
    const fig_bound_call *bound = fig_binding_call(bindings, program->strings + attributes.name);
    for (uint32_t i = 0; i < node->operand_count; i++)
        addresses[i] = bindings->tensors[operands[i] - 1].place.address;
    fig_dev_call call = {.callback = bound->callback,
                         .user = bound->user,
                         .name = bound->name,
                         .read_count = (int32_t)attributes.read_count,
                         .write_count = (int32_t)(node->operand_count - attributes.read_count),
                         .plan = execs->places.plan,
                         .queries_offset = bucket->plan.layout.queries};
    call.args = (fig_call_args){.size = sizeof call.args,
                                .device = bindings->api->kind,
                                .bucket = bucket->caps,
                                .queries = fig_bucket_query_limit(bucket),
                                .tag = attributes.tag,
                                .bytes = attributes.bytes,
                                .byte_count = (int32_t)attributes.byte_count,
                                .reads = (const void *const *)addresses,
                                .writes = addresses + attributes.read_count};
    return bindings->api->graph_call(bindings->dev, graph, &call, after);
}

static fig_dev_launch dev_launch_of(fig_op op, const fig_family_choice *choice,
                                    const void *params) {
    fig_dev_launch launch = {.op = op,
                             .family = choice->family,
                             .shared_bytes = choice->shape.shared_bytes,
                             .params = params,
                             .params_bytes = fig_kernel_table[op].params_bytes};
    memcpy(launch.grid, choice->shape.grid, sizeof launch.grid);
    memcpy(launch.block, choice->shape.block, sizeof launch.block);
    return launch;
}

fig_status fig_exec_graph_add_one(const fig_execs *execs, const fig_exec_order *order,
                                  fig_dev_graph *graph, uint32_t index, fig_dev_after after) {
    const fig_exec *exec = &execs->of[order->exec];
    const fig_launch *launch = &exec->lowered.launches[index];
    fig_fetch_params fetch;
    const fig_binding_table *bindings = execs->bindings;
    const fig_graphs *graphs = bindings->graphs;
    if (launch->op == FIG_OP_CALL)
        return add_call(execs, &graphs->buckets[graphs->exec_buckets[order->exec]], graph,
                        &bindings->program->nodes[launch->node], after);
    fig_dev_launch kernel = dev_launch_of((fig_op)launch->op, &exec->choices[index],
                                          exec->lowered.params + launch->params);
    if (launch->op == FIG_OP_FETCH && !order->own) {
        memcpy(&fetch, kernel.params, sizeof fetch);
        fetch.tells = 1;
        kernel.params = &fetch;
    }
    kernel.is_plain =
        order->is_plain || (graphs->common.early_reads[index] & FIG_EARLY_READS_WRITTEN) != 0;
    return bindings->api->graph_kernel(bindings->dev, graph, &kernel, after);
}

fig_dev_launch fig_exec_graph_own(const fig_execs *execs, fig_op op, const void *params) {
    fig_family_choice choice;
    fig_families_choose(op, params, &execs->traits, &choice);
    return dev_launch_of(op, &choice, params);
}

/* Returns 1 if the next launch of the same program node also does the work of this one. */
static int is_done_by_next(const fig_exec *exec, uint32_t index) {
    const fig_launch *launch = &exec->lowered.launches[index], *next = launch + 1;
    if (launch->node_count == 0 || index + 1 == exec->lowered.launch_count) return 0;
    if (next->node != launch->node || next->op == FIG_OP_CALL) return 0;
    const fig_family *family = fig_families_of((fig_op)next->op, exec->choices[index + 1].family);
    /* A launch for chunks, beside the next one, would begin before the tokens are appended. */
    assert(!family->does_all || index + 2 == exec->lowered.launch_count ||
           next[1].node != launch->node || fig_lower_is_idle(&exec->lowered, index + 2));
    assert(!family->does_all || !fig_lower_is_idle(&exec->lowered, index + 1));
    return family->does_all;
}

int fig_exec_graph_is_left_out(const fig_exec *exec, uint32_t index) {
    return fig_lower_is_idle(&exec->lowered, index) || is_done_by_next(exec, index);
}

uint32_t fig_exec_graph_number(const fig_exec *exec, fig_launch_range range, uint32_t *numbers) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < range.count; i++) {
        numbers[i] = count;
        count += !fig_exec_graph_is_left_out(exec, range.first + i);
    }
    return count;
}

/* A look ahead takes as long as a layer, mostly because of the bus. It can end before the graph's
 * last launch only if more than this number of launches follow the middle of the graph. */
enum { LAUNCHES_BEHIND_LOOK = 8 };

uint32_t fig_exec_graph_place_of_look(uint32_t launch_count) {
    const uint32_t middle = launch_count / 2;
    return launch_count - middle > LAUNCHES_BEHIND_LOOK ? middle : 0;
}

static fig_status add_look_ahead(const fig_execs *execs, uint32_t launch_count,
                                 fig_dev_graph *graph) {
    const fig_device_api *api = execs->bindings->api;
    const fig_exec_places *places = &execs->places;
    const fig_look_ahead_params params = {.ring = places->ring,
                                          .state = places->state,
                                          .words = places->words,
                                          .slot_count = places->slot_count,
                                          .slot_bytes = places->slot_bytes};
    fig_dev_launch launch = fig_exec_graph_own(execs, FIG_OP_LOOK_AHEAD, &params);
    const uint32_t before = fig_exec_graph_place_of_look(launch_count);
    launch.is_leaf = 1;
    return api->graph_kernel(execs->bindings->dev, graph, &launch, (fig_dev_after){&before, 1});
}

/* The edges are sorted by target, so the edges into one launch are adjacent. The loop skips edges
 * from outside the range. A launch whose work the next one does passes its predecessors on to the
 * next one. */
fig_status fig_exec_graph_add(const fig_execs *execs, const fig_exec_order *order,
                              fig_dev_graph *graph, const uint32_t *numbers, uint32_t *from) {
    const fig_exec *exec = &execs->of[order->exec];
    const fig_lowered *lowered = &exec->lowered;
    const fig_launch_range range = order->range;
    uint32_t edge = 0, made = 0, count = 0;
    while (edge < lowered->edge_count && lowered->edges[edge].to < range.first)
        edge++;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        for (; edge < lowered->edge_count && lowered->edges[edge].to == i; edge++) {
            const uint32_t before = lowered->edges[edge].from;
            if (before >= range.first && !fig_exec_graph_is_left_out(exec, before))
                from[count++] = order->first_node + numbers[before - range.first];
        }
        if (fig_lower_is_idle(lowered, i)) count = 0;
        if (fig_exec_graph_is_left_out(exec, i)) continue;
        if (order->serial && made > 0) {
            from[0] = order->first_node + made - 1;
            count = 1;
        }
        const fig_dev_after after = {from, count};
        FIG_TRY(fig_exec_graph_add_one(execs, order, graph, i, count > 0 ? after : order->after));
        made++;
        count = 0;
    }
    assert(range.first + range.count < lowered->launch_count || edge == lowered->edge_count);
    return order->own ? add_look_ahead(execs, made, graph) : FIG_OK;
}

fig_status fig_exec_graph_make(const fig_execs *execs, const fig_exec_order *order,
                               fig_dev_graph **graph) {
    const fig_launch_range range = order->range;
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    const uint32_t launches = execs->of[order->exec].lowered.launch_count;
    *graph = NULL;
    FIG_TRY_OURS(range.first <= launches && range.count <= launches - range.first,
                 "engine: launches %" PRIu32 " to %" PRIu32 " of %" PRIu32, range.first,
                 range.first + range.count, launches);
    uint32_t *numbers = calloc((size_t)range.count + 1, 2 * sizeof *numbers);
    if (numbers == NULL) return fig_fail(FIG_NOMEM, "engine: edges of %u launches", range.count);
    fig_exec_graph_number(&execs->of[order->exec], range, numbers);
    fig_status status = api->graph_create(dev, graph);
    if (status == FIG_OK)
        status = fig_exec_graph_add(execs, order, *graph, numbers, numbers + range.count);
    free(numbers);
    if (status == FIG_OK) return FIG_OK;
    api->graph_destroy(dev, *graph);
    *graph = NULL;
    return status;
}

fig_status fig_exec_graph_row(const fig_execs *execs, const fig_dev_launch *launch, uint32_t count,
                              fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    fig_dev_graph *graph;
    FIG_TRY(api->graph_create(dev, &graph));
    fig_status status = FIG_OK;
    for (uint32_t i = 0; status == FIG_OK && i < count; i++) {
        const uint32_t before = i - 1;
        status = api->graph_kernel(dev, graph, launch, (fig_dev_after){&before, i > 0});
    }
    if (status == FIG_OK) status = api->exec_create(dev, exec, graph);
    api->graph_destroy(dev, graph);
    return status;
}
