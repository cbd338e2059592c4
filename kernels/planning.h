/* planning.h: what the planner's launch does beside the split, for the twin and the kernel alike.
 *
 * Block 0 plans; each block behind it puts a part of a run's scratch to zeros. Invariant: who reads
 * a plan's head cannot tell a run's from one that was fetched. */
#ifndef FIG_KERNELS_PLANNING_H
#define FIG_KERNELS_PLANNING_H

#include "kernels/params.h"

enum { FIG_PLANNING_PIECES = 1024 }; /* of 16 bytes, that a block puts to zeros */

/* Of a run's plan. */
FIG_BOTH fig_plan_head fig_planning_head(const fig_plan_params *p) {
    fig_plan_head head = {0};
    head.bytes = p->shape.layout.bytes;
    head.exec = p->shape.exec;
    head.rows = p->rows;
    head.horizon = 1;
    return head;
}

/* As the caller has it, whatever that is. */
FIG_BOTH int32_t fig_planning_length(const fig_plan_params *p, int32_t row) {
    return p->lengths != NULL ? p->lengths[row] : p->length;
}

#endif
