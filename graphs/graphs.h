/* graphs.h: a finished program with its buckets: what a file stands for and an engine runs.
 *
 * Immutable once made, so engines on several threads may share one. Launches are not kept: lowering
 * is cheap and pure, and whoever needs a bucket's launches lowers it. */
#ifndef FIG_GRAPHS_GRAPHS_H
#define FIG_GRAPHS_GRAPHS_H

#include "graphs/lower.h"

/* Launches of all buckets; what bounds the time that reading a file may take. */
enum { FIG_LAUNCH_LIMIT = 1 << 22 };

struct fig_graphs {
    fig_program *program;
    fig_traits traits;
    fig_bucket_shape *buckets; /* [bucket_count] */
    uint64_t *digests;         /* [bucket_count] of what this library lowers */
    uint64_t *made_digests;    /* [bucket_count] of what the file's maker lowered, or as digests */
    uint32_t bucket_count;
    fig_workspace workspace; /* of all buckets */
    uint64_t plan_bytes;     /* the largest bucket's bound */
    uint8_t content_id[32];
    uint32_t changed_kernels; /* bit op: its row in the table of the file's maker was another */
};

/* What makes a fig_graphs: the program is cloned. buckets: sorted, without repeats, each given in
 * caps and variant alone. made_digests: NULL where the graphs are being made here. */
typedef struct fig_graphs_parts {
    const fig_program *program;
    const fig_traits *traits;
    const fig_bucket_shape *buckets;
    uint32_t bucket_count;
    const uint64_t *made_digests;
} fig_graphs_parts;
fig_status fig_graphs_assemble(fig_graphs **graphs, const fig_graphs_parts *parts);

#endif
