/* cuda_lanes.h: limits how wide a graph is.
 *
 * A driver gives each branch of a graph its own queue, and the host time of a launch grows with the
 * number of branches: 130 nodes took one microsecond in a chain, but fifty when sixty of the nodes
 * could begin at once. So this file puts each node into one of a few lanes, behind the last node of
 * that lane, and leaves out edges that other edges imply. Only leaves, nodes that no other node
 * follows, are in no lane. Owns the choice of the lane, and the list of nodes that a node must
 * follow in the graph; cuda_work.c owns the graph. Invariant: a node comes after every node in the
 * list that the caller gave for it. */
#ifndef FIG_ENGINE_CUDA_LANES_H
#define FIG_ENGINE_CUDA_LANES_H

#include "engine/seam/device.h"

#ifndef FIG_CUDA_LANE_COUNT
enum { FIG_CUDA_LANE_COUNT = 3 };
#endif

/* The place of a node in the lanes. */
typedef struct fig_cuda_lane_place {
    uint32_t lane, depth; /* depth counts from 1; 0: a leaf, which is in no lane */
    /* for each lane, the number of its nodes that this node comes after, itself included */
    uint32_t seen[FIG_CUDA_LANE_COUNT];
} fig_cuda_lane_place;

/* Zeroed lanes are empty. */
typedef struct fig_cuda_lanes {
    uint32_t counts[FIG_CUDA_LANE_COUNT];
    uint32_t tails[FIG_CUDA_LANE_COUNT]; /* the last node of each lane that is not empty */
} fig_cuda_lanes;

/* Finds the place of the next node. after: each node at most once, and no leaf. places: [node] the
 * places of the nodes added so far. before: [after.count + 1] receives the nodes that the next node
 * must follow in the graph. Returns the number of nodes in `before`. */
uint32_t fig_cuda_lanes_find(const fig_cuda_lanes *lanes, const fig_cuda_lane_place *places,
                             fig_dev_after after, fig_cuda_lane_place *place, uint32_t *before);
/* Records that the node with this place and this number was added. */
void fig_cuda_lanes_take(fig_cuda_lanes *lanes, const fig_cuda_lane_place *place, uint32_t node);

#endif
