/* routes.c: chooses, from measurements, the route of a collective's message to the other ranks.
 *
 * The rows come from tools/bench/results/h200_allreduce_2.csv and _4.csv, which tools/bench/run.sh
 * made; the row of 8 ranks is a guess from those. Invariant: rows are in ascending order of ranks,
 * and the last row serves every larger number of ranks. */
#include "planner/routes.h"

#include <assert.h>

/* The largest message, in bytes per rank, for which each route is the fastest. */
typedef struct route_row {
    int32_t ranks;
    uint64_t one_shot_bytes, two_shot_bytes;
} route_row;

static const route_row rows[] = {
    {2, 256 << 10, 4 << 20},
    {4, 32 << 10, 2 << 20},
    {8, 16 << 10, 1 << 20},
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

static const route_row *row_of(int32_t ranks) {
    int i = 0;
    while (i < ROW_COUNT - 1 && rows[i].ranks < ranks)
        i++;
    return &rows[i];
}

uint32_t fig_routes_choose(const fig_route_wish *wish) {
    const route_row *row = row_of(wish->ranks);
    uint32_t allowed = wish->allowed, best = FIG_ROUTE_NCCL;
    if (wish->is_gathered) allowed &= ~(uint32_t)FIG_ROUTE_TWO_SHOT;
    if (allowed == 0) return FIG_ROUTE_ONE_SHOT;
    if (wish->bytes <= row->two_shot_bytes) best = FIG_ROUTE_TWO_SHOT;
    if (wish->bytes <= row->one_shot_bytes) best = FIG_ROUTE_ONE_SHOT;
    if (allowed & best) return best;
    /* The best route is not allowed, so take the next best. */
    const uint32_t next =
        best == FIG_ROUTE_ONE_SHOT || wish->is_gathered ? FIG_ROUTE_ONE_SHOT : FIG_ROUTE_TWO_SHOT;
    if (allowed & next) return next;
    return allowed & FIG_ROUTE_NCCL ? FIG_ROUTE_NCCL : allowed;
}

uint64_t fig_routes_own_limit(int32_t ranks) {
    const route_row *row = row_of(ranks);
    return row->two_shot_bytes > row->one_shot_bytes ? row->two_shot_bytes : row->one_shot_bytes;
}
