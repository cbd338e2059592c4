/* cuda_lanes.h: how wide a graph may be.
 *
 * A driver gives each branch of a graph a queue of its own, and what a launch costs the host grows
 * with them: 130 nodes cost a microsecond in a chain and fifty where sixty of them could begin at
 * once. So nodes are put into a few lanes, each behind the one before it in its lane, and edges
 * that others imply are left out. Owns which lane a node takes and what it then comes after; the
 * graph is cuda_work.c's. Invariant: a node comes after all that it was said to come after. */
#ifndef FIG_ENGINE_CUDA_LANES_H
#define FIG_ENGINE_CUDA_LANES_H

#include "engine/device.h"

#ifndef FIG_CUDA_LANE_COUNT
enum { FIG_CUDA_LANE_COUNT = 3 };
#endif

/* Where a node stands. */
typedef struct fig_cuda_lane_place {
    uint32_t lane, depth;               /* depth from 1; 0: a leaf, in no lane */
    uint32_t seen[FIG_CUDA_LANE_COUNT]; /* of each lane that it comes after, itself included */
} fig_cuda_lane_place;

/* Zeroed, it is empty. */
typedef struct fig_cuda_lanes {
    uint32_t counts[FIG_CUDA_LANE_COUNT];
    uint32_t tails[FIG_CUDA_LANE_COUNT]; /* numbers of nodes; of lanes that have any */
} fig_cuda_lanes;

/* Finds the place of the next node. after: each once, none of them a leaf; places: [node] of those
 * added; before: [after.count + 1], filled with what it comes after in the graph. Returns how many
 * those are. */
uint32_t fig_cuda_lanes_find(const fig_cuda_lanes *lanes, const fig_cuda_lane_place *places,
                             fig_dev_after after, fig_cuda_lane_place *place, uint32_t *before);
/* The node of that place was added, with this number. */
void fig_cuda_lanes_take(fig_cuda_lanes *lanes, const fig_cuda_lane_place *place, uint32_t node);

#endif
