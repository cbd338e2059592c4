/* routes.h: chooses, from measurements, the route of a collective's message to the other ranks.
 *
 * One shot: each rank sends all its data to every other rank. Two shots: each rank sends each part
 * of its data to one rank, which adds that part up and sends the sum to every other rank. On NCCL's
 * route, NCCL chooses how to send. Invariant: all ranks of a group get the same answer, because it
 * depends only on values that are equal on all ranks. */
#ifndef FIG_PLANNER_ROUTES_H
#define FIG_PLANNER_ROUTES_H

#include "include/figraph_unstable.h"

typedef struct fig_route_wish {
    uint32_t allowed; /* FIG_ROUTE_*; 0: not known yet, so one shot is chosen */
    int32_t ranks;
    uint64_t bytes;  /* bytes that each rank contributes */
    int is_gathered; /* 1: nothing is added up, so two shots are not possible */
} fig_route_wish;

/* The conditions for NCCL's route, as worded in the error message of a launch that does not meet
 * them. */
#define FIG_ROUTE_NEEDS_NCCL "NCCL, and a larger message or ranks that cannot reach each other"

/* Returns the fastest allowed route. At least one allowed route must be able to carry the
 * message. */
uint32_t fig_routes_choose(const fig_route_wish *wish);

/* Returns the size, in bytes per rank, of the largest message that does not take NCCL's route if
 * all routes are allowed. */
uint64_t fig_routes_own_limit(int32_t ranks);

#endif
