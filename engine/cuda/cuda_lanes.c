/* cuda_lanes.c: how wide a graph may be.
 *
 * A node goes where it begins earliest, counted in nodes, and of such lanes into one where it waits
 * for nobody whom it does not come after anyway. What is implied is found by counting: a node that
 * has seen so many of a lane has seen all those before them. Invariant: the n-th node of a lane has
 * seen n of it. */
#include "engine/cuda/cuda_lanes.h"

#include <assert.h>

/* Of lanes that would let it begin equally early one that is empty or whose last node it comes
 * after anyway, the deepest of these, since who comes after that one next does so, too; else the
 * first. `place`: what it comes after, and the depth of the deepest. */
static uint32_t choose(const fig_cuda_lanes *lanes, const fig_cuda_lane_place *places,
                       const fig_cuda_lane_place *place) {
    uint32_t chosen = 0, least = UINT32_MAX, most = 0;
    for (uint32_t lane = 0; lane < FIG_CUDA_LANE_COUNT; lane++) {
        const uint32_t count = lanes->counts[lane];
        const uint32_t tail_depth = count > 0 ? places[lanes->tails[lane]].depth : 0;
        const uint32_t depth = tail_depth > place->depth ? tail_depth : place->depth;
        const uint32_t rank = place->seen[lane] >= count ? 1 + tail_depth : 0;
        if (depth > least || (depth == least && rank <= most)) continue;
        chosen = lane;
        least = depth;
        most = rank;
    }
    return chosen;
}

/* 1: some other node of the list comes after this one, so that its own edge says nothing. */
static int is_implied(const fig_cuda_lane_place *places, const uint32_t *before, uint32_t count,
                      uint32_t node) {
    const fig_cuda_lane_place *place = &places[node];
    for (uint32_t i = 0; i < count; i++)
        if (before[i] != node && places[before[i]].seen[place->lane] >= place->seen[place->lane])
            return 1;
    return 0;
}

/* A leaf has no depth, and has been seen by nobody. */
static void come_after(fig_cuda_lane_place *place, const fig_cuda_lane_place *other) {
    assert(other->depth > 0);
    if (other->depth > place->depth) place->depth = other->depth;
    for (uint32_t lane = 0; lane < FIG_CUDA_LANE_COUNT; lane++)
        if (other->seen[lane] > place->seen[lane]) place->seen[lane] = other->seen[lane];
}

/* The list is folded in place: what is overwritten is implied by one that stays. */
uint32_t fig_cuda_lanes_find(const fig_cuda_lanes *lanes, const fig_cuda_lane_place *places,
                             fig_dev_after after, fig_cuda_lane_place *place, uint32_t *before) {
    uint32_t count = 0, kept = 0;
    *place = (fig_cuda_lane_place){0};
    for (uint32_t i = 0; i < after.count; i++) {
        come_after(place, &places[after.nodes[i]]);
        before[count++] = after.nodes[i];
    }
    place->lane = choose(lanes, places, place);
    if (place->seen[place->lane] < lanes->counts[place->lane]) {
        come_after(place, &places[lanes->tails[place->lane]]);
        before[count++] = lanes->tails[place->lane];
    }
    for (uint32_t i = 0; i < count; i++)
        if (!is_implied(places, before, count, before[i])) before[kept++] = before[i];
    place->depth++;
    place->seen[place->lane] = lanes->counts[place->lane] + 1;
    return kept;
}

void fig_cuda_lanes_take(fig_cuda_lanes *lanes, const fig_cuda_lane_place *place, uint32_t node) {
    lanes->counts[place->lane]++;
    lanes->tails[place->lane] = node;
}
