/* bucket.h: makes the ladder of buckets and chooses the bucket of a step.
 *
 * Invariant: buckets are sorted by (batch, kv, query tokens, variant), so the first that fits is
 * the smallest. */
#ifndef FIG_PLANNER_BUCKET_H
#define FIG_PLANNER_BUCKET_H

#include "planner/machine/traits.h"
#include "planner/plans/plan.h"

enum { FIG_BUCKET_LIMIT = 4096, FIG_BUCKET_KV_LEAST = 128 };

/* The part of a lowered bucket that planning needs. */
typedef struct fig_bucket_shape {
    fig_bucket caps;
    int32_t variant; /* see graphs/lower/variants.h */
    fig_bucket_form form;
    int32_t queries; /* most query tokens of a step; 0: as many as the rows may have */
    /* 1: caps.kv is the capacity of a cache, and most rows are far shorter; only the device knows
     * how long they are */
    int32_t is_loose;
    fig_variant variants[FIG_CLASS_LIMIT]; /* [class_count] the variant, fitted to each class */
    int32_t token_bytes[FIG_CLASS_LIMIT];  /* K and V of one token in one head group */
    int32_t places[FIG_CLASS_LIMIT];       /* workers that share the bandwidth; 0: not modelled */
    int32_t is_short[FIG_CLASS_LIMIT];     /* 1: each segment gets a cluster, which merges it */
    /* the shape by which each class cuts chunks, the same in every bucket; if its `workers` is 0,
     * no row can be a chunk */
    fig_strips_shape strips[FIG_CLASS_LIMIT];
    fig_division_pace paces[FIG_CLASS_LIMIT];
    fig_plan_shape plan;
} fig_bucket_shape;

/* Writes the ladder: powers of two up to the limits and the limits themselves, batch from 1 and kv
 * from FIG_BUCKET_KV_LEAST. Returns the number of buckets; writes at most `capacity` of them. */
int32_t fig_bucket_ladder(int32_t batch_limit, int32_t kv_limit, fig_bucket *buckets,
                          int32_t capacity);
/* Checks each bucket against the spec's limits, then sorts the list and drops repeats. */
fig_status fig_bucket_normalise(fig_bucket *buckets, int32_t *count, int32_t batch_limit,
                                int32_t kv_limit);

/* Returns 1 if steps of the form may have chunks or groups. */
static inline int fig_bucket_may_have_strips(fig_bucket_form form) {
    return form != FIG_FORM_ONES && form != FIG_FORM_DRAFTS;
}
/* Returns the most query tokens of a step in the bucket; 0: the program is not packed. */
int32_t fig_bucket_query_limit(const fig_bucket_shape *bucket);
/* Compares the sizes of two buckets: batch, kv and query tokens. */
int fig_bucket_compare(const fig_bucket_shape *a, const fig_bucket_shape *b);

/* The quantities by which a variant's costs are multiplied: the fullest worker's bytes, the pieces
 * of the longest row, the segments of a worker, and the fullest worker's units (units.h). Units are
 * 0 if the line is cut by tiles. */
typedef struct fig_bucket_work {
    int64_t bytes, pieces, segments, units;
} fig_bucket_work;
fig_bucket_work fig_bucket_work_of(const fig_bucket_shape *bucket, int32_t split_class,
                                   const fig_plan_step *step);

/* Estimates the time, in ns, that a step in this bucket takes for one attention of each class. A
 * step without lengths counts as token_limit tokens that its rows share evenly. O(rows) */
int64_t fig_bucket_cost(const fig_bucket_shape *bucket, const fig_plan_step *step);

/* Chooses the bucket that the step names, or else the cheapest variant of the first (batch, kv)
 * that holds the step. Reads step->groups: with groups, a step takes no bucket of ones, and it may
 * take one of strips. A step without lengths counts as token_limit tokens. *index is -1 on
 * failure.
 *
 * FIG_TOO_LARGE: no bucket holds the step, or the named bucket does not; the message names the rows
 * or tokens and their limit, or the tokens by which rows may grow. FIG_INVALID: no bucket has the
 * number that the step names. The caller checks lengths. O(rows + count) */
fig_status fig_bucket_choose(const fig_bucket_shape *buckets, int32_t count,
                             const fig_plan_step *step, int32_t *index);

#endif
