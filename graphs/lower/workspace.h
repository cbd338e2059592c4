/* workspace.h: lays out the memory that the steps of an engine share.
 *
 *     [counters of class 0, 1, ..][counters of their strips][partials and sums of class 0, 1, ..]
 *     [partials and sums of their strips][temps]
 *
 * All buckets share one workspace, because only one bucket runs at a time. Each part is as large as
 * the most demanding bucket needs. Counters must be zero between replays, whichever bucket ran
 * last. Invariant: no two parts share a byte. */
#ifndef FIG_GRAPHS_WORKSPACE_H
#define FIG_GRAPHS_WORKSPACE_H

#include "graphs/lower/split_classes.h"
#include "planner/plans/bucket.h"

/* The limit is above any device's memory, and low enough that no sum of sizes wraps. */
#define FIG_WORKSPACE_BYTES_LIMIT (UINT64_C(1) << 46)

/* The offsets of the parts, each a multiple of 256. */
typedef struct fig_workspace {
    uint64_t counters[FIG_CLASS_LIMIT], partials[FIG_CLASS_LIMIT], sums[FIG_CLASS_LIMIT];
    /* The parts of strips, which run beside the rest of the class. */
    uint64_t strip_counters[FIG_CLASS_LIMIT], strip_partials[FIG_CLASS_LIMIT],
        strip_sums[FIG_CLASS_LIMIT];
    uint64_t *temps; /* [tensor_count] offset of a FIG_ROLE_TEMP tensor; UINT64_MAX for others */
    uint64_t bytes;
} fig_workspace;

/* Lays out a workspace. `buckets` must be shaped. FIG_TOO_LARGE: the workspace exceeds
 * FIG_WORKSPACE_BYTES_LIMIT. */
fig_status fig_workspace_init(fig_workspace *workspace, const fig_program_view *view,
                              const fig_bucket_shape *buckets, uint32_t bucket_count);
void fig_workspace_finish(fig_workspace *workspace);
/* Places only the parts of the classes, from workspace->bytes on, and leaves temps unchanged. */
fig_status fig_workspace_place_classes(fig_workspace *workspace, const fig_split_classes *classes,
                                       const fig_bucket_shape *buckets, uint32_t bucket_count);

#endif
