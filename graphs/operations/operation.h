/* operation.h: what each operation demands of its tensors, when recorded and when read from a file.
 *
 * The recorder's calls of the public header are in recorder.c. Invariant: a node that passes here
 * lowers to params that stay inside its tensors, whatever the bucket. */
#ifndef FIG_GRAPHS_OPERATION_H
#define FIG_GRAPHS_OPERATION_H

#include "graphs/program_view.h"

/* The node's operands, dtypes, dims and attributes; its sentence begins "node <n> (<op>): ". */
fig_status fig_operation_check(const fig_program_view *view, uint32_t node);
/* 1: operands a < b of a node of that operation may be one tensor, though one of them is
 * written. */
int fig_operation_may_share(uint32_t op, uint32_t a, uint32_t b);

#endif
