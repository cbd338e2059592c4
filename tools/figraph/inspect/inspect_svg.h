/* inspect_svg.h: draws the launches of a bucket, as a file or within a page. */
#ifndef FIG_TOOLS_INSPECT_SVG_H
#define FIG_TOOLS_INSPECT_SVG_H

#include "tools/figraph/inspect/inspect.h"
#include "tools/figraph/inspect/sketch.h"

/* Prints a complete file, including its style. */
void fig_inspect_svg_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch);
/* Draws within a page that defines the classes and colours. Boxes are links to the elements
 * "launch-N". */
void fig_inspect_svg_draw(fig_print *print, const fig_inspect_bucket *bucket,
                          const fig_sketch *sketch);
/* Prints the style of the drawing, including the colours of both themes, for a <style> element. */
void fig_inspect_svg_style(fig_print *print);

#endif
