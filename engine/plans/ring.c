/* ring.c: claims a slot of the plan ring.
 *
 * The functions in ring.h read and write the words that synchronise host and device. This file
 * decides whether the next slot is free, and waits for it if it is not. Invariant: a claim fails if
 * it would overwrite a plan that the device has yet to fetch. */
#include "engine/plans/ring.h"

#include <sched.h>

#include "engine/seam/clock.h"
#include "planner/status.h"

/* Plan `next` reuses the slot of plan next - slot_count, so the ring is full until the device has
 * consumed that older plan. */
static int is_full(const fig_ring *ring) {
    return ring->next - fig_ring_consumed(ring) > ring->slot_count;
}

/* Waits for a free slot. Returns 0 if none becomes free within wait_us. The loop yields the core
 * after each check, because on the host device the thread that frees slots may need the core. */
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
        return fig_fail(FIG_BUSY, "all %u slots are in flight", ring->slot_count);
    uint64_t index = (ring->next - 1) % ring->slot_count;
    *slot = ring->slots + (size_t)index * ring->slot_bytes;
    return FIG_OK;
}
