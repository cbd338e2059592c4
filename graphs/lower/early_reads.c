/* early_reads.c: decides which launches may read before the launches in front of them have ended.
 *
 * Every launch comes after the fetch. The first launch behind the fetch waits for the fetch before
 * it lets any other launch begin, so the other launches find the plan complete. The decision
 * therefore needs only the (reduced) edges into a launch and the nodes that write the launch's
 * tensors. Invariant: each operand is read once and each edge twice, so the time is linear. */
#include "graphs/lower/early_reads.h"

#include <stdlib.h>

#include "kernels/table/table.h"
#include "planner/spec/spec.h"
#include "planner/status.h"

/* Returns the number of tokens that a node appends to each row, or INT64_MAX if the node is not an
 * append. */
static int64_t written_tokens(const fig_program_view *view, const fig_node *node) {
    if (node->op >= FIG_OP_KERNEL_COUNT || fig_kernel_table[node->op].appends == 0)
        return INT64_MAX;
    const uint32_t k = fig_kernel_table[node->op].appends - 1u;
    return fig_program_view_tensor(view, node, k)->dims[0];
}

/* Sets written[id] to the largest written_tokens() of the nodes that write the tensor, or to 0 if
 * no node writes it. */
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

/* Returns FIG_EARLY_READS_WRITTEN if a node writes a weight that the launch reads before its
 * wait. */
static uint32_t weight_flags_of(const fig_program_view *view, const fig_launch *launch,
                                const int64_t *written) {
    if (launch->node_count == 0 || launch->op >= FIG_OP_KERNEL_COUNT) return 0;
    const fig_node *node = &view->nodes[launch->node];
    if (launch->op != node->op) return 0;
    for (uint32_t weights = fig_kernel_table[node->op].early_weights, i = 0; weights >> i != 0; i++)
        if ((weights >> i & 1) && written[fig_program_view_operand(view, node, i)] > 0)
            return FIG_EARLY_READS_WRITTEN;
    return 0;
}

/* Every launch may read early, with one exception: split attention may not, if a node of the same
 * step writes to the attention's page table, or writes tokens of its caches other than the newest
 * tokens of its rows. */
static uint32_t flags_of(const fig_program_view *view, const fig_launch *launch,
                         const int64_t *written) {
    if (launch->split_class == UINT32_MAX) return FIG_EARLY_READS_ON;
    const fig_node *node = &view->nodes[launch->node];
    const fig_split_row *split = fig_kernel_table[node->op].split;
    const int64_t tokens = fig_program_view_tensor(view, node, split->q)->dims[0];
    const uint32_t table = fig_program_view_operand(view, node, split->table);
    const int old = written[table] == 0 &&
                    written[fig_program_view_operand(view, node, split->k_cache)] <= tokens &&
                    written[fig_program_view_operand(view, node, split->v_cache)] <= tokens;
    const int dense = table == 0;
    /* Beside a launch for chunks, a block that waits for another block of its own launch could hold
     * its SM for as long as the chunks take: the other block may get no SM before. */
    const int apart = fig_program_view_has_chunks(view);
    const int scored = fig_kernel_table[node->op].has_score;
    return (old ? FIG_ATTENTION_EARLY : 0u) | (dense ? FIG_ATTENTION_DENSE : 0u) |
           (apart ? FIG_ATTENTION_APART : 0u) | (scored ? FIG_ATTENTION_SCORED : 0u);
}

/* Returns 1 if the previous launch belongs to the same node and an exec may leave that previous
 * launch out. */
static int is_rest(const fig_lower_common *common, uint32_t launch) {
    const fig_launch *before = &common->launches[launch - 1];
    return before->node_count > 0 && before->node == common->launches[launch].node;
}

/* Clears the flags of launches that must wait for the plan. A launch directly behind the launch
 * that makes the plan reads nothing early. Nor does a launch that would directly follow the plan's
 * launch if an exec left out the launch between them. */
static void wait_for_plan(fig_lower_common *common) {
    const uint32_t early = FIG_EARLY_READS_ON;
    uint32_t *early_reads = common->early_reads;
    for (uint32_t i = 0; i < common->edge_count; i++) {
        const uint32_t op = common->launches[common->edges[i].from].op;
        if (op < FIG_OP_KERNEL_COUNT && fig_kernel_table[op].makes_plan)
            early_reads[common->edges[i].to] &= ~early;
    }
    for (uint32_t i = 0, count; i < common->edge_count; i += count) {
        const uint32_t to = common->edges[i].to;
        for (count = 1; i + count < common->edge_count && common->edges[i + count].to == to;)
            count++;
        if (count == 1 && is_rest(common, to) && !(early_reads[to - 1] & early))
            early_reads[to] &= ~early;
    }
}

fig_status fig_early_reads_list(const fig_program_view *view, const fig_launch *launches,
                                uint32_t count, uint32_t *early_reads) {
    int64_t *written = calloc((size_t)view->tensor_count + 1, sizeof *written); /* [id] */
    if (written == NULL)
        return fig_fail(FIG_NOMEM, "early reads: %u launches and %u tensors", count,
                        view->tensor_count);
    find_writes(view, written);
    for (uint32_t i = 0; i < count; i++)
        early_reads[i] =
            flags_of(view, &launches[i], written) | weight_flags_of(view, &launches[i], written);
    free(written);
    return FIG_OK;
}

void fig_early_reads_add(const fig_launch *launches, uint32_t count, uint32_t flags,
                         uint32_t *early_reads) {
    for (uint32_t i = 0; i < count; i++)
        if (launches[i].split_class != UINT32_MAX) early_reads[i] |= flags;
}

fig_status fig_early_reads_find(fig_lower_common *common) {
    const uint32_t count = common->launch_count;
    common->early_reads = calloc(count, sizeof *common->early_reads);
    if (common->early_reads == NULL) return fig_fail(FIG_NOMEM, "early reads: %u launches", count);
    FIG_TRY(fig_early_reads_list(common->view, common->launches, count, common->early_reads));
    wait_for_plan(common);
    return FIG_OK;
}
