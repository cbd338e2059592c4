/* inspect_dot.h: prints the launches of a bucket as a graph for Graphviz. */
#ifndef FIG_TOOLS_INSPECT_DOT_H
#define FIG_TOOLS_INSPECT_DOT_H

#include "tools/figraph/inspect/inspect.h"
#include "tools/figraph/inspect/sketch.h"

void fig_inspect_dot_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch);

#endif
