/* offer.h: which variants a bucket offers: the fewest that serve each of its steps well.
 *
 * A variant more is an exec more for every number of rows, and most would never be chosen where
 * they are. Invariant: what is offered follows from the bucket, the buckets before it and the
 * variants' costs alone. */
#ifndef FIG_PLANNER_OFFER_H
#define FIG_PLANNER_OFFER_H

#include "planner/bucket.h"

/* The steps that a bucket is the first to hold: more rows or more tokens than those before. */
typedef struct fig_offer_range {
    int32_t rows_before, kv_limit; /* kv_limit: tokens of a row at most */
    int64_t tokens_before;
} fig_offer_range;
/* Of the bucket of that index of a normal list. */
fig_offer_range fig_offer_range_of(const fig_bucket *buckets, int32_t index, int32_t kv_limit);

/* Bit i: candidate i is offered; one at least is. candidates: [count] one bucket in each variant, 1
 * to FIG_VARIANT_LIMIT of them. No step of the range that is tried, with rows alike or one long
 * among short ones, costs more than an eightieth over what the best candidate would. */
uint32_t fig_offer_choose(const fig_bucket_shape *candidates, int32_t count,
                          const fig_offer_range *range);

#endif
