/* scope.h: prepares the data of graphs before anything is shown.
 *
 * Invariant: the caller of an open function also calls the close function, even if opening
 * failed. */
#ifndef FIG_TOOLS_SCOPE_H
#define FIG_TOOLS_SCOPE_H

#include "tools/figraph/inspect/inspect.h"

fig_status fig_scope_open_summary(fig_inspect_summary *summary, const fig_graphs *graphs);
void fig_scope_close_summary(fig_inspect_summary *summary);
/* index: from 0 */
fig_status fig_scope_open_bucket(fig_inspect_bucket *bucket, const fig_graphs *graphs,
                                 uint32_t index);
void fig_scope_close_bucket(fig_inspect_bucket *bucket);

#endif
