/* fetch.c: take the next plan out of the ring.
 *
 * The device's end of the plan ring; engine/ring.c is the host's. Invariant: a plan is copied whole
 * or not at all, and what follows in the graph never sees one that was planned for another step or
 * bucket. */
#include "kernels/fetch.h"

#include <string.h>

#include "kernels/twins.h"

enum { THREADS = 128 };

/* Partner: the acquire in fig_ring_missed. Only the device writes the word, one kernel at a time.
 *  */
void fig_fetch_miss(fig_fetch_words *words) {
    __atomic_store_n(&words->missed, words->missed + 1, __ATOMIC_RELEASE);
}

void fig_fetch_shape(const void *params, fig_launch_shape *shape) {
    (void)params;
    *shape = (fig_launch_shape){.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
}

/* 1: the slot holds plan number `next`, and this graph can run it. A plan for another bucket stays
 * where it is: the launch that it was staged for is still to come, and it is this one that nobody
 * staged. */
static int is_ours(const fig_fetch_params *p, const fig_plan_head *slot, uint64_t next) {
    /* Partner: the release in fig_ring_publish. Only a slot that has been published is read on. */
    if (__atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE) != next) return 0;
    return slot->bucket == p->bucket && slot->bytes >= sizeof *slot &&
           slot->bytes <= p->slot_bytes && slot->bytes <= p->plan_bytes;
}

void fig_fetch_twin(const void *params, const uint32_t block[3]) {
    (void)block;
    const fig_fetch_params *p = params;
    uint64_t next = *p->cursor + 1;
    uint64_t index = (next - 1) % p->slot_count;
    const uint8_t *bytes = p->ring + index * p->slot_bytes;
    const fig_plan_head *slot = (const fig_plan_head *)bytes;
    if (!is_ours(p, slot, next)) {
        memset(p->plan, 0, sizeof(fig_plan_head));
        fig_fetch_miss(p->words);
        return;
    }
    memcpy(p->plan, slot, slot->bytes);
    *p->cursor = next;
    /* Partner: the acquire in fig_ring_consumed. The slot has been read before it is reused. */
    __atomic_store_n(&p->words->consumed, next, __ATOMIC_RELEASE);
}
