/* strip_sizes.c: bounds the memory that plans of strips and their partial results need.
 *
 * Invariant: no bound depends on where the line is cut, so it holds for any lengths. */
#include "planner/plans/strip_cutter.h"

static int64_t vectors_of(const fig_strips_shape *shape, int64_t queries) {
    return queries * shape->ratio * shape->kv_heads;
}

/* A strip of v vectors with c cuts leaves c + 1 partials of v vectors. Let V be the vectors of a
 * full strip. Pieces that begin at a cut have at most cuts * V vectors in all. The first pieces of
 * cut strips also have at most cuts * V vectors, and at most all vectors of the step. */
static fig_strips_sizes sizes_of(const fig_strips_shape *shape, int64_t strips, int64_t queries) {
    const int64_t cuts = shape->whole ? 0 : shape->workers - 1;
    const int64_t after = cuts * fig_strips_vectors(shape->ratio);
    fig_strips_sizes sizes = {.items = strips + cuts};
    sizes.partial_vectors = after + fig_strip_cutter_small(after, vectors_of(shape, queries));
    sizes.counters = (cuts + fig_strip_cutter_small(cuts, strips)) * FIG_STRIPS_ARRIVALS;
    sizes.plan_bytes = (int64_t)sizeof(fig_strips_head) +
                       (int64_t)fig_size_align((uint64_t)(shape->workers + 1) * 4, 16) +
                       sizes.items * (int64_t)sizeof(fig_strips_item);
    return sizes;
}

/* Returns the most strips of `busy` segments. With the fewest queries a segment has `first` strips.
 * It gets one more with its next `second` queries, and then one with every `step`. */
static int64_t strips_of(const fig_strips_limits *limits, int64_t busy, int64_t step,
                         int64_t least) {
    const int64_t first = fig_strip_cutter_ceil_div(least, step), second = first * step + 1 - least;
    const int64_t spare = limits->queries - busy * least;
    const int64_t seconds = fig_strip_cutter_small(busy, spare / second);
    return busy * first + seconds + (spare - seconds * second) / step;
}

/* Pieces of prefixes: where strips have several pieces, workers are at least as many as pieces, so
 * there are at most workers - 1 more pieces than strips.
 *
 * One more segment brings its first strips, and takes second strips from others where queries are
 * few. Both change at one number of segments: that for which there are just enough queries. So the
 * maximum lies there or at the largest number. */
fig_strips_sizes fig_strip_sizes_bound(const fig_strips_shape *shape,
                                       const fig_strips_limits *limits) {
    const int64_t step = 2 * fig_strips_half(shape->ratio);
    const int64_t least = limits->least > 0 ? limits->least : 1;
    const int64_t most = fig_strip_cutter_small(limits->segments, limits->queries / least);
    const int64_t with_second = fig_strip_cutter_small(
        most, limits->queries / (fig_strip_cutter_ceil_div(least, step) * step + 1));
    int64_t strips = strips_of(limits, most, step, least);
    for (int64_t busy = with_second; busy <= fig_strip_cutter_small(with_second + 1, most);
         busy++) {
        const int64_t own = strips_of(limits, busy, step, least);
        if (own > strips) strips = own;
    }
    if (most == 0) return sizes_of(shape, 0, 0);
    fig_strips_sizes sizes = sizes_of(shape, strips * shape->kv_heads, limits->queries);
    if (limits->shared == 0) return sizes;
    const int64_t more = shape->whole ? 0 : shape->workers - 1;
    const int64_t members = limits->shared * FIG_STRIPS_SHARED_LIMIT;
    const int64_t pieces = (members - limits->shared) * (FIG_STRIPS_PIECE_LIMIT - 1);
    sizes.items += more;
    sizes.partial_vectors +=
        vectors_of(shape, members) +
        fig_strip_cutter_small(more * fig_strips_vectors(shape->ratio), vectors_of(shape, pieces));
    sizes.plan_bytes +=
        members * (int64_t)sizeof(fig_strips_member) + more * (int64_t)sizeof(fig_strips_item);
    sizes.counters = fig_strips_slot_counters(shape->workers) + vectors_of(shape, limits->shared);
    return sizes;
}

fig_strips_sizes fig_strip_sizes_of(const fig_strips_shape *shape,
                                    const fig_strips_segment *segments, int32_t count) {
    const int64_t step = 2 * fig_strips_half(shape->ratio);
    int64_t strips = 0, queries = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t pieces = segments[i].pieces > 1 ? segments[i].pieces : 1;
        strips += fig_strip_cutter_ceil_div(segments[i].queries, step) * pieces;
        queries += segments[i].queries;
    }
    return sizes_of(shape, strips * shape->kv_heads, queries);
}
