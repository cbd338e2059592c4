/* inspect_page.h: prints graphs and the launches of one of their buckets as a page for a browser.
 *
 * The page is one file; it needs no other file and no script. Owns the page. inspect_svg.c draws
 * the launches in it, and inspect_map.c lists the parts of the workspace. */
#ifndef FIG_TOOLS_INSPECT_PAGE_H
#define FIG_TOOLS_INSPECT_PAGE_H

#include <jansson.h>

#include "tools/figraph/inspect/inspect_map.h"
#include "tools/figraph/inspect/inspect_print.h"
#include "tools/figraph/inspect/inspect_split.h"
#include "tools/figraph/inspect/sketch.h"

typedef struct fig_inspect_page {
    fig_inspect_summary summary;
    const fig_inspect_bucket *bucket;
    const fig_sketch *sketch;
    const fig_print_options *options;
    /* The fields below are filled in by prepare and freed by finish. */
    fig_inspect_split_bars bars[FIG_INSPECT_CLASS_LIMIT]; /* [summary.view->class_count] */
    /* [class] the tiles of each worker of the class */
    int32_t *tiles[FIG_INSPECT_CLASS_LIMIT];
    fig_inspect_map map;
    json_t *facts; /* the facts of the graphs, in the form of facts.h */
} fig_inspect_page;

fig_status fig_inspect_page_prepare(fig_inspect_page *page);
void fig_inspect_page_print(fig_print *print, const fig_inspect_page *page);
void fig_inspect_page_finish(fig_inspect_page *page);

#endif
