/* strips.c: makes the plan of attention over rows with many query tokens.
 *
 * The cost of a strip is once + tile * tiles. Its unit is a sixteenth of the time of a tile in a
 * strip of two halves; all figures were measured. A worker that begins inside a strip pays `once`
 * again, so on a line of U units, the wanted place of cut w of A workers is once + (U - once) * w /
 * A. If there are pieces of prefixes, a worker gets an even share of all units less those of its
 * pieces. Invariant: a line of A workers has at most A - 1 cuts, which bounds everything that grows
 * with the number of workers. */
#include "planner/plans/strip_cutter.h"

#include <string.h>

/* Units of strips of shared segments. A full strip leaves 128 results, each in a slot. A lone strip
 * is mostly a row's own tokens. Of many combinations these are the best (kernels/NOTES.md). */
enum { SHARED_PAIR_ONCE = 40, SHARED_LONE_ONCE = 9, SHARED_LONE_TILE = 12 };
/* A small strip of a shared segment stays whole if it costs at most this % of an even share. */
enum { WHOLE_WORTH = 150 };

fig_strips_cost fig_strips_shared_cost_of(const fig_strips_shape *shape, int32_t queries) {
    if (queries <= fig_strips_half(shape->ratio))
        return fig_strips_cost_scaled(shape, SHARED_LONE_ONCE, SHARED_LONE_TILE);
    return fig_strips_cost_scaled(shape, SHARED_PAIR_ONCE, FIG_STRIPS_PAIR_TILE);
}

int64_t fig_strips_row_units(const fig_strips_shape *shape, int32_t queries, int64_t tiles) {
    const int32_t step = 2 * fig_strips_half(shape->ratio);
    const fig_strips_cost cost = fig_strips_shared_cost_of(shape, fig_size_min(queries, step));
    return (cost.once + cost.tile * tiles) * fig_strip_cutter_ceil_div(queries, step) *
           shape->kv_heads;
}

/* The strips of all kv heads cost the same. */
void fig_strips_add_costs(fig_strip_cutter *cut, const fig_strips_segment *segments,
                          int32_t count) {
    const int32_t heads = cut->shape->kv_heads;
    for (int32_t i = 0; i < count; i++) {
        for (int32_t query = 0; query < segments[i].queries; query += 2 * cut->half) {
            const fig_strip_cutter_strip s = fig_strip_cutter_at(cut, &segments[i], 0, query);
            const int64_t more = s.cost->once * (segments[i].pieces - 1);
            if (segments[i].pieces > 0) {
                const int32_t rests = segments[i].rests;
                cut->prefix_units += heads * (s.units + more);
                cut->full_pieces += heads * (segments[i].pieces - rests);
                cut->rest_units += heads * (s.cost->once * rests + s.cost->tile * segments[i].rest);
                continue;
            }
            cut->units += heads * s.units;
            cut->tiles += (int64_t)heads * s.tiles;
            if (s.cost->once > cut->dearest_once) cut->dearest_once = s.cost->once;
            if (s.cost->tile > cut->dearest_tile) cut->dearest_tile = s.cost->tile;
        }
    }
}

/* ---- Cutting */

/* Returns the worker's last item if it has the same strip of the preceding heads, as a whole;
 * otherwise NULL. */
static fig_strips_item *same_before(const fig_strip_cutter *cut, const fig_strip_cutter_strip *s) {
    if (cut->item_count == cut->ranges[cut->worker]) return NULL;
    fig_strips_item *last = &cut->items[cut->item_count - 1];
    const int32_t differs = (last->flags ^ s->flags) & FIG_STRIPS_IS_SHARED;
    if (last->query != fig_strip_cutter_query(s) || differs || last->partial >= 0) return NULL;
    return last->head + last->heads == s->head ? last : NULL;
}

/* Adds tiles [from, end) of the strip and of those of the next heads - 1 heads, as an item or to
 * the item of the preceding heads. heads: 1, or the tiles are all. */
static void put(fig_strip_cutter *cut, const fig_strip_cutter_strip *s, int32_t from, int32_t end,
                int32_t heads) {
    const int32_t is_lone = (s->flags & FIG_STRIPS_LONE) != 0;
    fig_strips_item *last = end - from == s->tiles ? same_before(cut, s) : NULL;
    if (last != NULL) {
        last->heads = (int16_t)(last->heads + heads);
    } else {
        const int32_t is_second = is_lone && cut->lone_count % 2 != 0;
        cut->items[cut->item_count++] =
            fig_strip_cutter_item(s, from, end, heads, is_second ? FIG_STRIPS_SECOND : 0);
    }
    if (is_lone) cut->lone_count += heads;
}

/* Adds tiles [from, end) of the strip. */
void fig_strips_put(fig_strip_cutter *cut, const fig_strip_cutter_strip *s, int32_t from,
                    int32_t end) {
    if (end > from) put(cut, s, from, end, 1);
}

/* Adds the pieces of prefixes of the current worker. Returns their units. */
static int64_t put_pieces(fig_strip_cutter *cut) {
    const fig_strip_cutter_pieces *pieces = cut->pieces;
    const int32_t worker = cut->worker;
    if (pieces == NULL) return fig_strip_prefixes_put(cut);
    fig_strips_item *to = cut->items + cut->item_count;
    to = fig_strip_cutter_put_known(pieces, worker, cut->lone_count, to);
    cut->item_count = (int32_t)(to - cut->items);
    cut->lone_count += pieces->lone_counts[worker];
    return pieces->units[worker];
}

/* Returns the units of the pieces of prefixes of the current worker. Adds them unless they come
 * last. */
static int64_t begin_pieces(fig_strip_cutter *cut) {
    if (!fig_strip_cutter_is_late(cut, cut->worker)) return put_pieces(cut);
    return cut->pieces != NULL ? cut->pieces->units[cut->worker] : fig_strip_prefixes_units(cut);
}

/* Begins the stretch of the current worker. */
static void begin(fig_strip_cutter *cut) {
    cut->lone_count = 0;
    if (cut->worker >= cut->shape->workers) return;
    if (cut->prefix_units == 0) {
        cut->next = fig_strip_cutter_wanted(cut, cut->worker + 1);
        return;
    }
    cut->next += fig_strip_cutter_rest(cut, begin_pieces(cut));
}

void fig_strips_turn(fig_strip_cutter *cut) {
    if (fig_strip_cutter_is_late(cut, cut->worker)) put_pieces(cut);
    fig_strip_cutter_mark_last(cut->items, cut->items + cut->item_count);
    cut->ranges[++cut->worker] = cut->item_count;
    begin(cut);
}

/* Assigns partials to the pieces of a cut strip: the items from `first` on that are on the line. */
static void join(fig_strip_cutter *cut, int32_t first, int32_t vectors) {
    int32_t pieces = 0, piece = 0;
    for (int32_t i = first; i < cut->item_count; i++)
        pieces += (cut->items[i].flags & FIG_STRIPS_IS_PREFIX) == 0;
    if (pieces < 2) return;
    for (int32_t i = first; i < cut->item_count; i++) {
        fig_strips_item *item = &cut->items[i];
        if (item->flags & FIG_STRIPS_IS_PREFIX) continue;
        item->first_partial = (int32_t)cut->partial_vectors;
        item->partial = item->first_partial + piece++ * vectors;
        item->pieces = pieces;
        item->counter = (int32_t)cut->cut_pieces * FIG_STRIPS_ARRIVALS;
    }
    cut->partial_vectors += (int64_t)pieces * vectors;
    cut->cut_pieces += pieces;
}

static void cut_strip(fig_strip_cutter *cut, const fig_strip_cutter_strip *s) {
    const int64_t end = cut->place + s->units;
    const int32_t first = cut->item_count;
    int32_t from = 0;
    while (cut->worker + 1 < cut->active && cut->next < end) {
        const int32_t tile = fig_strip_cutter_tile_of_cut(cut, s, cut->next - cut->place);
        fig_strips_put(cut, s, from, tile);
        if (tile > from) from = tile;
        fig_strips_turn(cut);
    }
    fig_strips_put(cut, s, from, s->tiles);
    join(cut, first, s->queries * cut->shape->ratio);
    cut->place = end;
}

/* Does what cut_strip() does, for the heads from s->head on up to the first whose strip is to be
 * cut, and moves s->head there. Rows that share a prefix have thousands of such strips. */
static void pass_whole(fig_strip_cutter *cut, fig_strip_cutter_strip *s) {
    const int64_t end = cut->worker + 1 < cut->active ? cut->next : INT64_MAX;
    const int64_t room = end - cut->place, units = s->units;
    int32_t heads = cut->shape->kv_heads - s->head;
    if (room < heads * units)
        for (heads = 0; room >= (heads + 1) * units;)
            heads++;
    if (heads == 0) return;
    put(cut, s, 0, s->tiles, heads);
    cut->place += heads * units;
    s->head += heads;
}

/* Cuts the strips of a segment that has one strip per kv head. */
static void cut_single(fig_strip_cutter *cut, const fig_strips_segment *segment) {
    fig_strip_cutter_strip s = fig_strip_cutter_at(cut, segment, 0, 0);
    for (pass_whole(cut, &s); s.head < cut->shape->kv_heads; pass_whole(cut, &s)) {
        cut_strip(cut, &s);
        s.head++;
    }
}

void fig_strips_cut_segment(fig_strip_cutter *cut, const fig_strips_segment *segment) {
    const int32_t step = 2 * cut->half;
    if (segment->queries <= step) {
        cut_single(cut, segment);
        return;
    }
    for (int32_t head = 0; head < cut->shape->kv_heads; head++) {
        for (int32_t query = 0; query < segment->queries; query += step) {
            const fig_strip_cutter_strip s = fig_strip_cutter_at(cut, segment, head, query);
            cut_strip(cut, &s);
        }
    }
}

/* Cuts all strips, in the order of the line. */
static void cut_line(fig_strip_cutter *cut, const fig_strips_segment *segments, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (segments[i].queries > 0 && segments[i].pieces == 0)
            fig_strips_cut_segment(cut, &segments[i]);
}

/* ---- Public */

static int32_t last_query(const fig_strips_segment *segments, int32_t count) {
    int32_t last = 0;
    for (int32_t i = 0; i < count; i++)
        if (segments[i].first_query + segments[i].queries > last)
            last = segments[i].first_query + segments[i].queries;
    return last;
}

void fig_strips_prepare(fig_strip_cutter *cut) {
    const int32_t half = fig_strips_half(cut->shape->ratio);
    fig_strip_cutter_prepare(cut, cut->shape);
    assert(1 << cut->tile_bits == cut->shape->tile_tokens);
    cut->costs[1][0] = fig_strips_shared_cost_of(cut->shape, half + 1);
    cut->costs[1][1] = fig_strips_shared_cost_of(cut->shape, half);
}

void fig_strips_open(fig_strip_cutter *cut, int32_t queries, uint8_t *plan) {
    const fig_strips_shape *shape = cut->shape;
    assert(shape->ratio >= 1 && shape->ratio <= FIG_STRIPS_RATIO_LIMIT && shape->workers >= 1);
    cut->head = (fig_strips_head *)(void *)plan;
    *cut->head = (fig_strips_head){.workers = shape->workers,
                                   .tile_tokens = shape->tile_tokens,
                                   .ratio = shape->ratio,
                                   .kv_heads = shape->kv_heads,
                                   .window = shape->window,
                                   .queries = queries};
    cut->ranges = (int32_t *)(void *)(plan + sizeof *cut->head);
    const uint64_t ranges = fig_size_align((uint64_t)(shape->workers + 1) * sizeof(int32_t), 16);
    memset(cut->ranges, 0, ranges);
    cut->items = (fig_strips_item *)(void *)(plan + sizeof *cut->head + ranges);
    fig_strips_prepare(cut);
}

void fig_strips_begin(fig_strip_cutter *cut, int64_t active) {
    fig_strip_cutter_share(cut, active);
    cut->whole_units = (cut->units + cut->prefix_units) * WHOLE_WORTH / (100 * active);
    begin(cut);
}

fig_strips_sizes fig_strips_close(fig_strip_cutter *cut) {
    while (cut->worker < cut->shape->workers)
        fig_strips_turn(cut);
    cut->head->items = cut->item_count;
    cut->head->partial_vectors = (int32_t)cut->partial_vectors;
    cut->head->counters = (int32_t)cut->cut_pieces * FIG_STRIPS_ARRIVALS;
    const uint8_t *plan = (const uint8_t *)cut->head;
    const uint8_t *end = (const uint8_t *)(cut->items + cut->item_count);
    return (fig_strips_sizes){.items = cut->item_count,
                              .partial_vectors = cut->partial_vectors,
                              .counters = cut->head->counters,
                              .plan_bytes = end - plan};
}

fig_strips_sizes fig_strips_make(const fig_strips_shape *shape, const fig_strips_segment *segments,
                                 int32_t count, uint8_t *plan) {
    return fig_strips_make_within(shape, segments, count, shape->workers, plan);
}

fig_strips_sizes fig_strips_make_within(const fig_strips_shape *shape,
                                        const fig_strips_segment *segments, int32_t count,
                                        int32_t workers, uint8_t *plan) {
    fig_strip_cutter cut = {.shape = shape, .segments = segments, .count = count};
    fig_strips_open(&cut, last_query(segments, count), plan);
    fig_strips_add_costs(&cut, segments, count);
    assert(workers >= 1 && workers <= shape->workers);
    cut.workers = workers;
    if (cut.prefix_units > 0) {
        fig_strip_prefixes_share_line(&cut, fig_strip_prefixes_bare(&cut));
        cut.takes_turns = fig_strip_prefixes_take_turns(&cut);
    }
    fig_strips_begin(&cut, fig_strip_cutter_active(&cut));
    if (!fig_strip_tuples_cut(&cut)) cut_line(&cut, segments, count);
    return fig_strips_close(&cut);
}

fig_strips_sizes fig_strips_share(const fig_strips_shared *shared, uint8_t *plan) {
    fig_strips_head *head = (fig_strips_head *)(void *)plan;
    const int32_t q_heads = head->ratio * head->kv_heads;
    const size_t bytes = (size_t)shared->count * sizeof *shared->members;
    uint8_t *members = (uint8_t *)(uintptr_t)fig_strips_members(plan);
    if (bytes > 0) memcpy(members, shared->members, bytes);
    head->members = shared->count;
    head->slot_vectors = shared->slots * q_heads;
    fig_strips_sizes sizes = {.items = head->items,
                              .partial_vectors = head->partial_vectors + head->slot_vectors,
                              .counters = head->counters,
                              .plan_bytes = members - plan + (int64_t)bytes};
    if (shared->tokens > 0)
        sizes.counters = fig_strips_slot_counters(head->workers) + shared->tokens * q_heads;
    return sizes;
}
