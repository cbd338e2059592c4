/* operation.c: what every operation demands, and which file knows what each demands beside.
 *
 * The kernel table says which operands an operation has; dims and attributes are said in this room,
 * so that no kernel checks any. Invariant: attributes that pass are resolved; no default is known
 * later. */
#include "graphs/operations/operation.h"

#include <assert.h>

#include "graphs/operations/operation_parts.h"
#include "planner/status.h"

static fig_status check_aliases(const fig_operand_node *o) {
    for (uint32_t b = 0; b < o->node->operand_count; b++) {
        const uint32_t id = fig_operand_id(o, b);
        if (id == 0) continue;
        for (uint32_t a = 0; a < b; a++) {
            const uint32_t access = o->operands[a].access | o->operands[b].access;
            if (fig_operand_id(o, a) != id || !(access & FIG_ACCESS_WRITE)) continue;
            if (fig_operation_may_share(o->node->op, a, b)) continue;
            return fig_operand_refuse(o, FIG_INVALID,
                                      "%s and %s are both %s, one of them is written",
                                      o->operands[a].name, o->operands[b].name,
                                      fig_program_view_tensor_name(o->view, id));
        }
    }
    return FIG_OK;
}

static fig_status check_kernel(const fig_operand_node *o) {
    const fig_kernel *kernel = &fig_kernel_table[o->node->op];
    if (o->node->operand_count != kernel->operand_count)
        return fig_operand_refuse(o, FIG_FORMAT, "%u operands, it must be %d",
                                  o->node->operand_count, kernel->operand_count);
    const int is_brief =
        kernel->brief_bytes != 0 && o->node->attribute_bytes == kernel->brief_bytes;
    if (!is_brief && o->node->attribute_bytes != kernel->attribute_bytes)
        return fig_operand_refuse(o, FIG_FORMAT, "%u bytes of attributes, it must be %d",
                                  o->node->attribute_bytes, kernel->attribute_bytes);
    FIG_TRY(fig_operand_check_present(o));
    return check_aliases(o);
}

/* What an engine or a run launches of itself, and no program records. */
static int is_no_node_s(uint16_t op) {
    return op == FIG_OP_FETCH || op == FIG_OP_LOOK_AHEAD || op == FIG_OP_CEILING ||
           op == FIG_OP_WHOLE_ATTENTION;
}

fig_status fig_operation_check(const fig_program_view *view, uint32_t node) {
    assert(node < view->node_count);
    fig_operand_node o = {view, &view->nodes[node], NULL, node};
    if (o.node->op == FIG_OP_CALL) return fig_operation_call_check(&o);
    if (o.node->op >= FIG_OP_KERNEL_COUNT || is_no_node_s(o.node->op))
        return fig_operand_refuse(&o, FIG_FORMAT, "op is %d, which no node has", o.node->op);
    o.operands = fig_kernel_table[o.node->op].operands;
    FIG_TRY(check_kernel(&o));
    switch (o.node->op) {
    case FIG_OP_PLAN: return fig_operation_rows_check_plan(&o);
    case FIG_OP_GATED: return fig_operation_rows_check_gated(&o);
    case FIG_OP_RMS_NORM: return fig_operation_rows_check_norm(&o);
    case FIG_OP_ROPE: return fig_operation_rope_check(&o);
    case FIG_OP_APPEND_KV: return fig_operation_attention_check_append(&o);
    case FIG_OP_ATTENTION: return fig_operation_attention_check(&o);
    case FIG_OP_MERGE_STATES: return fig_operation_attention_check_merge(&o);
    case FIG_OP_DECODE_ATTENTION: return fig_operation_attention_check_decode(&o);
    case FIG_OP_ALL_REDUCE: return fig_operation_rows_check_all_reduce(&o);
    case FIG_OP_ALL_GATHER: return fig_operation_rows_check_all_gather(&o);
    }
    return fig_operand_refuse(&o, FIG_UNSUPPORTED, "nothing checks it");
}

/* A kernel's blocks run in any order, so what one writes no other may read: only those that read
 * just what they are about to write may work in place. */
int fig_operation_may_share(uint32_t op, uint32_t a, uint32_t b) {
    switch (op) {
    case FIG_OP_ROPE:
        return (a == FIG_ROPE_Q && b == FIG_ROPE_Q_OUT) || (a == FIG_ROPE_K && b == FIG_ROPE_K_OUT);
    case FIG_OP_RMS_NORM: return a == FIG_RMS_NORM_IN && b == FIG_RMS_NORM_OUT;
    case FIG_OP_ALL_REDUCE: return a == FIG_ALL_REDUCE_IN && b == FIG_ALL_REDUCE_OUT;
    }
    return 0;
}
