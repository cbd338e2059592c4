/* workspace.h: where things lie in the memory that the steps of an engine share.
 *
 *     [counters of class 0, 1, ..][partials and sums of class 0, 1, ..][temps]
 *
 * One for all buckets, which take turns: each part is as large as the greediest bucket's. Counters
 * must be zero between replays, whichever bucket ran. Invariant: no two parts share a byte. */
#ifndef FIG_GRAPHS_WORKSPACE_H
#define FIG_GRAPHS_WORKSPACE_H

#include "graphs/split_classes.h"
#include "planner/bucket.h"

/* Above any device's memory, and low enough that no sum of sizes wraps. */
#define FIG_WORKSPACE_BYTES_LIMIT (UINT64_C(1) << 46)

/* Offsets, each a multiple of 256. */
typedef struct fig_workspace {
    uint64_t counters[FIG_CLASS_LIMIT], partials[FIG_CLASS_LIMIT], sums[FIG_CLASS_LIMIT];
    uint64_t *temps; /* [tensor_count]: of a FIG_ROLE_TEMP tensor; UINT64_MAX for others */
    uint64_t bytes;
} fig_workspace;

/* buckets: shaped. FIG_TOO_LARGE: more than FIG_WORKSPACE_BYTES_LIMIT. */
fig_status fig_workspace_init(fig_workspace *workspace, const fig_program_view *view,
                              const fig_bucket_shape *buckets, uint32_t bucket_count);
void fig_workspace_finish(fig_workspace *workspace);
/* Takes the room of the classes alone, behind workspace->bytes; temps are left as they are. */
fig_status fig_workspace_place_classes(fig_workspace *workspace, const fig_split_classes *classes,
                                       const fig_bucket_shape *buckets, uint32_t bucket_count);

#endif
