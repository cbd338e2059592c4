/* cuda_lanes.c: chooses the lane of a node, and leaves out implied edges.
 *
 * A node goes into the lane where it can begin earliest, counted in nodes. Among lanes that are
 * equal in this respect, the node goes into one whose nodes it must follow anyway, so that the lane
 * adds no new wait. Counts suffice to find implied edges: a node that comes after the n-th node of
 * a lane also comes after the first n - 1 nodes of that lane. Invariant: `seen` of the n-th node of
 * a lane is n for its own lane. */
#include "engine/graph/cuda_lanes.h"

#include <assert.h>

/* Chooses among the lanes that let the node begin equally early. A preferred lane is empty, or its
 * last node is one that the new node already follows. Among several preferred lanes this function
 * takes the deepest, because nodes that follow the new node then follow that lane too. If no lane
 * is preferred, it takes the first. `place` tells which nodes the new node follows, and the depth
 * of the deepest of them. */
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

/* Returns 1 if another node of the list already comes after this node, so that an edge from this
 * node is redundant. */
static int is_implied(const fig_cuda_lane_place *places, const uint32_t *before, uint32_t count,
                      uint32_t node) {
    const fig_cuda_lane_place *place = &places[node];
    for (uint32_t i = 0; i < count; i++)
        if (before[i] != node && places[before[i]].seen[place->lane] >= place->seen[place->lane])
            return 1;
    return 0;
}

/* A leaf has no depth, and no node comes after it. */
static void come_after(fig_cuda_lane_place *place, const fig_cuda_lane_place *other) {
    assert(other->depth > 0);
    if (other->depth > place->depth) place->depth = other->depth;
    for (uint32_t lane = 0; lane < FIG_CUDA_LANE_COUNT; lane++)
        if (other->seen[lane] > place->seen[lane]) place->seen[lane] = other->seen[lane];
}

/* Reduces the list in place: each entry that is overwritten is implied by an entry that remains. */
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
