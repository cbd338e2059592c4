/* inspect_json.h: prints graphs as complete JSON. */
#ifndef FIG_TOOLS_INSPECT_JSON_H
#define FIG_TOOLS_INSPECT_JSON_H

#include "tools/figraph/inspect/inspect.h"

void fig_inspect_json_summary(fig_print *print, const fig_inspect_summary *summary);
void fig_inspect_json_bucket(fig_print *print, const fig_inspect_bucket *bucket);

#endif
