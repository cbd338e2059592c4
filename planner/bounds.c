/* bounds.c: the most that a step can need, as closed forms.
 *
 * Owns bounds that follow from a bucket's shape; that of partials is split.h's, beside the slots it
 * counts. Invariant: a bound is the maximum itself; the tests compare it with every step of small
 * shapes. */
#include "planner/bounds.h"

static int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A row's first tile takes one token at least, each further one tile_tokens more. So the greediest
 * step gives a token to as many rows as it can, then spends what is left on whole tiles. */
int64_t fig_bounds_tiles(int32_t rows, int64_t tokens, int32_t kv_limit, int32_t tile_tokens) {
    assert(tile_tokens >= 1);
    if (rows <= 0 || tokens <= 0 || kv_limit <= 0) return 0;
    int64_t first_tiles = min_of(rows, tokens);
    int64_t further_limit = first_tiles * ((kv_limit - 1) / tile_tokens);
    return first_tiles + min_of((tokens - first_tiles) / tile_tokens, further_limit);
}

fig_bounds_class fig_bounds_class_of(const fig_split_shape *shape, int32_t q_heads,
                                     int32_t head_dim) {
    assert(q_heads >= 1 && head_dim >= 1);
    fig_bounds_class bounds;
    bounds.partial_limit = fig_split_partial_limit(shape);
    uint64_t partial_heads = (uint64_t)bounds.partial_limit * (uint64_t)q_heads;
    uint64_t segments = (uint64_t)shape->row_limit * (uint64_t)shape->groups;
    bounds.partials_bytes = partial_heads * (uint64_t)head_dim * sizeof(float);
    bounds.sums_bytes = partial_heads * 2 * sizeof(float);
    bounds.counters_bytes = segments * sizeof(uint32_t);
    return bounds;
}
