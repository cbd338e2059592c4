/* inspect_text.h: graphs as text for people. */
#ifndef FIG_GRAPHS_INSPECT_TEXT_H
#define FIG_GRAPHS_INSPECT_TEXT_H

#include "graphs/inspect/inspect.h"

void fig_inspect_text_summary(fig_print *print, const fig_inspect_summary *summary);
void fig_inspect_text_bucket(fig_print *print, const fig_inspect_bucket *bucket);

#endif
