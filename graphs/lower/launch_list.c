/* launch_list.c: lists the launches of a program's nodes and the edges between them.
 *
 * Invariant: an edge of the list has a cause: data, the plan, or a workspace that launches share.
 * Launches without a common cause may run beside each other. */
#include "graphs/lower/launch_list.h"

#include <stdlib.h>

#include "planner/spec/spec.h"
#include "planner/status.h"

static fig_launch launch_of(uint32_t op) {
    fig_launch launch = {.op = op, .split_class = UINT32_MAX};
    if (op != FIG_OP_CALL) launch.params_bytes = fig_kernel_table[op].params_bytes;
    return launch;
}

/* The launches of a node: its own, the one that follows it, and the one for chunks, which runs
 * beside the last of the other two. */
typedef struct launch_ops {
    uint32_t own, then, beside; /* then, beside: 0 if there is none */
} launch_ops;

static launch_ops ops_of(const fig_program_view *view, const fig_node *node) {
    launch_ops ops = {node->op, 0, 0};
    if (!fig_program_view_is_split(view, node)) return ops;
    ops.then = fig_kernel_table[node->op].then;
    if (fig_program_view_has_chunks(view)) ops.beside = fig_kernel_table[node->op].beside;
    return ops;
}

static uint32_t launches_of(const fig_program_view *view, const fig_node *node) {
    const launch_ops ops = ops_of(view, node);
    return 1u + (ops.then != 0) + (ops.beside != 0);
}

static void add_launch(fig_lower_common *common, uint32_t op, uint32_t node, uint32_t split_class) {
    fig_launch launch = launch_of(op);
    launch.node = node;
    launch.node_count = 1;
    launch.split_class = split_class;
    common->launches[common->launch_count++] = launch;
}

/* Makes one to three launches for each node. A launch of attention belongs to the node's split
 * class; a launch that another one follows does not. */
static void make_node_launches(fig_lower_common *common) {
    const fig_program_view *view = common->view;
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        const uint32_t split_class = fig_split_classes_index(&common->classes, view, node);
        const uint32_t first = common->launch_count;
        const launch_ops ops = ops_of(view, node);
        add_launch(common, ops.own, n, ops.then == 0 ? split_class : UINT32_MAX);
        if (ops.then != 0) add_launch(common, ops.then, n, split_class);
        if (ops.beside != 0) add_launch(common, ops.beside, n, split_class);
        common->node_launches[n] = (fig_launch_range){first, common->launch_count - first};
    }
}

uint32_t fig_launch_list_count(const fig_program_view *view) {
    uint32_t count = 1;
    for (uint32_t n = 0; n < view->node_count; n++)
        count += launches_of(view, &view->nodes[n]);
    return count;
}

fig_status fig_launch_list_make(fig_lower_common *common) {
    const uint32_t count = fig_launch_list_count(common->view);
    common->launches = calloc(count, sizeof *common->launches);
    common->node_launches = calloc(count, sizeof *common->node_launches);
    if (common->launches == NULL || common->node_launches == NULL)
        return fig_fail(FIG_NOMEM, "graphs: %u launches of %zu bytes", count,
                        sizeof *common->launches);
    common->launches[common->launch_count++] = launch_of(FIG_OP_FETCH);
    make_node_launches(common);
    return FIG_OK;
}

/* ---- Edges ----------------------------------------------------------------------------------- */

/* The launches that begin a node's work, and the launches that end it. */
typedef struct node_ends {
    fig_launch_range first, last;
} node_ends;

static node_ends ends_of(const fig_lower_common *common, uint32_t node) {
    const fig_launch_range all = common->node_launches[node];
    const launch_ops ops = ops_of(common->view, &common->view->nodes[node]);
    const uint32_t own = ops.then == 0 && ops.beside != 0 ? 2 : 1;
    const uint32_t last = ops.beside != 0 ? 2 : 1;
    return (node_ends){{all.first, own}, {all.first + all.count - last, last}};
}

/* Adds the edges between launches that one edge between nodes demands. */
static uint32_t join_nodes(const fig_lower_common *common, const fig_edge *edge, fig_edge *edges) {
    const fig_launch_range from = ends_of(common, edge->from).last;
    const fig_launch_range to = ends_of(common, edge->to).first;
    uint32_t count = 0;
    for (uint32_t i = 0; i < from.count; i++)
        for (uint32_t j = 0; j < to.count; j++)
            edges[count++] = (fig_edge){from.first + i, to.first + j};
    return count;
}

int fig_launch_list_is_beside(const fig_program_view *view, const fig_launch *launch) {
    if (launch->node_count == 0 || launch->op == FIG_OP_CALL) return 0;
    return launch->op == fig_kernel_table[view->nodes[launch->node].op].beside;
}

/* The edges between launches:
 *   - for each edge between nodes: from each launch that ends one to each that begins the other;
 *   - from a node's own launch to those that follow it;
 *   - from the fetch, and from the launch that makes the plan, to every later launch: all read the
 *     plan;
 *   - between successive launches of one operation and split class, because they share partials and
 *     counters;
 *   - between the launches of one node and those of the next, in a class whose rows may share
 *     tokens, because the launches for rows and for strips share slots. */
fig_status fig_launch_list_join(fig_lower_common *common) {
    uint32_t last[2][FIG_CLASS_LIMIT] = {{0}}, older[FIG_CLASS_LIMIT] = {0}, count = 0;
    const fig_program_view *view = common->view;
    const fig_launch_range *ranges = common->node_launches;
    const uint32_t planned = fig_program_view_reads_lengths(view) ? ranges[0].first : 0;
    const size_t limit = 5 * ((size_t)view->edge_count + (size_t)common->launch_count);
    fig_edge *edges = calloc(limit, sizeof *edges);
    if (edges == NULL) return fig_fail(FIG_NOMEM, "edges: %zu of %zu bytes", limit, sizeof *edges);
    common->edges = edges;
    for (uint32_t i = 0; i < view->edge_count; i++)
        count += join_nodes(common, &view->edges[i], edges + count);
    for (uint32_t to = 1; to < common->launch_count; to++) {
        const fig_launch *launch = &common->launches[to];
        const fig_launch_range first = ends_of(common, launch->node).first;
        const uint32_t split_class = launch->split_class;
        edges[count++] = (fig_edge){0, to};
        if (planned != 0 && to > planned) edges[count++] = (fig_edge){planned, to};
        if (to >= first.first + first.count) edges[count++] = (fig_edge){first.first, to};
        if (split_class == UINT32_MAX) continue;
        const int is_beside = fig_launch_list_is_beside(view, launch);
        uint32_t *before = &last[is_beside][split_class];
        const uint32_t other = is_beside ? older[split_class] : last[1][split_class];
        if (*before != 0) edges[count++] = (fig_edge){*before, to};
        if (other != 0 && common->classes.of[split_class].shared_table != 0)
            edges[count++] = (fig_edge){other, to};
        if (!is_beside) older[split_class] = *before; /* of the node before */
        *before = to;
    }
    common->edge_count = count;
    return fig_edges_reduce(edges, &common->edge_count);
}
