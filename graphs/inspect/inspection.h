/* inspection.h: the private part of an open inspection: arrays and launches.
 *
 * Invariant: `told` comes first, because the caller holds a pointer to it. */
#ifndef FIG_GRAPHS_INSPECTION_H
#define FIG_GRAPHS_INSPECTION_H

#include "graphs/graphs.h"
#include "graphs/view/score_units.h"
#include "include/figraph_inspect.h"

typedef struct fig_inspection_own {
    fig_inspection told;
    const fig_program_view *view;
    fig_lowered lowered; /* zeros if the caller asked for no bucket */
    fig_inspect_tensor *tensors;
    fig_inspect_node *nodes;
    fig_inspect_operand *operands;
    fig_inspect_segment *segments;
    fig_inspect_launch *launches;
    fig_score *scores; /* [scores of the program] */
    const char *changed[FIG_OP_KERNEL_COUNT];
} fig_inspection_own;

const fig_inspection_own *fig_inspection_own_of(const fig_inspection *inspection);

#endif
