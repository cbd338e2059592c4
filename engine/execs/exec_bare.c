/* exec_bare.c: makes execs for measuring times: a step's nodes without a fetch, or kernels that
 * only read memory.
 *
 * A step's nodes may run back to back or with spacers between them. This file is cold. */
#include "engine/execs/exec_bare.h"

#include <stdlib.h>

#include "engine/execs/exec_graph.h"
#include "planner/status.h"

/* ---- Readings ------------------------------------------------------------------------------ */

/* Adds launch number `index` of a reading, which reads the next piece of memory. */
static fig_status add_reading(const fig_execs *execs, const fig_exec_reading *reading,
                              uint32_t index, fig_dev_graph *graph, fig_dev_after after) {
    const fig_device_api *api = execs->bindings->api;
    const size_t piece = reading->piece_bytes;
    const size_t at = piece > 0 ? index % (reading->bytes / piece) * piece : 0;
    const fig_ceiling_params params = {.in = at > 0 ? reading->from + at : reading->from,
                                       .out = reading->folded,
                                       .pieces = (uint32_t)(piece / 16),
                                       .blocks = reading->blocks};
    fig_dev_launch launch = fig_exec_graph_own(execs, FIG_OP_CEILING, &params);
    launch.is_plain = reading->is_plain;
    return api->graph_kernel(execs->bindings->dev, graph, &launch, after);
}

static fig_status add_readings(const fig_execs *execs, const fig_exec_reading *reading,
                               fig_dev_graph *graph) {
    for (uint32_t i = 0; i < reading->launches; i++) {
        const uint32_t before = i - 1;
        FIG_TRY(add_reading(execs, reading, i, graph, (fig_dev_after){&before, i > 0}));
    }
    return FIG_OK;
}

/* ---- Nodes alone --------------------------------------------------------------------------- */

/* Lists the leaves: the nodes of the first copy on which no launch of the range depends. Returns
 * their number. */
static uint32_t find_leaves(const fig_lowered *lowered, fig_launch_range range,
                            const uint32_t *numbers, uint32_t *leaves) {
    uint32_t count = 0;
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        uint32_t edge = 0;
        if (fig_lower_is_idle(lowered, i)) continue;
        while (edge < lowered->edge_count && lowered->edges[edge].from != i)
            edge++;
        if (edge == lowered->edge_count) leaves[count++] = numbers[i - range.first];
    }
    return count;
}

/* Adds `copies` copies of the launches. scratch has 3 * range.count + 1 entries, for the node
 * numbers, the leaves of the previous copy and the scratch of fig_exec_graph_add. */
static fig_status add_copies(const fig_execs *execs, fig_exec_order order, uint32_t copies,
                             fig_dev_graph *graph, uint32_t *scratch) {
    const fig_exec *exec = &execs->of[order.exec];
    uint32_t *numbers = scratch, *leaves = numbers + order.range.count;
    const uint32_t count = fig_exec_graph_number(exec, order.range, numbers);
    uint32_t leaf_count = find_leaves(&exec->lowered, order.range, numbers, leaves);
    if (order.serial) {
        leaves[0] = count - 1;
        leaf_count = 1;
    }
    for (uint32_t copy = 0; copy < copies; copy++) {
        FIG_TRY(fig_exec_graph_add(execs, &order, graph, numbers, leaves + order.range.count));
        for (uint32_t i = 0; i < leaf_count && copy > 0; i++)
            leaves[i] += count;
        order.first_node += count;
        order.after = (fig_dev_after){leaves, leaf_count};
    }
    return FIG_OK;
}

static fig_status add_chain(const fig_execs *execs, const fig_exec_order *order, uint32_t copies,
                            fig_dev_graph *graph) {
    uint32_t *scratch = calloc((size_t)order->range.count + 1, 3 * sizeof *scratch);
    if (scratch == NULL)
        return fig_fail(FIG_NOMEM, "engine: edges of %u launches", order->range.count);
    const fig_status status = add_copies(execs, *order, copies, graph, scratch);
    free(scratch);
    return status;
}

/* Adds the nodes, with a spacer before each node. The launches of one node follow each other as in
 * a step. */
static fig_status add_spaced(const fig_execs *execs, const fig_exec_bare *bare,
                             fig_exec_order order, fig_dev_graph *graph) {
    const fig_exec *exec = &execs->of[bare->exec];
    const uint32_t end = order.range.first + order.range.count;
    uint32_t made = 0, spacers = 0, node = UINT32_MAX;
    for (uint32_t i = order.range.first; i < end; i++) {
        const fig_launch *launch = &exec->lowered.launches[i];
        const uint32_t before = made - 1;
        if (launch->node_count > 0 && launch->node != node) {
            if (spacers == bare->spacer->launches) break;
            const fig_dev_after after = {&before, made > 0};
            FIG_TRY(add_reading(execs, bare->spacer, spacers++, graph, after));
            node = launch->node;
            order.is_plain = 1;
            made++;
        }
        if (bare->spacers_only || fig_exec_graph_is_left_out(exec, i)) continue;
        const uint32_t last = made - 1;
        FIG_TRY(fig_exec_graph_add_one(execs, &order, graph, i, (fig_dev_after){&last, made > 0}));
        order.is_plain = 0;
        made++;
    }
    return FIG_OK;
}

static fig_status add_nodes(const fig_execs *execs, const fig_exec_bare *bare,
                            fig_dev_graph *graph) {
    const uint32_t count = execs->of[bare->exec].lowered.launch_count - 1;
    const fig_exec_order order = {.exec = bare->exec, .range = {1, count}, .serial = bare->serial};
    return bare->spacer != NULL ? add_spaced(execs, bare, order, graph)
                                : add_chain(execs, &order, bare->copies, graph);
}

/* ---- Making execs -------------------------------------------------------------------------- */

static fig_status make(const fig_execs *execs, const fig_exec_bare *bare,
                       const fig_exec_reading *reading, fig_dev_exec **exec) {
    const fig_device_api *api = execs->bindings->api;
    fig_dev *dev = execs->bindings->dev;
    fig_dev_graph *graph;
    *exec = NULL;
    FIG_TRY(api->graph_create(dev, &graph));
    fig_status status =
        bare != NULL ? add_nodes(execs, bare, graph) : add_readings(execs, reading, graph);
    if (status == FIG_OK) status = api->exec_create(dev, exec, graph);
    api->graph_destroy(dev, graph);
    return status;
}

fig_status fig_exec_bare_nodes(const fig_execs *execs, const fig_exec_bare *bare,
                               fig_dev_exec **exec) {
    assert(fig_execs_ready(execs, bare->exec) && (bare->spacer != NULL || bare->copies >= 1));
    return make(execs, bare, NULL, exec);
}

fig_status fig_exec_bare_readings(const fig_execs *execs, const fig_exec_reading *reading,
                                  fig_dev_exec **exec) {
    return make(execs, NULL, reading, exec);
}
