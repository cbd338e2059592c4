/* inspect_buckets.h: the buckets of graphs as a table for people. */
#ifndef FIG_GRAPHS_INSPECT_BUCKETS_H
#define FIG_GRAPHS_INSPECT_BUCKETS_H

#include "graphs/inspect/inspect.h"

void fig_inspect_buckets_print(fig_print *print, const fig_inspect_summary *summary);

#endif
