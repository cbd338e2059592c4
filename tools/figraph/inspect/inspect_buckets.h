/* inspect_buckets.h: prints the buckets of graphs as a table for people. */
#ifndef FIG_TOOLS_INSPECT_BUCKETS_H
#define FIG_TOOLS_INSPECT_BUCKETS_H

#include "tools/figraph/inspect/inspect.h"

void fig_inspect_buckets_print(fig_print *print, const fig_inspect_summary *summary);

#endif
