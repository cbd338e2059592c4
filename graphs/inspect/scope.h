/* scope.h: what is worked out of graphs before any of it is shown.
 *
 * Invariant: what was opened is closed by whoever opened it, also where opening failed. */
#ifndef FIG_GRAPHS_SCOPE_H
#define FIG_GRAPHS_SCOPE_H

#include "graphs/inspect/inspect.h"

fig_status fig_scope_open_summary(fig_inspect_summary *summary, const fig_graphs *graphs);
void fig_scope_close_summary(fig_inspect_summary *summary);
/* index: from 0 */
fig_status fig_scope_open_bucket(fig_inspect_bucket *bucket, const fig_graphs *graphs,
                                 uint32_t index);
void fig_scope_close_bucket(fig_inspect_bucket *bucket);

#endif
