/* exec_graph.h: makes graphs from an exec's launches and from the engine's own kernels.
 *
 * The callers, execs.c and exec_bare.c, must have lowered the exec, filled in its addresses and
 * chosen its families. Invariant: fig_exec_graph_make() and fig_exec_graph_row() leave no graph
 * behind when they fail. */
#ifndef FIG_ENGINE_EXEC_GRAPH_H
#define FIG_ENGINE_EXEC_GRAPH_H

#include "engine/execs/execs.h"

/* Describes a graph to make. */
typedef struct fig_exec_order {
    uint32_t exec;
    fig_launch_range range;
    int own;             /* 1: the whole exec, launched by the engine; 0: a part for a caller */
    uint32_t first_node; /* the graph's number for the first node made from the range */
    fig_dev_after after; /* predecessors of the launches that have no predecessor in the range */
    int serial;          /* 1: each launch depends only on the previous launch */
    int is_plain;        /* 1: each launch begins only after its predecessors have ended */
} fig_exec_order;

fig_status fig_exec_graph_make(const fig_execs *execs, const fig_exec_order *order,
                               fig_dev_graph **graph);
/* Adds the order's launches to a graph, which may hold nodes already. `numbers` is the result of
 * fig_exec_graph_number(). `from` is scratch with range.count entries. */
fig_status fig_exec_graph_add(const fig_execs *execs, const fig_exec_order *order,
                              fig_dev_graph *graph, const uint32_t *numbers, uint32_t *from);
/* Adds only launch `index`. */
fig_status fig_exec_graph_add_one(const fig_execs *execs, const fig_exec_order *order,
                                  fig_dev_graph *graph, uint32_t index, fig_dev_after after);

/* Returns 1 if the launch makes no node: it has no work, or the next launch of the same program
 * node also does its work. */
int fig_exec_graph_is_left_out(const fig_exec *exec, uint32_t index);
/* For each launch of the range, sets the entry in `numbers`, [range.count], to the number of nodes
 * that the earlier launches make. Returns the number of nodes that the whole range makes. */
uint32_t fig_exec_graph_number(const fig_exec *exec, fig_launch_range range, uint32_t *numbers);

/* Returns the number of the node after which a graph's look ahead runs. In a long graph this is the
 * middle node: by then, a host that runs ahead has staged the next step. In a short graph, a look
 * ahead in the middle would end after the last launch and delay the next step, so the look ahead
 * follows the fetch instead. */
uint32_t fig_exec_graph_place_of_look(uint32_t launch_count);
/* Returns a launch of one of the engine's own kernels, which belongs to no program. The params must
 * outlive the launch struct. */
fig_dev_launch fig_exec_graph_own(const fig_execs *execs, fig_op op, const void *params);
/* Makes an exec of `count` launches of one kernel, one after another. */
fig_status fig_exec_graph_row(const fig_execs *execs, const fig_dev_launch *launch, uint32_t count,
                              fig_dev_exec **exec);

#endif
