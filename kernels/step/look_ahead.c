/* look_ahead.c: prefetches the next plan from the ring while a step still runs.
 *
 * The plan is copied to the slot after the state. The fetch of the next graph finds it there and
 * need not wait for the bus. If the plan is not published yet, that fetch looks for it again. The
 * fetch also checks that the plan is valid. Invariant: that of fetch.c; `ahead` names a plan only
 * once its whole slot has been copied. */
#include "kernels/step/fetch.h"

#include "kernels/table/reference_kernels.h"

enum { THREADS = 64 };

void fig_look_ahead_shape(const void *params, fig_launch_shape *shape) {
    (void)params;
    *shape = (fig_launch_shape){.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
}

/* Copies the plan. If the host takes this plan back, the host may overwrite the plan while this
 * function reads it. The copy is then a mix of two plans. No fetch uses such a copy, because the
 * host enqueues another launch, behind all launches so far, that discards the copy. Still, this is
 * a race of plain accesses, and the only one that is hidden from tsan. */
__attribute__((no_sanitize("thread"))) static void copy_ahead(uint8_t *ahead, const uint8_t *slot,
                                                              uint32_t bytes) {
    const volatile uint64_t *from = (const volatile void *)slot;
    uint64_t *to = (void *)ahead;
    for (uint32_t i = 0; i < bytes / sizeof *to; i++)
        to[i] = from[i];
}

void fig_look_ahead_reference(const void *params, const uint32_t block[3]) {
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
