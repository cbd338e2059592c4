/* routes.h: which way a collective's message takes to the other ranks, by what was measured.
 *
 * In one shot each rank sends all that it has to every other; in two it sends each part to one
 * rank, which sends the sum of all to every other; NCCL's way is its own. Invariant: every rank of
 * a group hears the same answer, since it follows from what all of them have alike. */
#ifndef FIG_PLANNER_ROUTES_H
#define FIG_PLANNER_ROUTES_H

#include "include/figraph_unstable.h"

typedef struct fig_route_wish {
    uint32_t allowed; /* FIG_ROUTE_*; 0: nothing is known yet, which is one shot */
    int32_t ranks;
    uint64_t bytes;  /* that a rank gives */
    int is_gathered; /* 1: nothing is added up, so that two shots are none */
} fig_route_wish;

/* What a launch lacks that NCCL does not carry. */
#define FIG_ROUTE_NEEDS_NCCL "NCCL, and a larger message or ranks that cannot reach each other"

/* The quickest of those that are allowed, at least one of which can do it. */
uint32_t fig_routes_choose(const fig_route_wish *wish);

/* The most bytes of a rank that ever go another way than NCCL's, where that is allowed. */
uint64_t fig_routes_own_limit(int32_t ranks);

#endif
