/* haste.c: see haste.h.
 *
 * What was written two launches up is there before a launch begins: the one between them waited for
 * it. So it is enough to look at the edges that lead to the launch, which are reduced, and at who
 * writes the tensors. */
#include "graphs/haste.h"

#include "kernels/table.h"

/* 1: an edge comes from what makes the plan. */
static int follows_plan(const fig_lowered *lowered, uint32_t launch) {
    for (uint32_t i = 0; i < lowered->edge_count; i++) {
        const fig_edge *edge = &lowered->edges[i];
        if (edge->to != launch) continue;
        const uint32_t op = lowered->launches[edge->from].op;
        if (op == FIG_OP_FETCH || op == FIG_OP_PLAN) return 1;
    }
    return 0;
}

/* 1: the node writes no more of a cache than the newest `tokens` of each row. */
static int appends_newest(const fig_program_view *view, const fig_node *node, int32_t tokens) {
    if (node->op != FIG_OP_APPEND_KV && node->op != FIG_OP_DECODE_ATTENTION) return 0;
    const uint32_t k = node->op == FIG_OP_APPEND_KV ? FIG_APPEND_K : FIG_DECODE_ATTENTION_K;
    return view->tensors[view->operands[node->operand + k] - 1].dims[0] <= tokens;
}

/* 1: no node writes the tensor, but for the newest `tokens` of a cache. */
static int is_old(const fig_program_view *view, uint32_t tensor, int32_t tokens) {
    for (uint32_t n = 0; n < view->node_count && tensor != 0; n++) {
        const fig_node *node = &view->nodes[n];
        for (uint32_t i = 0; i < node->operand_count; i++) {
            if (view->operands[node->operand + i] != tensor) continue;
            const int writes = (fig_program_access(view, node, i) & FIG_ACCESS_WRITE) != 0;
            if (writes && !appends_newest(view, node, tokens)) return 0;
        }
    }
    return 1;
}

uint32_t fig_haste_of(const fig_program_view *view, const fig_lowered *lowered, uint32_t launch) {
    const fig_launch *own = &lowered->launches[launch];
    if (own->op != FIG_OP_ATTENTION || follows_plan(lowered, launch)) return 0;
    const uint32_t *operands = view->operands + view->nodes[own->node].operand;
    const int32_t tokens = (int32_t)view->tensors[operands[FIG_ATTENTION_Q] - 1].dims[0];
    const int old = is_old(view, operands[FIG_ATTENTION_TABLE], 0) &&
                    is_old(view, operands[FIG_ATTENTION_K_CACHE], tokens) &&
                    is_old(view, operands[FIG_ATTENTION_V_CACHE], tokens);
    return old ? FIG_ATTENTION_EARLY : 0;
}
