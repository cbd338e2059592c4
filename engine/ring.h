/* ring.h: the plan ring, the host's end of it.
 *
 *     words: consumed, missed        written by the device
 *     slot 0 [head][rows][split]     written by the host, read by the device
 *     slot 1 [head][rows][split]
 *     ...
 *
 * Plan number n, from 1, goes to slot (n - 1) % slot_count. Owns which slot is free and the order
 * in which a plan becomes visible; the memory is the engine's, a plan's bytes are
 * planner/plan.c's, and the device's end is kernels/fetch.c. Invariant: a slot's bytes never
 * change between the moment its number is published and the moment the device says that it is
 * consumed. */
#ifndef FIG_ENGINE_RING_H
#define FIG_ENGINE_RING_H

#include "kernels/params.h"

typedef struct fig_ring {
    uint8_t *slots;               /* [slot_count][slot_bytes], 16-byte aligned */
    const fig_fetch_words *words; /* the device's to write */
    uint32_t slot_count, slot_bytes;
    uint64_t next; /* number of the next plan published */
} fig_ring;

/* Number of the last plan that left its slot. Partner: the release in fig_fetch_twin, which comes
 * after its reading of the slot, so that what the host writes next comes after it too. */
static inline uint64_t fig_ring_consumed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->consumed, __ATOMIC_ACQUIRE);
}

/* Replays that found no plan. Partner: the release in fig_fetch_twin. */
static inline uint64_t fig_ring_missed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->missed, __ATOMIC_ACQUIRE);
}

/* Makes the claimed slot the device's. Partner: the acquire in fig_fetch_twin, which reads on only
 * where it finds the number it waits for, and then finds the whole plan. */
static inline void fig_ring_publish(fig_ring *ring, uint8_t *slot) {
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    __atomic_store_n(&head->sequence, ring->next, __ATOMIC_RELEASE);
    ring->next++;
}

/* Unpublishes the newest plan, for which nothing was or will be launched: its slot is claimed next,
 * and no replay finds it there. Partner: the acquire in fig_fetch_twin. */
static inline void fig_ring_take_back(fig_ring *ring) {
    assert(ring->next > fig_ring_consumed(ring) + 1);
    ring->next--;
    uint64_t index = (ring->next - 1) % ring->slot_count;
    fig_plan_head *head = (fig_plan_head *)(void *)(ring->slots + index * ring->slot_bytes);
    __atomic_store_n(&head->sequence, 0, __ATOMIC_RELEASE);
}

/* slots and words: zeroed memory that outlives the ring. */
void fig_ring_init(fig_ring *ring, uint8_t *slots, const fig_fetch_words *words,
                   uint32_t slot_count, uint32_t slot_bytes);

/* The slot of the next plan, the same one until it is published; *slot is NULL on failure.
 * FIG_BUSY: every slot is in flight, and was for wait_us. */
fig_status fig_ring_claim(fig_ring *ring, int32_t wait_us, uint8_t **slot);

#endif
