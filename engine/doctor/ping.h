/* ping.h: runs steps of the smallest program on a device, from end to end.
 *
 * fig_examine() uses it. A run makes a spec, a program, graphs and an engine, binds tensors and
 * runs steps. Its result is known in advance. */
#ifndef FIG_ENGINE_PING_H
#define FIG_ENGINE_PING_H

#include "include/figraph.h"

typedef struct fig_ping {
    int32_t steps;
    int64_t stage_ns, launch_ns; /* medians of the host times of stage and launch */
} fig_ping;

/* Runs the steps. traits: the machine for which the graphs are lowered; NULL: the host. FIG_DRIVER:
 * the result is wrong. */
fig_status fig_ping_run(const fig_engine_options *options, const fig_traits *traits,
                        fig_ping *ping);

#endif
