/* operation.h: checks that a node's tensors suit its operation, when a caller records the node and
 * when a file is read.
 *
 * The recorder calls of the public header are in recorder.c. Invariant: a node that passes here
 * lowers to params that stay inside its tensors, whatever the bucket. */
#ifndef FIG_GRAPHS_OPERATION_H
#define FIG_GRAPHS_OPERATION_H

#include "graphs/view/program_view.h"

/* Checks the node's operands, dtypes, dims and attributes. Messages begin with "node <n> (<op>):
 * ". */
fig_status fig_operation_check(const fig_program_view *view, uint32_t node);
/* Returns 1 if operands a < b of a node of that operation may be the same tensor, even though the
 * node writes one of them. */
int fig_operation_may_share(uint32_t op, uint32_t a, uint32_t b);

#endif
