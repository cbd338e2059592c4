/* ring.h: the plan ring, the host's end of it.
 *
 *     words: consumed, replays, ..   written by the device
 *     slot 0 [head][rows][split]..   written by the host, read by the device
 *     slot 1 [head][rows][split]..
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

/* Number of the last plan that left its slot. Partner: the release in kernels/fetch.c, which comes
 * after its reading of the slot, so that what the host writes next comes after it too. */
static inline uint64_t fig_ring_consumed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->consumed, __ATOMIC_ACQUIRE);
}

/* Launches that ran under a plan, as far as the device has told. Partner: as above. */
static inline uint64_t fig_ring_replays(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->replays, __ATOMIC_ACQUIRE);
}

/* Launches that found no plan, and those of them whose plan was not whole. Partner: the releases in
 * kernels/fetch.c. */
static inline uint64_t fig_ring_missed(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->missed, __ATOMIC_ACQUIRE);
}
static inline uint64_t fig_ring_torn(const fig_ring *ring) {
    return __atomic_load_n(&ring->words->torn, __ATOMIC_ACQUIRE);
}

/* Begins to bring so many bytes of the next slot into the core's own cache, which the device has
 * read since: what is written there later need not wait for them. */
static inline void fig_ring_warm(const fig_ring *ring, uint32_t bytes) {
    const uint8_t *slot = ring->slots + (ring->next - 1) % ring->slot_count * ring->slot_bytes;
    for (uint32_t i = 0; i < bytes && i < ring->slot_bytes; i += 64)
        __builtin_prefetch(slot + i, 1);
}

/* Makes the claimed slot the device's, of which `bytes` are used. Partner: the acquire in
 * kernels/fetch.c, which reads on only where it finds the number it waits for, and then finds the
 * whole plan. */
static inline void fig_ring_publish(fig_ring *ring, uint8_t *slot, uint32_t bytes) {
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    __atomic_store_n(&head->tag, fig_plan_tag(ring->next, bytes), __ATOMIC_RELEASE);
    ring->next++;
}

/* Unpublishes the newest plan, for which nothing was or will be launched: its slot is claimed next,
 * and no launch finds it there. One that looked ahead may have taken it, which is why the device is
 * to be told too. Returns the slot; NULL: a launch has fetched the plan, or there is none. Partner:
 * the acquire in kernels/fetch.c. */
static inline uint8_t *fig_ring_take_back(fig_ring *ring) {
    if (ring->next <= fig_ring_consumed(ring) + 1) return NULL;
    ring->next--;
    uint8_t *slot = ring->slots + (ring->next - 1) % ring->slot_count * ring->slot_bytes;
    fig_plan_head *head = (fig_plan_head *)(void *)slot;
    __atomic_store_n(&head->tag, 0, __ATOMIC_RELEASE);
    return slot;
}

/* slots and words: zeroed memory that outlives the ring. */
void fig_ring_init(fig_ring *ring, uint8_t *slots, const fig_fetch_words *words,
                   uint32_t slot_count, uint32_t slot_bytes);

/* The slot of the next plan, the same one until it is published; *slot is NULL on failure.
 * FIG_BUSY: every slot is in flight, and was for wait_us. */
fig_status fig_ring_claim(fig_ring *ring, int32_t wait_us, uint8_t **slot);

#endif
