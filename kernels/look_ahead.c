/* look_ahead.c: take the next plan out of the ring while a step still runs.
 *
 * What it takes lies behind the state until the fetch of the next graph finds it there, which then
 * need not wait for the bus. Where the plan is not published yet, that fetch looks for it again;
 * whether it is any good is for the fetch to say. Invariant: that of fetch.c; `ahead` says a number
 * only once all of its slot is there. */
#include "kernels/fetch.h"

#include "kernels/twins.h"

enum { THREADS = 64 };

void fig_look_ahead_shape(const void *params, fig_launch_shape *shape) {
    (void)params;
    *shape = (fig_launch_shape){.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
}

/* A plan that is taken back at this moment may be written anew while it is read here. What then
 * lies behind the state is of two plans, and is forgotten before a fetch looks at it, since the
 * host has that done behind all that it launched. It is a race of plain accesses all the same, the
 * one that tsan is not shown. */
__attribute__((no_sanitize("thread"))) static void copy_ahead(uint8_t *ahead, const uint8_t *slot,
                                                              uint32_t bytes) {
    const volatile uint64_t *from = (const volatile void *)slot;
    uint64_t *to = (void *)ahead;
    for (uint32_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = from[i];
}

void fig_look_ahead_twin(const void *params, const uint32_t block[3]) {
    (void)block;
    const fig_look_ahead_params *p = params;
    const fig_fetch_ring ring = {p->ring, p->slot_count, p->slot_bytes};
    const uint64_t next = p->state->number + 1;
    uint32_t bytes;
    fig_fetch_tell(p->state, p->words);
    if (p->state->ahead == next) return;
    const uint8_t *slot = fig_fetch_find(&ring, next, &bytes);
    if (slot == NULL) return;
    copy_ahead(fig_fetch_slot_ahead(p->state), slot, bytes);
    p->state->ahead = next;
}
