/* lower.h: a program, a bucket and a machine's traits in; launches out.
 *
 * Pure: the same input gives the same bytes on every machine, so a file stores no launch, only a
 * digest of them. Invariant: launch 0 fetches the plan and serves no node; the launches behind it
 * serve the nodes in their order, each node by the launches of one range; and every other launch
 * comes after launch 0 and, where node 0 makes the plan, after its. */
#ifndef FIG_GRAPHS_LOWER_H
#define FIG_GRAPHS_LOWER_H

#include "graphs/launch.h"
#include "graphs/tuning.h"

/* What the buckets of a program have in common: all but what params hold of a bucket. */
typedef struct fig_lower_common {
    const fig_program_view *view;
    fig_split_classes classes;
    fig_launch *launches;
    fig_launch_range *node_launches; /* [node_count] that serve the node */
    fig_edge *edges;                 /* between launches; reduced, sorted by (to, from) */
    fig_reloc *relocs;
    uint32_t *haste; /* [launch_count] FIG_ATTENTION_*, as haste.h has it */
    uint8_t *params; /* zero where a bucket decides */
    uint32_t launch_count, edge_count, reloc_count, params_bytes;
    uint64_t digest; /* of all that, and of the tensors, whose rows a bucket's params take */
} fig_lower_common;

/* One bucket of them: params are its own, the rest is what it has in common. */
typedef struct fig_lowered {
    const fig_launch *launches;
    const fig_launch_range *node_launches;
    const fig_edge *edges;
    const fig_reloc *relocs;
    uint8_t *params;
    uint32_t launch_count, edge_count, reloc_count, params_bytes;
} fig_lowered;

/* What a program is lowered for. */
typedef struct fig_lower_target {
    fig_traits traits;
    int32_t deterministic; /* 1: splits are fixed, see planner/split.h; variant 0 alone */
    fig_tuning tuning;     /* whose costs count where they are of this machine */
} fig_lower_target;

/* Bytes of params of all launches, so that a few bytes of a file cannot claim more: some 1200 nodes
 * of attention, where a model has one for each layer. */
enum { FIG_LOWER_PARAMS_LIMIT = 1 << 22 };

/* Fills all of a bucket whose caps and variant are given; what that variant is says the machine's
 * candidate of that number. FIG_TOO_LARGE: its line would have more tiles than an int32 counts. */
fig_status fig_lower_shape(const fig_program_view *view, const fig_lower_target *target,
                           uint32_t exec, fig_bucket_shape *shape);
/* The same of many. */
fig_status fig_lower_shapes(const fig_program_view *view, const fig_lower_target *target,
                            fig_bucket_shape *shapes, uint32_t count);
/* 1: the variant is worth a bucket: it reads what no smaller-numbered one does of this program. */
int fig_lower_variant_serves(const fig_program_view *view, const fig_lower_target *target,
                             int32_t variant);
/* The variants that a bucket of a normal list offers: bit n for number n; see planner/offer.h. */
fig_status fig_lower_offer(const fig_program_view *view, const fig_lower_target *target,
                           const fig_bucket *buckets, int32_t index, uint32_t *offered);

/* Of every bucket of the program, the fetch included. */
uint32_t fig_lower_launch_count(const fig_program_view *view);

/* The view outlives what is made of it; the workspace is that of all buckets, and is read here
 * alone. finish takes a zeroed one. */
fig_status fig_lower_common_init(fig_lower_common *common, const fig_program_view *view,
                                 const fig_workspace *workspace);
void fig_lower_common_finish(fig_lower_common *common);
/* What its digest is. */
uint64_t fig_lower_common_digest(const fig_lower_common *common);

/* 1: two buckets of one program lower to the same launches. */
int fig_lower_alike(const fig_bucket_shape *a, const fig_bucket_shape *b);
/* Of all of a shape that params hold: the same of two that are alike. */
uint64_t fig_lower_shape_digest(const fig_bucket_shape *shape);
/* Of the launches of a bucket with that digest of its shape, which need not be lowered for it. For
 * noticing change, not for security. */
uint64_t fig_lower_digest(const fig_lower_common *common, uint64_t shape_digest);

/* shape: filled. What is lowered ends before what it has in common. */
fig_status fig_lower_bucket(const fig_lower_common *common, const fig_bucket_shape *shape,
                            fig_lowered *lowered);
void fig_lower_finish(fig_lowered *lowered);

#endif
