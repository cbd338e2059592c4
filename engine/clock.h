/* clock.h: the clock of the engine: one that nobody sets, in ns.
 *
 * For bounds of waits and for what things cost. Invariant: it never goes back. */
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
