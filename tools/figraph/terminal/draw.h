/* draw.h: draws the load of each worker as a bar.
 *
 * Invariant: no line is wider than fig_columns(), however many workers there are. */
#ifndef FIG_TOOLS_DRAW_H
#define FIG_TOOLS_DRAW_H

#include <stdint.h>

typedef struct fig_draw_loads {
    const int32_t *tiles; /* [workers] */
    const int32_t *rows;  /* [workers]: rows of the step that a worker reads */
    const char *counted;  /* "rows": what `rows` counts, at most 6 letters */
    /* [workers] of `tiles`, those at the foot of the bar that are drawn marked; NULL: none are */
    const int32_t *marked;
    int32_t workers;
    int32_t most; /* the tiles of a full bar */
} fig_draw_loads;

/* Returns the character of marked tiles. */
const char *fig_draw_mark(void);
void fig_draw_bars(const fig_draw_loads *loads);

#endif
