/* clock.h: the engine's monotonic clock, in ns.
 *
 * The engine uses this clock to bound waits and to measure time. Invariant: the clock never runs
 * backwards. */
#ifndef FIG_ENGINE_CLOCK_H
#define FIG_ENGINE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t fig_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
