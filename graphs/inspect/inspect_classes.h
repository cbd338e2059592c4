/* inspect_classes.h: the attention classes of graphs, for people. */
#ifndef FIG_GRAPHS_INSPECT_CLASSES_H
#define FIG_GRAPHS_INSPECT_CLASSES_H

#include "graphs/inspect/inspect.h"

void fig_inspect_classes_print(fig_print *print, const fig_inspect_summary *summary);

#endif
