/* ring.h: the host's side of the plan ring.
 *
 *     words: consumed, replays, ..   written by the device
 *     slot 0 [head][rows][split]..   written by the host, read by the device
 *     slot 1 [head][rows][split]..
 *     ...
 *
 * Plans are numbered from 1; plan n goes to slot (n - 1) % slot_count. This file decides which slot
 * is free, and makes a plan's bytes visible in the right order. The engine owns the memory,
 * planner/plans/plan.c writes the bytes of a plan, and kernels/step/fetch.c is the device's side.
 * Invariant: the bytes of a slot never change between the moment when the host publishes its plan
 * and the moment when the device reports that plan as consumed. */
#ifndef FIG_ENGINE_RING_H
#define FIG_ENGINE_RING_H

#include "kernels/common/params.h"

typedef struct fig_ring {
    uint8_t *slots;               /* [slot_count][slot_bytes], 16-byte aligned */
    const fig_fetch_words *words; /* only the device writes them */
    uint32_t slot_count, slot_bytes;
    uint64_t next; /* number of the next plan to publish */
} fig_ring;

/* Returns the number of the last plan that the device has copied out of its slot. Partner: the
 * release in kernels/step/fetch.c. The device does that release after it has read the slot, so the
 * host's next write to the slot follows the device's read. */
static inline uint64_t fig_ring_consumed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->consumed, __ATOMIC_ACQUIRE);
}

/* Returns the number of launches that found a plan, as the device last reported it. Partner: the
 * release in kernels/step/fetch.c. */
static inline uint64_t fig_ring_replays(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->replays, __ATOMIC_ACQUIRE);
}

/* fig_ring_missed() returns the number of launches that found no plan. fig_ring_torn() returns the
 * number of those that found a damaged plan, and fig_ring_late() the number of those whose plan was
 * staged before the host knew of such damage. Partner: the releases in kernels/step/fetch.c. */
static inline uint64_t fig_ring_missed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->missed, __ATOMIC_ACQUIRE);
}
static inline uint64_t fig_ring_torn(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->torn, __ATOMIC_ACQUIRE);
}
static inline uint64_t fig_ring_late(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->late, __ATOMIC_ACQUIRE);
}

/* Prefetches the beginning of the next slot into this core's cache, which lost it when the device
 * read the slot. Later writes to the slot then do not wait for memory. bytes: the size of the last
 * plan. Only a plan of more than FIG_RING_WARM_BYTES has strips of many rows. memcpy() copies them
 * without reading the slot, and prefetching them takes longer than it saves: for 146 KB, 5.5 us to
 * save 2.5. */
enum { FIG_RING_WARM_BYTES = 8192 };
static inline void fig_ring_warm(const fig_ring *ring, uint32_t bytes) {
    const uint8_t *slot = ring->slots + (ring->next - 1) % ring->slot_count * ring->slot_bytes;
    if (bytes > FIG_RING_WARM_BYTES) bytes = FIG_RING_WARM_BYTES;
    for (uint32_t i = 0; i < bytes && i < ring->slot_bytes; i += 64)
        __builtin_prefetch(slot + i, 1);
}

/* Publishes the claimed slot to the device; the plan occupies its first `bytes` bytes. Partner: the
 * acquire in kernels/step/fetch.c. The device reads past the tag only if the tag holds the number
 * of the plan that the device waits for; it then sees the whole plan. */
static inline void fig_ring_publish(fig_ring *ring, uint8_t *slot, uint32_t bytes) {
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    __atomic_store_n(&head->tag, fig_plan_tag(ring->next, bytes), __ATOMIC_RELEASE);
    ring->next++;
}

/* Unpublishes the newest plan, for which nothing may have been launched. The next claim gets the
 * plan's slot, and no launch finds the plan there. The device may already have prefetched the plan,
 * so the caller must also make the device drop it. Returns the slot, or NULL if a launch has
 * fetched the plan or no plan is published. Partner: the acquire in kernels/step/fetch.c. */
static inline uint8_t *fig_ring_take_back(fig_ring *ring) {
    if (ring->next <= fig_ring_consumed(ring) + 1) return NULL;
    ring->next--;
    uint8_t *slot = ring->slots + (ring->next - 1) % ring->slot_count * ring->slot_bytes;
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    __atomic_store_n(&head->tag, 0, __ATOMIC_RELEASE);
    return slot;
}

/* Sets up the ring. slots and words point to zeroed memory that outlives the ring. */
void fig_ring_init(fig_ring *ring, uint8_t *slots, const fig_fetch_words *words,
                   uint32_t slot_count, uint32_t slot_bytes);

/* Sets *slot to the slot of the next plan; repeated calls give the same slot until
 * fig_ring_publish(). *slot is NULL on failure. Returns FIG_BUSY if every slot was in flight for
 * the whole of wait_us. */
fig_status fig_ring_claim(fig_ring *ring, int32_t wait_us, uint8_t **slot);

#endif
