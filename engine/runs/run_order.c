/* run_order.c: chooses the order in which the nodes of a run are launched.
 *
 * The program's edges show which nodes use each other's tensors. But a caller may bind two tensors
 * to the same memory, which shows only in the bindings of a run. Invariant: a tensor lies within
 * the bytes of its binding, so tensors whose bytes do not overlap are disjoint, whatever their
 * strides. */
#include "engine/runs/run_order.h"

#include <inttypes.h>
#include <stdlib.h>

#include "planner/status.h"

/* Bits of `uses`: a node that is apart uses the tensor; some other node uses it; some node writes
 * it. */
enum { OF_APART = 1, OF_OTHERS = 2, WRITTEN = 4 };

static void list_apart(const fig_program_view *view, uint8_t *apart) {
    for (uint32_t n = 0; n < view->node_count; n++)
        apart[n] = !fig_program_view_is_split(view, &view->nodes[n]);
    for (uint32_t i = 0; i < view->edge_count; i++)
        apart[view->edges[i].from] = apart[view->edges[i].to] = 0;
}

static void add_uses(const fig_run_tensors *tensors, const fig_node *node, uint8_t use,
                     uint8_t *uses) {
    const fig_program_view *view = tensors->view;
    for (uint32_t i = 0; i < node->operand_count; i++) {
        const uint32_t tensor = view->operands[node->operand + i];
        const int32_t number = tensor != 0 ? tensors->of[tensor - 1].binding : -1;
        const int writes = (fig_program_view_access(view, node, i) & FIG_ACCESS_WRITE) != 0;
        if (number >= 0) uses[number] |= (uint8_t)(use | (writes ? WRITTEN : 0));
    }
}

fig_status fig_run_order_init(fig_run_order *order, const fig_run_tensors *tensors) {
    const fig_program_view *view = tensors->view;
    const size_t count = (size_t)tensors->bound_count + 1; /* never 0 */
    *order = (fig_run_order){calloc((size_t)view->node_count + 1, 1), calloc(count, 1)};
    if (order->apart == NULL || order->uses == NULL)
        return fig_fail(FIG_NOMEM, "runner: %" PRIu32 " nodes", view->node_count);
    list_apart(view, order->apart);
    for (uint32_t n = 0; n < view->node_count; n++)
        add_uses(tensors, &view->nodes[n], order->apart[n] ? OF_APART : OF_OTHERS, order->uses);
    return FIG_OK;
}

void fig_run_order_finish(fig_run_order *order) {
    free(order->apart);
    free(order->uses);
    *order = (fig_run_order){0};
}

/* The caller may be compiled with another version of the header, so the first struct gives the size
 * of all. */
static const fig_binding *binding_of(const fig_run *run, int32_t number) {
    return (const void *)((const uint8_t *)run->bindings + (size_t)number * run->bindings[0].size);
}

static int meet(const fig_binding *a, const fig_binding *b) {
    const uintptr_t first = (uintptr_t)a->address, second = (uintptr_t)b->address;
    return first < second + b->bytes && second < first + a->bytes;
}

/* Returns the number of bindings that the graphs use; the caller may give more. */
static int32_t binding_count(const fig_run_bound *bound) {
    const int32_t given = bound->run->binding_count, known = bound->tensors->bound_count;
    return given < known ? given : known;
}

static int is_clear(const fig_run_order *order, const fig_run_bound *bound, int32_t number) {
    const fig_binding *own = binding_of(bound->run, number);
    for (int32_t i = 0; i < binding_count(bound); i++)
        if ((order->uses[i] & OF_OTHERS) != 0 &&
            ((order->uses[i] | order->uses[number]) & WRITTEN) != 0 &&
            meet(own, binding_of(bound->run, i)))
            return 0;
    return 1;
}

int fig_run_order_is_free(const fig_run_order *order, const fig_run_bound *bound) {
    for (int32_t i = 0; i < binding_count(bound); i++)
        if ((order->uses[i] & OF_APART) != 0 && !is_clear(order, bound, i)) return 0;
    return 1;
}

int fig_run_order_is_written(const fig_run_order *order, const fig_run_bound *bound,
                             uint32_t tensor) {
    const int32_t number = tensor != 0 ? bound->tensors->of[tensor - 1].binding : -1;
    if (number < 0 || number >= binding_count(bound)) return 0;
    const fig_binding *own = binding_of(bound->run, number);
    for (int32_t i = 0; i < binding_count(bound); i++)
        if ((order->uses[i] & WRITTEN) != 0 && meet(own, binding_of(bound->run, i))) return 1;
    return 0;
}
