/* offer.h: chooses the fewest variants that serve each step of a bucket well.
 *
 * Each additional variant costs one more exec per number of rows, and in most buckets most variants
 * would never be chosen. Invariant: the offer depends only on the bucket, the buckets before it and
 * the variants' costs. */
#ifndef FIG_PLANNER_OFFER_H
#define FIG_PLANNER_OFFER_H

#include "planner/plans/bucket.h"

/* The steps that no earlier bucket holds: they have more rows or more tokens. */
typedef struct fig_offer_range {
    int32_t rows_before, kv_limit; /* kv_limit: largest number of tokens in a row */
    int64_t tokens_before;
} fig_offer_range;
/* Returns the range of bucket `index` in a list from fig_bucket_normalise(). */
fig_offer_range fig_offer_range_of(const fig_bucket *buckets, int32_t index, int32_t kv_limit);

/* Returns the set of candidates to offer; bit i stands for candidate i. The set has at least one
 * candidate; a result of 0 means that memory ran out. candidates: [count] the same bucket in each
 * variant; count is 1 to FIG_VARIANT_LIMIT. The function tries steps with rows of equal length, and
 * steps with one long row among short rows. On each step tried, the best offered variant costs at
 * most an eightieth more than the best candidate. */
uint32_t fig_offer_choose(const fig_bucket_shape *candidates, int32_t count,
                          const fig_offer_range *range);

#endif
