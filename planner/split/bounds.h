/* bounds.h: exact upper bounds on the needs of any step of a bucket.
 *
 * The bounds are closed forms, so nothing searches for them. Invariant: no step exceeds a bound,
 * and the tests show steps that reach it. */
#ifndef FIG_PLANNER_BOUNDS_H
#define FIG_PLANNER_BOUNDS_H

#include "planner/split/split.h"

/* Returns the largest number of tiles of one head group in any step of this shape that has at most
 * `tokens` tokens in all and kv_limit tokens in a row. A row that is not idle has row_tokens
 * queries and at least row_tokens tokens. The caller computes workers and tile_limit from the
 * result, so this function does not read these two fields. */
int64_t fig_bounds_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit);
/* Does the same for steps of a packed program, where a row that is not idle has 1 to row_tokens
 * queries and at least one token per query. */
int64_t fig_bounds_packed_tiles(const fig_split_shape *shape, int64_t tokens, int32_t kv_limit);

enum { FIG_BOUNDS_PARTIAL_DIMS = 32 }; /* floats; a partial's vector is padded to a multiple */

/* The memory that one class of a bucket needs, apart from the plan. */
typedef struct fig_bounds_class {
    int32_t partial_limit;
    uint64_t partials_bytes; /* [partial_limit][vectors][head_dim, rounded up] f32 */
    uint64_t sums_bytes;     /* [partial_limit][vectors][2] f32 */
    uint64_t counters_bytes; /* [row_limit][groups] u32 */
} fig_bounds_class;

/* q_heads: the number of q heads in one head group; each has row_tokens query vectors. */
fig_bounds_class fig_bounds_class_of(const fig_split_shape *shape, int32_t q_heads,
                                     int32_t head_dim);

#endif
