/* bounds.h: exact upper bounds of what any step of a bucket can need.
 *
 * Closed forms, no search. Invariant: no step exceeds a bound, and the tests show the shapes that
 * reach it. */
#ifndef FIG_PLANNER_BOUNDS_H
#define FIG_PLANNER_BOUNDS_H

#include "planner/split.h"

/* Tiles of one head group in any step of the shape with at most `tokens` tokens in all and kv_limit
 * in a row; a row that is not idle has row_tokens at least. Times groups it is tile_limit, so
 * workers and tile_limit are not read. */
int64_t fig_bounds_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit);

enum { FIG_BOUNDS_PARTIAL_DIMS = 32 }; /* a vector of partials is whole ones of these */

/* What one class of a bucket needs beside the plan. */
typedef struct fig_bounds_class {
    int32_t partial_limit;
    uint64_t partials_bytes; /* [partial_limit][vectors][head_dim, rounded up] f32 */
    uint64_t sums_bytes;     /* [partial_limit][vectors][2] f32 */
    uint64_t counters_bytes; /* [row_limit][groups] u32 */
} fig_bounds_class;

/* q_heads: of one head group; each has row_tokens vectors. */
fig_bounds_class fig_bounds_class_of(const fig_split_shape *shape, int32_t q_heads,
                                     int32_t head_dim);

#endif
