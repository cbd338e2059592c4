/* lower.h: lowers a program to launches, for a bucket and a machine's traits.
 *
 * Lowering is pure: the same input gives the same bytes on every machine. So a file does not store
 * the launches, only their digest. Invariant: launch 0 fetches the plan and serves no node. The
 * later launches serve the nodes in order, each node by one range of launches. Every other launch
 * depends on launch 0 and, if node 0 makes the plan, on node 0's launch. */
#ifndef FIG_GRAPHS_LOWER_H
#define FIG_GRAPHS_LOWER_H

#include "graphs/lower/launch.h"
#include "graphs/lower/tuning.h"

/* The parts of a lowering that all buckets of a program share. */
typedef struct fig_lower_common {
    const fig_program_view *view;
    fig_split_classes classes;
    fig_launch *launches;
    fig_launch_range *node_launches; /* [node_count] the launches that serve each node */
    fig_edge *edges;                 /* between launches; reduced, sorted by (to, from) */
    fig_reloc *relocs;
    uint32_t *early_reads; /* [launch_count] FIG_ATTENTION_*; see early_reads.h */
    uint8_t *params;       /* fields that depend on the bucket are zero */
    uint32_t launch_count, edge_count, reloc_count, params_bytes;
    /* The digest of all these arrays and of the tensors, whose row counts are in a bucket's
     * params. */
    uint64_t digest;
} fig_lower_common;

/* One lowered bucket: it owns its params; the other arrays belong to fig_lower_common. */
typedef struct fig_lowered {
    const fig_launch *launches;
    const fig_launch_range *node_launches;
    const fig_edge *edges;
    const fig_reloc *relocs;
    uint8_t *params;
    uint32_t launch_count, edge_count, reloc_count, params_bytes;
    const fig_program_view *view;
    fig_bucket_form form;
} fig_lowered;

/* The machine and options for which a program is lowered. */
typedef struct fig_lower_target {
    fig_traits traits;
    int32_t deterministic; /* 1: splits are fixed (planner/split/split.h); only variant 0 exists */
    fig_tuning tuning;     /* records of this machine replace the costs of its traits */
} fig_lower_target;

/* The limit on the params bytes of all launches together. It keeps a short file from demanding much
 * memory. The limit is enough for some 1200 attention nodes; a model has one for each layer. */
enum { FIG_LOWER_PARAMS_LIMIT = 17 << 18 };

/* Returns the largest number of query tokens that the rows of a bucket may have, or 0 if the
 * program is not packed. */
int32_t fig_lower_query_limit(const fig_spec *spec, const fig_bucket *caps);
/* Returns 1 if each row of the bucket may have a query token. Only then the bucket may be one of
 * ones: its launches process a query token for each of its rows, whatever the step. */
int fig_lower_may_be_ones(const fig_spec *spec, const fig_bucket_shape *shape);

/* Fills in a shape whose caps, variant, query tokens and is_loose are given. FIG_INVALID: the
 * program has no such variant on the machine. FIG_TOO_LARGE: the number of tiles on the line does
 * not fit an int32. */
fig_status fig_lower_shape(const fig_program_view *view, const fig_lower_target *target,
                           uint32_t exec, fig_bucket_shape *shape);
/* Like fig_lower_shape(), for several shapes, but does not set their exec. */
fig_status fig_lower_shapes(const fig_program_view *view, const fig_lower_target *target,
                            fig_bucket_shape *shapes, uint32_t count);
/* Makes the parts that all buckets share. `view` must outlive `common`. Only init reads
 * `workspace`, which serves all buckets. finish accepts a zeroed struct. */
fig_status fig_lower_common_init(fig_lower_common *common, const fig_program_view *view,
                                 const fig_workspace *workspace);
void fig_lower_common_finish(fig_lower_common *common);
/* Computes the value of common->digest. */
uint64_t fig_lower_common_digest(const fig_lower_common *common);

/* Returns 1 if two buckets of one program lower to the same launches. */
int fig_lower_alike(const fig_bucket_shape *a, const fig_bucket_shape *b);
/* Returns a digest of the parts of a shape that params hold. Shapes that are alike have equal
 * digests. */
uint64_t fig_lower_shape_digest(const fig_bucket_shape *shape);
/* Computes the digest of a bucket's launches from the digest of the bucket's shape, without
 * lowering the bucket. The digest detects changes but does not protect against forgery. */
uint64_t fig_lower_digest(const fig_lower_common *common, uint64_t shape_digest);

/* Lowers one bucket. `shape` must be filled in. `common` must outlive `lowered`. */
fig_status fig_lower_bucket(const fig_lower_common *common, const fig_bucket_shape *shape,
                            fig_lowered *lowered);
void fig_lower_finish(fig_lowered *lowered);
/* Returns 1 if the launch has no work in any step of the bucket. Execs leave such a launch out,
 * with its edges: whatever comes before or after it also comes before or after another launch of
 * its node. */
int fig_lower_is_idle(const fig_lowered *lowered, uint32_t launch);

#endif
