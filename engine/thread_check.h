/* thread_check.h: two threads in one engine, caught where the build looks for it.
 *
 * An engine is one thread's at a time, and nothing in it locks. Debug and sanitized builds count
 * who is inside, which costs two atomic operations a call; release builds do not. Invariant: a call
 * that was let in leaves, on every path. */
#ifndef FIG_ENGINE_THREAD_CHECK_H
#define FIG_ENGINE_THREAD_CHECK_H

#include <stdint.h>

#include "planner/status.h"

typedef struct fig_thread_check {
    uint32_t inside; /* 1: a call is */
} fig_thread_check;

#ifdef FIG_CHECK_THREADS
static inline fig_status fig_thread_check_enter(fig_thread_check *owner) {
    uint32_t nobody = 0;
    if (__atomic_compare_exchange_n(&owner->inside, &nobody, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return FIG_OK;
    return fig_fail(FIG_ORDER, "engine: two threads are in it at once, it is one thread's");
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
