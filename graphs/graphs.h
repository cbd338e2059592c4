/* graphs.h: a finished program with its buckets: what a file stands for and an engine runs.
 *
 * Immutable once made, so engines on several threads may share one. Launches are not kept: lowering
 * is cheap and pure, and whoever needs a bucket's launches lowers it. */
#ifndef FIG_GRAPHS_GRAPHS_H
#define FIG_GRAPHS_GRAPHS_H

#include "graphs/lower.h"

/* Launches of all buckets; what bounds the time that reading a file may take. */
enum { FIG_LAUNCH_LIMIT = 1 << 22 };

/* An engine's ring of plans: how deep it may be, and is where nobody says. */
enum { FIG_SLOT_LEAST = 2, FIG_SLOT_LIMIT = 64, FIG_SLOT_DEFAULT = 4 };

/* Pages that travel ahead of plans pass through so much pinned memory. */
enum { FIG_GRAPHS_BULK_BYTES = 256 << 10 };

/* What the library that made the graphs says of itself. No part of what they mean, and kept so that
 * graphs saved again give the same file, whichever library loaded them. */
typedef struct fig_graphs_maker {
    uint32_t version;    /* its FIG_VERSION */
    uint32_t spec_bytes; /* of its fig_spec */
    struct {
        uint32_t params_bytes;
        uint8_t abi[32];
    } kernels[FIG_OP_KERNEL_COUNT]; /* [fig_op]; zero where no node has the operation */
} fig_graphs_maker;

struct fig_graphs {
    fig_program *program;
    fig_lower_target target;
    fig_graphs_maker maker;
    fig_bucket_shape *buckets; /* [bucket_count] */
    uint64_t *digests;         /* [bucket_count] of what this library lowers */
    uint64_t *made_digests;    /* [bucket_count] of what the maker lowered, or as digests */
    uint32_t bucket_count;
    fig_workspace workspace; /* of all buckets */
    uint64_t plan_bytes;     /* the largest bucket's bound */
    uint8_t content_id[32];
    uint32_t changed_kernels; /* bit op: its row in the maker's table was another */
};

/* What makes a fig_graphs: the program is cloned. buckets: sorted, without repeats, each given in
 * caps and variant alone. maker and made_digests: NULL where the graphs are being made here. */
typedef struct fig_graphs_parts {
    const fig_program *program;
    const fig_lower_target *target;
    const fig_bucket_shape *buckets;
    uint32_t bucket_count;
    const fig_graphs_maker *maker;
    const uint64_t *made_digests;
} fig_graphs_parts;
/* Entries of page tables that one plan may change: two for each row of a step, and some. */
uint32_t fig_graphs_page_limit(const fig_graphs *graphs);
/* Of a slot of the ring: the largest plan and its pages; a multiple of 64. */
uint32_t fig_graphs_slot_bytes(const fig_graphs *graphs);

fig_status fig_graphs_assemble(fig_graphs **graphs, const fig_graphs_parts *parts);

#endif
