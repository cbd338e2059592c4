/* run_order.h: chooses the order in which the nodes of a run are launched.
 *
 * An attention kernel does its early reads while the preceding launch ends. Between two attention
 * nodes, an activation cancels this gain: the early reads of the second attention slow the
 * activation down, and the second attention then waits for the activation. So nodes without edges
 * to other nodes, which may include that activation, are launched first. Invariant: the results are
 * those of launching the nodes one after another as recorded. */
#ifndef FIG_ENGINE_RUN_ORDER_H
#define FIG_ENGINE_RUN_ORDER_H

#include "engine/runs/run_tensors.h"

typedef struct fig_run_order {
    /* [node_count] 1: the node is not split, and has no edge to or from another node */
    uint8_t *apart;
    uint8_t *uses; /* [bound_count] uses of each bound tensor: bits of the enum in run_order.c */
} fig_run_order;

/* fig_run_order_finish() accepts a zeroed struct. */
fig_status fig_run_order_init(fig_run_order *order, const fig_run_tensors *tensors);
void fig_run_order_finish(fig_run_order *order);

/* Returns 1 if, in this run, the nodes that are apart may go first: their memory does not overlap
 * the other nodes' memory, except where neither side writes. */
int fig_run_order_is_free(const fig_run_order *order, const fig_run_bound *bound);
/* Returns 1 if a node writes a tensor whose memory overlaps, in this run, that of a bound tensor.
 * Returns 0 for tensor 0, which is absent, and for a temp. */
int fig_run_order_is_written(const fig_run_order *order, const fig_run_bound *bound,
                             uint32_t tensor);

#endif
