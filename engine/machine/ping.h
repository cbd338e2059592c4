/* ping.h: a step from end to end on a device, of the smallest program there is.
 *
 * For fig_examine(): spec, program, graphs, engine, bindings, steps, and a result that is known
 * without computing. */
#ifndef FIG_ENGINE_PING_H
#define FIG_ENGINE_PING_H

#include "include/figraph.h"

typedef struct fig_ping {
    int32_t steps;
    int64_t stage_ns, launch_ns; /* medians, on the host */
} fig_ping;

/* traits: what graphs are lowered for; NULL: the host. FIG_DRIVER: the result is another. */
fig_status fig_ping_run(const fig_engine_options *options, const fig_traits *traits,
                        fig_ping *ping);

#endif
