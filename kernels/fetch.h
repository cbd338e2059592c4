/* fetch.h: what kernels beside the fetch do with the ring and its words.
 *
 * Owned by fetch.c, so that every word that both sides see is read and written in one place.
 * Invariant: a replay is counted as missed at most once. */
#ifndef FIG_KERNELS_FETCH_H
#define FIG_KERNELS_FETCH_H

#include "kernels/params.h"

/* Counts a replay that became one of zero rows. */
void fig_fetch_miss(fig_fetch_words *words);
/* Tells the host which plan has left its slot and how many launches there were. */
void fig_fetch_tell(const fig_fetch_state *state, fig_fetch_words *words);

typedef struct fig_fetch_ring {
    const uint8_t *slots; /* [slot_count][slot_bytes] */
    uint32_t slot_count, slot_bytes;
} fig_fetch_ring;
/* The slot that holds plan `number`, and as many bytes as are to be read of it; NULL: nobody has
 * published it. */
const uint8_t *fig_fetch_find(const fig_fetch_ring *ring, uint64_t number, uint32_t *bytes);

/* Where a plan lies that was taken ahead. */
static inline uint8_t *fig_fetch_slot_ahead(fig_fetch_state *state) {
    return (uint8_t *)(state + 1);
}

#endif
