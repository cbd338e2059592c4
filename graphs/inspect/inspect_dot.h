/* inspect_dot.h: the launches of a bucket as a graph for Graphviz. */
#ifndef FIG_GRAPHS_INSPECT_DOT_H
#define FIG_GRAPHS_INSPECT_DOT_H

#include "graphs/inspect/inspect.h"
#include "graphs/inspect/sketch.h"

void fig_inspect_dot_print(fig_print *print, const fig_inspect_bucket *bucket,
                           const fig_sketch *sketch);

#endif
