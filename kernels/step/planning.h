/* planning.h: holds the parts of the planning launch other than the split, for the reference kernel
 * and the kernel.
 *
 * Block 0 plans; each further block sets a part of a run's scratch to zeros. Invariant: the head of
 * a run's plan looks like that of a fetched plan to every reader. */
#ifndef FIG_KERNELS_PLANNING_H
#define FIG_KERNELS_PLANNING_H

#include "kernels/common/params.h"

enum { FIG_PLANNING_PIECES = 1024 }; /* pieces of 16 bytes that a block sets to zeros */

/* Returns the head of a run's plan. */
FIG_BOTH fig_plan_head fig_planning_head(const fig_plan_params *p) {
    fig_plan_head head = {0};
    head.bytes = p->shape.layout.bytes;
    head.exec = p->shape.exec;
    head.rows = p->rows;
    head.horizon = 1;
    return head;
}

/* Returns a row's length as the caller gave it, unchecked. */
FIG_BOTH int32_t fig_planning_length(const fig_plan_params *p, int32_t row) {
    return p->lengths != NULL ? p->lengths[row] : p->length;
}

/* Returns the number of a row's query tokens in a packed program; impossible numbers count as 0.
 * The difference is unsigned, because the numbers are unchecked. */
FIG_BOTH int32_t fig_planning_queries(const fig_plan_params *p, int32_t row) {
    if (p->query_starts == NULL) return p->shape.row_tokens;
    const int32_t *start = p->query_starts + row;
    const uint32_t count = (uint32_t)start[1] - (uint32_t)start[0];
    return count <= (uint32_t)p->shape.row_tokens ? (int32_t)count : 0;
}

#endif
