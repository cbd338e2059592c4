/* haste.c: see haste.h.
 *
 * Every launch is behind the fetch. The first on the way from there waits before it lets any other
 * begin, so the plan is there before those do. So it is enough to look at the edges that lead to
 * the launch, which are reduced, and at who writes the tensors. Invariant: each operand is looked
 * at once and each edge twice, however many launches there are. */
#include "graphs/haste.h"

#include <stdlib.h>

#include "kernels/table.h"
#include "planner/status.h"

/* How many of the newest tokens of each row a node writes; all, where it is no append. */
static int64_t written_tokens(const fig_program_view *view, const fig_node *node) {
    if (node->op != FIG_OP_APPEND_KV && node->op != FIG_OP_DECODE_ATTENTION) return INT64_MAX;
    const uint32_t k = node->op == FIG_OP_APPEND_KV ? FIG_APPEND_K : FIG_DECODE_ATTENTION_K;
    return view->tensors[view->operands[node->operand + k] - 1].dims[0];
}

/* The most that any node writes of each tensor; 0 where none does. */
static void find_writes(const fig_program_view *view, int64_t *written) {
    for (uint32_t n = 0; n < view->node_count; n++) {
        const fig_node *node = &view->nodes[n];
        const int64_t tokens = written_tokens(view, node);
        for (uint32_t i = 0; i < node->operand_count; i++) {
            const uint32_t tensor = view->operands[node->operand + i];
            if (tensor == 0 || !(fig_program_view_access(view, node, i) & FIG_ACCESS_WRITE))
                continue;
            if (tokens > written[tensor]) written[tensor] = tokens;
        }
    }
}

/* All may be early but attention of whose table something is written in the step, or of whose
 * caches more than the newest tokens, which are its own rows'. */
static uint32_t flags_of(const fig_program_view *view, const fig_launch *launch,
                         const int64_t *written) {
    if (launch->op != FIG_OP_ATTENTION) return FIG_HASTE_EARLY;
    const uint32_t *operands = view->operands + view->nodes[launch->node].operand;
    const int64_t tokens = view->tensors[operands[FIG_ATTENTION_Q] - 1].dims[0];
    const int old = written[operands[FIG_ATTENTION_TABLE]] == 0 &&
                    written[operands[FIG_ATTENTION_K_CACHE]] <= tokens &&
                    written[operands[FIG_ATTENTION_V_CACHE]] <= tokens;
    const int dense = operands[FIG_ATTENTION_TABLE] == 0;
    return (old ? FIG_ATTENTION_EARLY : 0u) | (dense ? FIG_ATTENTION_DENSE : 0u);
}

/* 1: the launch before it is of the same node, and may be left out. */
static int is_rest(const fig_lower_common *common, uint32_t launch) {
    const fig_launch *before = &common->launches[launch - 1];
    return before->node_count > 0 && before->node == common->launches[launch].node;
}

/* Behind what makes the plan nothing is early, nor what would come right behind it if the launch
 * between them were left out. */
static void wait_for_plan(fig_lower_common *common) {
    const uint32_t early = FIG_HASTE_EARLY;
    uint32_t *haste = common->haste;
    for (uint32_t i = 0; i < common->edge_count; i++) {
        const uint32_t op = common->launches[common->edges[i].from].op;
        if (op == FIG_OP_FETCH || op == FIG_OP_PLAN) haste[common->edges[i].to] &= ~early;
    }
    for (uint32_t i = 0, count; i < common->edge_count; i += count) {
        const uint32_t to = common->edges[i].to;
        for (count = 1; i + count < common->edge_count && common->edges[i + count].to == to;)
            count++;
        if (count == 1 && is_rest(common, to) && !(haste[to - 1] & early)) haste[to] &= ~early;
    }
}

fig_status fig_haste_list(const fig_program_view *view, const fig_launch *launches, uint32_t count,
                          uint32_t *haste) {
    int64_t *written = calloc((size_t)view->tensor_count + 1, sizeof *written); /* [id] */
    if (written == NULL)
        return fig_fail(FIG_NOMEM, "haste: %u launches and %u tensors", count, view->tensor_count);
    find_writes(view, written);
    for (uint32_t i = 0; i < count; i++)
        haste[i] = flags_of(view, &launches[i], written);
    free(written);
    return FIG_OK;
}

fig_status fig_haste_find(fig_lower_common *common) {
    const uint32_t count = common->launch_count;
    common->haste = calloc(count, sizeof *common->haste);
    if (common->haste == NULL) return fig_fail(FIG_NOMEM, "haste: %u launches", count);
    FIG_TRY(fig_haste_list(common->view, common->launches, count, common->haste));
    wait_for_plan(common);
    return FIG_OK;
}
