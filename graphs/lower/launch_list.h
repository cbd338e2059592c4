/* launch_list.h: lists the launches of a program's nodes and the edges between them.
 *
 * A node has its own launch. A split node may have one more that follows it, and one for chunks
 * that runs beside the last of the other two. Owns which launches there are and their order; leaves
 * what a launch holds to launch.c. Invariant: launches stand in an order that all edges keep. */
#ifndef FIG_GRAPHS_LAUNCH_LIST_H
#define FIG_GRAPHS_LAUNCH_LIST_H

#include "graphs/lower/lower.h"

/* Returns the number of launches of each bucket of the program, including the fetch. */
uint32_t fig_launch_list_count(const fig_program_view *view);
/* Sets launches, launch_count and node_launches; classes and view must be set. The caller frees
 * both arrays, also after a failure. */
fig_status fig_launch_list_make(fig_lower_common *common);
/* Returns 1 if the launch processes the chunks of its node. */
int fig_launch_list_is_beside(const fig_program_view *view, const fig_launch *launch);
/* Sets edges and edge_count from the launches. The caller frees the edges, also after a failure. */
fig_status fig_launch_list_join(fig_lower_common *common);

#endif
