/* strip_tuples.c: cuts the line of a single segment in tuples, worker by worker.
 *
 * strip_tuples.h gives each worker's part. Invariant: workers are filled in their order, so the
 * preceding piece of a cut strip is there when the next one is written. */
#include "planner/plans/strip_tuples.h"

/* Returns the step's segment if only one segment has queries; otherwise NULL. */
static const fig_strips_segment *only_segment(const fig_strip_cutter *cut) {
    const fig_strips_segment *only = NULL;
    for (int32_t i = 0; i < cut->count; i++) {
        if (cut->segments[i].queries == 0) continue;
        if (only != NULL) return NULL;
        only = &cut->segments[i];
    }
    return only;
}

/* Returns 1 if tuples pay off in this step. */
static int find_tuples(const fig_strip_cutter *cut, const fig_strips_segment *segment,
                       fig_strip_tuples *set) {
    *set = fig_strip_tuples_of(cut, segment);
    for (int32_t worker = 0; worker < set->strips * set->tuples; worker++)
        if (!fig_strip_tuples_pay(cut, fig_strip_tuples_units(cut, set, segment, worker))) return 0;
    return set->tuples > 0;
}

/* Returns the pieces of the part's strip. */
static int32_t pieces_of(const fig_strip_cutter *cut, const fig_strip_tuples *set,
                         const fig_strip_tuples_part *part) {
    return fig_strip_tuples_at(cut, set, part->place + part->s.tiles - 1) -
           fig_strip_tuples_at(cut, set, part->place) + 1;
}

/* Assigns a partial to the worker's last item. The first piece of a strip allocates the partials of
 * all its pieces. A later piece takes the partial after that of the preceding piece, which is the
 * last item of the same member of the preceding tuple. */
static void join_part(fig_strip_cutter *cut, const fig_strip_tuples *set,
                      const fig_strip_tuples_part *part) {
    fig_strips_item *item = &cut->items[cut->item_count - 1];
    const int32_t vectors = item->queries * cut->shape->ratio;
    item->pieces = pieces_of(cut, set, part);
    if (item->pieces < 2) return;
    if (part->from == 0) {
        item->partial = item->first_partial = (int32_t)cut->partial_vectors;
        item->counter = (int32_t)cut->cut_pieces * FIG_STRIPS_ARRIVALS;
        cut->cut_pieces += item->pieces;
        cut->partial_vectors += (int64_t)item->pieces * vectors;
        return;
    }
    const fig_strips_item *before = &cut->items[cut->ranges[cut->worker - set->strips + 1] - 1];
    item->first_partial = before->first_partial;
    item->partial = before->partial + vectors;
    item->counter = before->counter;
}

int fig_strip_tuples_cut(fig_strip_cutter *cut) {
    const fig_strips_segment *segment = only_segment(cut);
    fig_strip_tuples set;
    if (segment == NULL || !find_tuples(cut, segment, &set)) return 0;
    for (int32_t worker = 0; worker < set.strips * set.tuples; worker++) {
        const fig_strip_tuples_worker of = fig_strip_tuples_worker_of(cut, &set, worker);
        for (int32_t head = of.first_head; head < of.end_head; head++) {
            const fig_strip_tuples_part part =
                fig_strip_tuples_part_of(cut, &set, segment, &of, head);
            if (part.end <= part.from) continue;
            fig_strips_put(cut, &part.s, part.from, part.end);
            join_part(cut, &set, &part);
        }
        fig_strips_turn(cut);
    }
    return 1;
}
