/* inspect_classes.h: prints the attention classes of graphs, for people. */
#ifndef FIG_TOOLS_INSPECT_CLASSES_H
#define FIG_TOOLS_INSPECT_CLASSES_H

#include "tools/figraph/inspect/inspect.h"

void fig_inspect_classes_print(fig_print *print, const fig_inspect_summary *summary);

#endif
