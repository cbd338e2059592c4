/* draw.h: the load of each worker as bars a person reads at a glance.
 *
 * Invariant: no line is wider than fig_columns(), however many workers there are. */
#ifndef FIG_TOOLS_DRAW_H
#define FIG_TOOLS_DRAW_H

#include <stdint.h>

typedef struct fig_draw_loads {
    const int32_t *tiles; /* [workers] */
    const int32_t *rows;  /* [workers]: rows of the step that a worker reads */
    int32_t workers;
    int32_t most; /* what a full bar stands for */
} fig_draw_loads;

void fig_draw_bars(const fig_draw_loads *loads);

#endif
