/* inspect_page.h: graphs and the launches of one of their buckets as a page for a browser.
 *
 * One file that needs no other, nor a script. Owns the page; the drawing in it is inspect_svg.c's,
 * the map of the workspace inspect_map.c's. */
#ifndef FIG_GRAPHS_INSPECT_PAGE_H
#define FIG_GRAPHS_INSPECT_PAGE_H

#include <jansson.h>

#include "graphs/inspect/inspect_map.h"
#include "graphs/inspect/sketch.h"

/* The split of a step, of one class. */
typedef struct fig_inspect_split_bars {
    fig_plan_report report;
    int32_t *tiles; /* [report.workers] */
} fig_inspect_split_bars;

typedef struct fig_inspect_page {
    fig_inspect_summary summary;
    const fig_inspect_bucket *bucket;
    const fig_sketch *sketch;
    const fig_step *step; /* NULL: no split is shown */
    /* What prepare fills in and finish frees. */
    fig_inspect_split_bars bars[FIG_CLASS_LIMIT]; /* [summary.classes.count] */
    fig_inspect_map map;
    json_t *facts; /* of the graphs, as facts.h has them */
} fig_inspect_page;

fig_status fig_inspect_page_prepare(fig_inspect_page *page);
void fig_inspect_page_print(fig_print *print, const fig_inspect_page *page);
void fig_inspect_page_finish(fig_inspect_page *page);

#endif
