/* inspect_json.h: graphs as JSON, complete. */
#ifndef FIG_GRAPHS_INSPECT_JSON_H
#define FIG_GRAPHS_INSPECT_JSON_H

#include "graphs/inspect/inspect.h"

void fig_inspect_json_summary(fig_print *print, const fig_inspect_summary *summary);
void fig_inspect_json_bucket(fig_print *print, const fig_inspect_bucket *bucket);

#endif
