/* thread_check.h: detects two threads that use one engine at once, in builds with
 * FIG_CHECK_THREADS.
 *
 * Only one thread at a time may use an engine, and the engine does not lock. Debug and sanitizer
 * builds record whether a call is inside the engine, at the cost of two atomic operations for each
 * call; release builds do not check. Invariant: every call that has entered also leaves, on every
 * path. */
#ifndef FIG_ENGINE_THREAD_CHECK_H
#define FIG_ENGINE_THREAD_CHECK_H

#include <stdint.h>

#include "planner/status.h"

typedef struct fig_thread_check {
    uint32_t inside; /* 1: a call is inside the engine */
} fig_thread_check;

#ifdef FIG_CHECK_THREADS
static inline fig_status fig_thread_check_enter(fig_thread_check *owner) {
    uint32_t nobody = 0;
    if (__atomic_compare_exchange_n(&owner->inside, &nobody, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return FIG_OK;
    return fig_fail(FIG_ORDER, "engine: two threads use it at once, only one may");
}

static inline fig_status fig_thread_check_leave(fig_thread_check *owner, fig_status status) {
    __atomic_store_n(&owner->inside, 0, __ATOMIC_RELEASE);
    return status;
}
#else
static inline fig_status fig_thread_check_enter(fig_thread_check *owner) {
    (void)owner;
    return FIG_OK;
}

static inline fig_status fig_thread_check_leave(fig_thread_check *owner, fig_status status) {
    (void)owner;
    return status;
}
#endif

#endif
