/* inspect_split.h: draws the distribution of a step's tiles among workers, within a page. */
#ifndef FIG_TOOLS_INSPECT_SPLIT_H
#define FIG_TOOLS_INSPECT_SPLIT_H

#include "tools/figraph/inspect/inspect.h"

/* The data of a drawing of one attention class. */
typedef struct fig_inspect_split_bars {
    const fig_step *step;
    fig_plan_report report; /* its worker_tiles and row_tiles must be set */
} fig_inspect_split_bars;

/* Draws a bar for each worker, with axes. The colour of each tile shows the row of the tile. */
void fig_inspect_split_draw(fig_print *print, const fig_inspect_split_bars *bars);
/* Prints the drawing's style, for a <style> element. */
void fig_inspect_split_style(fig_print *print);

#endif
