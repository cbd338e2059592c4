/* bounds.h: exact upper bounds of what any step of a bucket can need.
 *
 * Closed forms, no search. Invariant: no step exceeds a bound, and the tests show the shapes that
 * reach it. */
#ifndef FIG_PLANNER_BOUNDS_H
#define FIG_PLANNER_BOUNDS_H

#include "planner/split.h"

/* Tiles of one head group in any step of at most `rows` rows, `tokens` tokens in all and kv_limit
 * tokens in a row. */
int64_t fig_bounds_tiles(int32_t rows, int64_t tokens, int32_t kv_limit, int32_t tile_tokens);

/* What one class of a bucket needs beside the plan. */
typedef struct fig_bounds_class {
    int32_t partial_limit;
    uint64_t partials_bytes; /* [partial_limit][q heads of a group][head_dim] f32 */
    uint64_t sums_bytes;     /* [partial_limit][q heads of a group][2] f32 */
    uint64_t counters_bytes; /* [row_limit][groups] u32 */
} fig_bounds_class;

/* q_heads: of one head group. */
fig_bounds_class fig_bounds_class_of(const fig_split_shape *shape, int32_t q_heads,
                                     int32_t head_dim);

#endif
