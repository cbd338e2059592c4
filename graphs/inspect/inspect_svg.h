/* inspect_svg.h: the launches of a bucket as a drawing, by itself or within a page. */
#ifndef FIG_GRAPHS_INSPECT_SVG_H
#define FIG_GRAPHS_INSPECT_SVG_H

#include "graphs/inspect/inspect.h"
#include "graphs/inspect/sketch.h"

/* A file of its own, with its style. */
void fig_inspect_svg_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch);
/* Within a page, whose style says what the classes and colours are: boxes are links to the elements
 * "launch-N". */
void fig_inspect_svg_draw(fig_print *print, const fig_inspect_bucket *bucket,
                          const fig_sketch *sketch);
/* The style of what is drawn, and of both themes' colours, for a <style>. */
void fig_inspect_svg_style(fig_print *print);

#endif
