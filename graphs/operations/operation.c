/* operation.c: makes the checks that all operations share, and calls each operation's own check.
 *
 * The kernel table lists the operands of an operation; this folder checks dims and attributes, so
 * that no kernel needs to. Invariant: attributes that pass have their defaults filled in, so no
 * later code fills in a default. */
#include "graphs/operations/operation.h"

#include <assert.h>

#include "graphs/operations/operation_parts.h"
#include "planner/status.h"

static fig_status check_aliases(const fig_operand_node *o) {
    for (uint32_t b = 0; b < o->node->operand_count; b++) {
        const uint32_t id = fig_operand_id(o, b);
        if (id == 0) continue; /* operands beyond the row are absent, too */
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

/* Fails if there are operands or attributes beyond the row, which a newer library may have
 * added. */
static fig_status check_surplus(const fig_operand_node *o) {
    const fig_kernel *kernel = &fig_kernel_table[o->node->op];
    for (uint32_t i = kernel->operand_count; i < o->node->operand_count; i++)
        if (fig_operand_id(o, i) != 0)
            return fig_operand_refuse(
                o, FIG_UNSUPPORTED,
                "operand %u is there, and this library knows %d: a newer one wrote it", i,
                kernel->operand_count);
    for (uint32_t i = kernel->attribute_bytes; i < o->node->attribute_bytes; i++)
        if (o->view->attributes[o->node->attribute + i] != 0)
            return fig_operand_refuse(
                o, FIG_UNSUPPORTED,
                "byte %u of attributes is not 0, and this library knows %d: a newer one wrote it",
                i, kernel->attribute_bytes);
    return FIG_OK;
}

static fig_status check_kernel(const fig_operand_node *o) {
    const fig_kernel *kernel = &fig_kernel_table[o->node->op];
    const fig_node *node = o->node;
    if (node->operand_count < kernel->operand_least || node->operand_count > FIG_OPERAND_LIMIT)
        return fig_operand_refuse(o, FIG_FORMAT, "%u operands, limits %d to %d",
                                  node->operand_count, kernel->operand_least, FIG_OPERAND_LIMIT);
    if (node->attribute_bytes < kernel->attribute_least ||
        node->attribute_bytes > FIG_ATTRIBUTE_LIMIT)
        return fig_operand_refuse(o, FIG_FORMAT, "%u bytes of attributes, limits %d to %d",
                                  node->attribute_bytes, kernel->attribute_least,
                                  FIG_ATTRIBUTE_LIMIT);
    FIG_TRY(check_surplus(o));
    FIG_TRY(fig_operand_check_present(o));
    return check_aliases(o);
}

typedef struct node_row {
    uint8_t is_node;                                /* 0: a program cannot record the operation */
    fig_status (*check)(const fig_operand_node *o); /* NULL: the row alone is enough */
} node_row;

#define NO_NODE                                                                                    \
    { 0, NULL }
#define FREE                                                                                       \
    { 1, NULL }
#define CHECKED(f)                                                                                 \
    { 1, fig_operation_##f }
#define ROW(number, OP, name, reference, check, families) [number] = check,
static const node_row rows[FIG_OP_KERNEL_COUNT] = {FIG_OPERATIONS(ROW, FIG_OP_NOTHING)};

fig_status fig_operation_check(const fig_program_view *view, uint32_t node) {
    assert(node < view->node_count);
    fig_operand_node o = {view, &view->nodes[node], NULL, node};
    if (o.node->op == FIG_OP_CALL) return fig_operation_call_check(&o);
    if (o.node->op >= FIG_OP_KERNEL_COUNT || !rows[o.node->op].is_node)
        return fig_operand_refuse(&o, FIG_FORMAT, "op is %d, which no node has", o.node->op);
    o.operands = fig_kernel_table[o.node->op].operands;
    FIG_TRY(check_kernel(&o));
    return rows[o.node->op].check != NULL ? rows[o.node->op].check(&o) : FIG_OK;
}

/* The blocks of a kernel run in any order, so no block may read values that another block writes.
 * An operation may work in place only if each block reads, of the shared tensor, only the values
 * that it will itself overwrite. */
int fig_operation_may_share(uint32_t op, uint32_t a, uint32_t b) {
    if (op >= FIG_OP_KERNEL_COUNT || b >= fig_kernel_table[op].operand_count) return 0;
    return fig_kernel_table[op].operands[b].in_place == FIG_SLOT(a);
}
