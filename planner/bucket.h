/* bucket.h: the ladder of buckets, and which of them serves a step.
 *
 * Invariant: buckets are sorted by (batch, kv, variant), so the first that fits is the smallest. */
#ifndef FIG_PLANNER_BUCKET_H
#define FIG_PLANNER_BUCKET_H

#include "planner/plan.h"
#include "planner/traits.h"

enum { FIG_BUCKET_LIMIT = 4096, FIG_BUCKET_KV_LEAST = 128 };

/* What lowering made of one bucket, as far as planning needs it. */
typedef struct fig_bucket_shape {
    fig_bucket caps;
    int32_t variant;                       /* of those with these caps, from 0 */
    fig_variant variants[FIG_CLASS_LIMIT]; /* what that is for each class */
    int32_t token_bytes[FIG_CLASS_LIMIT];  /* K and V of one token in one head group */
    int32_t places[FIG_CLASS_LIMIT];       /* workers that share the memory's speed; 0: none does */
    int32_t is_short[FIG_CLASS_LIMIT];     /* 1: a segment's workers wait for no merge */
    fig_plan_shape plan;
} fig_bucket_shape;

/* Powers of two up to the limits, and the limits themselves: batch from 1, kv from
 * FIG_BUCKET_KV_LEAST. Returns how many; writes at most `capacity`. */
int32_t fig_bucket_ladder(int32_t batch_limit, int32_t kv_limit, fig_bucket *buckets,
                          int32_t capacity);
/* Sorts, drops repeats, checks each against the spec's limits. */
fig_status fig_bucket_normalise(fig_bucket *buckets, int32_t *count, int32_t batch_limit,
                                int32_t kv_limit);

/* What a variant's costs are of: the fullest worker's bytes, the pieces of the longest row, and the
 * segments of a worker. */
typedef struct fig_bucket_work {
    int64_t bytes, pieces, segments;
} fig_bucket_work;
fig_bucket_work fig_bucket_work_of(const fig_bucket_shape *bucket, int32_t split_class,
                                   const fig_plan_step *step);

/* Estimated time of one attention of each class of a step in a bucket, in ns. O(rows). Where the
 * step has no lengths, as if its token_limit were shared evenly. */
int64_t fig_bucket_cost(const fig_bucket_shape *bucket, const fig_plan_step *step);

/* The cheapest variant of the first (batch, kv) that holds the step, or its token_limit where it
 * has no lengths; or the bucket that the step names; -1 where it fails. FIG_TOO_LARGE names the
 * rows and the most that any bucket, or the one named, takes, or the tokens and the most that any
 * bucket of so many rows takes, or by how many tokens rows may grow. FIG_INVALID: there is no
 * bucket of that number. O(rows + count); lengths are the caller's to check. */
fig_status fig_bucket_choose(const fig_bucket_shape *buckets, int32_t count,
                             const fig_plan_step *step, int32_t *index);

#endif
