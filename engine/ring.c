/* ring.c: claim a slot of the plan ring.
 *
 * The two words that order host and device are read and written in ring.h; this file decides
 * whether the next slot is free and how long to wait for it. Invariant: a claim that would
 * overwrite a plan still to be fetched fails. */
#include "engine/ring.h"

#include <sched.h>

#include "engine/clock.h"
#include "planner/status.h"

/* Plans next - slot_count and later still have their slots. */
static int is_full(const fig_ring *ring) {
    return ring->next - fig_ring_consumed(ring) > ring->slot_count;
}

/* Yields the core at each turn: on the host device the thread that frees the slot may need it. */
static int wait_until_free(const fig_ring *ring, int32_t wait_us) {
    const int64_t deadline_ns = fig_clock_ns() + (int64_t)wait_us * 1000;
    while (is_full(ring)) {
        if (fig_clock_ns() >= deadline_ns) return 0;
        sched_yield();
    }
    return 1;
}

void fig_ring_init(fig_ring *ring, uint8_t *slots, const fig_fetch_words *words,
                   uint32_t slot_count, uint32_t slot_bytes) {
    assert(slot_count > 0);
    assert(slot_bytes >= sizeof(fig_plan_head) && slot_bytes % 16 == 0);
    *ring = (fig_ring){slots, words, slot_count, slot_bytes, 1};
}

fig_status fig_ring_claim(fig_ring *ring, int32_t wait_us, uint8_t **slot) {
    *slot = NULL;
    if (is_full(ring) && (wait_us <= 0 || !wait_until_free(ring, wait_us)))
        return fig_fail(FIG_BUSY, "every one of %u slots is in flight", ring->slot_count);
    uint64_t index = (ring->next - 1) % ring->slot_count;
    *slot = ring->slots + (size_t)index * ring->slot_bytes;
    return FIG_OK;
}
