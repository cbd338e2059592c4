/* run_order.h: in which order the nodes of a run are launched.
 *
 * Attention reads ahead while the launch before it ends. An activation between two attentions takes
 * that from the second: it ends late, beside what the second reads, which then waits for it. So
 * nodes that no other needs go first. Invariant: what nodes leave is what they would leave one
 * after the other, as they were recorded. */
#ifndef FIG_ENGINE_RUN_ORDER_H
#define FIG_ENGINE_RUN_ORDER_H

#include "engine/runs/run_tensors.h"

typedef struct fig_run_order {
    uint8_t *apart; /* [node_count] 1: the node is no attention, needs nothing that another leaves,
                       and none needs what it leaves */
    uint8_t *uses;  /* [bound_count] what nodes do with the tensor: bits of run_order.c's */
} fig_run_order;

/* finish takes a zeroed struct. */
fig_status fig_run_order_init(fig_run_order *order, const fig_run_tensors *tensors);
void fig_run_order_finish(fig_run_order *order);

/* 1: memory of nodes that are apart meets none of the others', where one of the two is written: so
 * they may go first. */
int fig_run_order_is_free(const fig_run_order *order, const fig_run_bound *bound);

#endif
