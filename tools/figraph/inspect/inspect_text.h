/* inspect_text.h: prints graphs as text for people. */
#ifndef FIG_TOOLS_INSPECT_TEXT_H
#define FIG_TOOLS_INSPECT_TEXT_H

#include "tools/figraph/inspect/inspect.h"

void fig_inspect_text_summary(fig_print *print, const fig_inspect_summary *summary);
void fig_inspect_text_bucket(fig_print *print, const fig_inspect_bucket *bucket);

#endif
