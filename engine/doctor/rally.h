/* rally.h: times an all-reduce among ranks that are threads of this process.
 *
 * fig_examine_ranks() uses it. A run needs a group, a program and an engine for each rank, and its
 * sums are known in advance. */
#ifndef FIG_ENGINE_RALLY_H
#define FIG_ENGINE_RALLY_H

#include "include/figraph.h"

enum { FIG_RALLY_LIMIT = 8, FIG_RALLY_ROWS = 8, FIG_RALLY_ROW_KIB = 16 };

typedef struct fig_rally {
    int64_t ns[2]; /* time of one all-reduce on the slowest rank: of one row, and of all rows */
} fig_rally;

/* Times the all-reduces. Rank r uses GPU r. Returns FIG_DRIVER if a sum is wrong. If a rank fails,
 * returns that rank's status. */
fig_status fig_rally_run(fig_device device, int32_t count, fig_rally *rally);

#endif
