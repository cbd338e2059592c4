/* fetch.h: gives other kernels access to the ring and its words.
 *
 * fetch.c implements these functions, so that a single file reads and writes every word that the
 * host and the device share. Invariant: a replay is counted as missed at most once. */
#ifndef FIG_KERNELS_FETCH_H
#define FIG_KERNELS_FETCH_H

#include "kernels/common/params.h"

/* Counts a replay that got zero rows. */
void fig_fetch_miss(fig_fetch_words *words);
/* Reports to the host the number of launches and the last plan whose slot is free. */
void fig_fetch_tell(const fig_fetch_state *state, fig_fetch_words *words);

typedef struct fig_fetch_ring {
    const uint8_t *slots; /* [slot_count][slot_bytes] */
    uint32_t slot_count, slot_bytes;
} fig_fetch_ring;
/* Returns the slot that holds plan `number`, and the number of its bytes to read. Returns NULL if
 * the plan is not published. */
const uint8_t *fig_fetch_find(const fig_fetch_ring *ring, uint64_t number, uint32_t *bytes);

/* Returns the slot for a prefetched plan. */
static inline uint8_t *fig_fetch_slot_ahead(fig_fetch_state *state) {
    return (uint8_t *)(state + 1);
}

#endif
