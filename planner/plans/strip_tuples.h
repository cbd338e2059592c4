/* strip_tuples.h: the line of a single segment, cut so that workers read the same tiles in step.
 *
 * If only one segment has queries, the k strips of each kv head read the same tiles. Workers then
 * form tuples of k. The workers of a tuple read the same range of tiles at the same time, each for
 * a different strip, so that L2 serves all of them except the first. Of P tuples, tuple j processes
 * tiles [L * j / P, L * (j + 1) / P) of a line of L = kv_heads * tiles. Causal strips differ in
 * length, so odd heads assign their strips to workers in reverse order. strip_tuples.c writes the
 * items on the host. Read by nvcc. Invariant: a strip is cut only where its tuple ends, so a worker
 * begins at most one strip that others end, and does so with its last item. */
#ifndef FIG_PLANNER_STRIP_TUPLES_H
#define FIG_PLANNER_STRIP_TUPLES_H

#include "planner/plans/strip_cutter.h"

/* limit on the fullest worker of tuples, in % of an even share */
enum { FIG_STRIP_TUPLES_WORTH = 108 };

typedef struct fig_strip_tuples {
    int32_t strips, tuples; /* no tuples: the line is cut as any other */
    int32_t first, tiles;   /* range of tiles that the strips of a head read */
} fig_strip_tuples;

/* A worker of a tuple, and what of the line the tuple processes. */
typedef struct fig_strip_tuples_worker {
    int32_t member;               /* the worker's number in its tuple */
    int32_t first_head, end_head; /* the heads with tiles of the tuple */
    int64_t begin, end;           /* tiles of the line */
} fig_strip_tuples_worker;

/* A worker's part of the strips of one head. */
typedef struct fig_strip_tuples_part {
    fig_strip_cutter_strip s;
    int64_t place;     /* the strip's first tile on the line */
    int32_t from, end; /* tiles of the strip; none if end <= from */
} fig_strip_tuples_part;

/* Returns the number of tuples of a line of `tiles` tiles, at most `most`: as many for each kv
 * head, if that costs no more than two strips' `once`. No worker then has tiles of two heads, and
 * strips have fewer pieces. */
FIG_BOTH int32_t fig_strip_tuples_even(const fig_strips_cost *cost, int64_t tiles, int32_t heads,
                                       int32_t most) {
    const int32_t even = most / heads * heads;
    if (even == 0 || even == most) return most;
    const int64_t more = tiles / even - tiles / most;
    return more * cost->tile <= 2 * cost->once ? even : most;
}

/* Returns the tuples that a step's only segment with queries can have. */
FIG_BOTH fig_strip_tuples fig_strip_tuples_of(const fig_strip_cutter *cut,
                                              const fig_strips_segment *segment) {
    const int32_t step = 2 * cut->half, workers = cut->workers;
    fig_strip_tuples set = {0, 0, 0, 0};
    if (cut->shape->whole) return set;
    set.strips = fig_size_ceil_div(segment->queries, step);
    if (set.strips < 2 || set.strips > workers / 2) return set;
    const fig_strip_cutter_strip first = fig_strip_cutter_at(cut, segment, 0, 0);
    const fig_strip_cutter_strip last =
        fig_strip_cutter_at(cut, segment, 0, (set.strips - 1) * step);
    set.first = first.tile;
    set.tiles = last.tile + last.tiles - first.tile;
    const int64_t line = (int64_t)set.tiles * cut->shape->kv_heads;
    if (line >= workers / set.strips)
        set.tuples = fig_strip_tuples_even(first.cost, line, cut->shape->kv_heads,
                                           workers / set.strips);
    return set;
}

/* Returns the first tile of the line that tuple `tuple` processes. */
FIG_BOTH int64_t fig_strip_tuples_begin(const fig_strip_cutter *cut, const fig_strip_tuples *set,
                                        int32_t tuple) {
    return (int64_t)set->tiles * cut->shape->kv_heads * tuple / set->tuples;
}

/* Returns the tuple that processes tile x of the line. */
FIG_BOTH int32_t fig_strip_tuples_at(const fig_strip_cutter *cut, const fig_strip_tuples *set,
                                     int64_t x) {
    const int64_t line = (int64_t)set->tiles * cut->shape->kv_heads;
    return (int32_t)(((x + 1) * set->tuples - 1) / line);
}

/* Returns the worker's place in the tuples. A worker behind the last tuple has no heads. */
FIG_BOTH fig_strip_tuples_worker fig_strip_tuples_worker_of(const fig_strip_cutter *cut,
                                                            const fig_strip_tuples *set,
                                                            int32_t worker) {
    const int32_t tuple = worker / set->strips;
    fig_strip_tuples_worker of = {worker % set->strips, 0, 0, 0, 0};
    if (tuple >= set->tuples) return of;
    of.begin = fig_strip_tuples_begin(cut, set, tuple);
    of.end = fig_strip_tuples_begin(cut, set, tuple + 1);
    of.first_head = (int32_t)(of.begin / set->tiles);
    of.end_head = (int32_t)fig_strip_cutter_ceil_div(of.end, set->tiles);
    return of;
}

FIG_BOTH fig_strip_tuples_part fig_strip_tuples_part_of(const fig_strip_cutter *cut,
                                                        const fig_strip_tuples *set,
                                                        const fig_strips_segment *segment,
                                                        const fig_strip_tuples_worker *of,
                                                        int32_t head) {
    const int32_t number = head % 2 == 0 ? of->member : set->strips - 1 - of->member;
    fig_strip_tuples_part part;
    part.s = fig_strip_cutter_at(cut, segment, head, number * 2 * cut->half);
    part.place = (int64_t)head * set->tiles + part.s.tile - set->first;
    part.from = (int32_t)(of->begin > part.place ? of->begin - part.place : 0);
    part.end = (int32_t)fig_strip_cutter_small(of->end - part.place, part.s.tiles);
    return part;
}

/* Returns the units of a worker. */
FIG_BOTH int64_t fig_strip_tuples_units(const fig_strip_cutter *cut, const fig_strip_tuples *set,
                                        const fig_strips_segment *segment, int32_t worker) {
    const fig_strip_tuples_worker of = fig_strip_tuples_worker_of(cut, set, worker);
    int64_t units = 0;
    for (int32_t head = of.first_head; head < of.end_head; head++) {
        const fig_strip_tuples_part part = fig_strip_tuples_part_of(cut, set, segment, &of, head);
        if (part.end > part.from)
            units += part.s.cost->once + part.s.cost->tile * (part.end - part.from);
    }
    return units;
}

/* Returns 1 if the imbalance is small enough for tuples to pay off although a worker has `units`
 * units: they were measured to save 4 to 10 percent, for 8192 to 32768 tokens. */
FIG_BOTH int fig_strip_tuples_pay(const fig_strip_cutter *cut, int64_t units) {
    return units * 100 <= (cut->share + cut->dearest_once) * FIG_STRIP_TUPLES_WORTH;
}

#endif
