/* rally.h: ranks that are threads of this process, and what an all-reduce over them takes.
 *
 * For fig_examine_ranks(): a group, a program, an engine for each rank, and sums that are known
 * without computing. */
#ifndef FIG_ENGINE_RALLY_H
#define FIG_ENGINE_RALLY_H

#include "include/figraph.h"

enum { FIG_RALLY_LIMIT = 8, FIG_RALLY_ROWS = 8, FIG_RALLY_ROW_KIB = 16 };

typedef struct fig_rally {
    int64_t ns[2]; /* of one all-reduce, of one row and of all: the slowest rank's */
} fig_rally;

/* Rank r is on GPU r. FIG_DRIVER: a sum is another; else what the first rank to fail has met. */
fig_status fig_rally_run(fig_device device, int32_t count, fig_rally *rally);

#endif
