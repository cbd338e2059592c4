/* exec_graph.h: graphs of an exec's launches, and of kernels of the engine's own.
 *
 * For execs.c and exec_bare.c. The exec is lowered, its addresses are filled in and its families
 * chosen. Invariant: what fails half-way leaves no graph behind. */
#ifndef FIG_ENGINE_EXEC_GRAPH_H
#define FIG_ENGINE_EXEC_GRAPH_H

#include "engine/execs.h"

/* What a graph is to be. */
typedef struct fig_exec_order {
    uint32_t exec;
    fig_launch_range range;
    int own;             /* 1: all of it, to be launched by us; 0: a part for a caller */
    uint32_t first_node; /* of the graph: what the range's first launch that is made becomes */
    fig_dev_after after; /* what a launch comes after that comes after none of the range */
    int serial;          /* 1: each launch comes after the one before it alone */
    int is_plain;        /* 1: no launch begins before what it comes after has ended */
} fig_exec_order;

fig_status fig_exec_graph_make(const fig_execs *execs, const fig_exec_order *order,
                               fig_dev_graph **graph);
/* The order's launches behind what the graph holds. numbers: of fig_exec_graph_number; from:
 * [range.count] scratch. */
fig_status fig_exec_graph_add(const fig_execs *execs, const fig_exec_order *order,
                              fig_dev_graph *graph, const uint32_t *numbers, uint32_t *from);
/* Launch `index` alone. */
fig_status fig_exec_graph_add_one(const fig_execs *execs, const fig_exec_order *order,
                                  fig_dev_graph *graph, uint32_t index, fig_dev_after after);

/* 1: the launch behind it, of the same node, does its work too. */
int fig_exec_graph_is_left_out(const fig_exec *exec, uint32_t index);
/* numbers: [range.count] how many launches of the range are made before each; returns how many are
 * in all. */
uint32_t fig_exec_graph_number(const fig_exec *exec, fig_launch_range range, uint32_t *numbers);

/* The launch of a graph that its look ahead comes after. Behind the middle, since a host that runs
 * ahead has staged the next step by then; where that is too late to be done before the last launch,
 * right behind the fetch: nothing is to wait for it. */
uint32_t fig_exec_graph_place_of_look(uint32_t launch_count);
/* A kernel of the engine's own, which stands in no program; params are the caller's. */
fig_dev_launch fig_exec_graph_own(const fig_execs *execs, fig_op op, const void *params);
/* So many launches of one kernel, one after another. */
fig_status fig_exec_graph_row(const fig_execs *execs, const fig_dev_launch *launch, uint32_t count,
                              fig_dev_exec **exec);

#endif
