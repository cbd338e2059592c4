/* lender.h: takes memory from the caller's allocator instead of the device's.
 *
 * This file calls the caller's allocator and checks its answer; the device zeroes the memory.
 * Invariant: each block that a caller lent goes back to that caller exactly once. */
#ifndef FIG_ENGINE_LENDER_H
#define FIG_ENGINE_LENDER_H

#include "engine/seam/device.h"

enum { FIG_LENDER_ALIGNMENT = 256 };

typedef struct fig_lender {
    fig_memory_callback allocate, release; /* NULL: the caller lends no memory */
    void *user;
} fig_lender;

/* Returns FIG_INVALID if only one of the two callbacks is given. */
fig_status fig_lender_init(fig_lender *lender, const fig_engine_options *options);
/* Takes a block from the caller. *block must be zeroed before the call. Returns FIG_NOMEM if the
 * caller refused, and FIG_INVALID if the caller's memory is NULL or not aligned. */
fig_status fig_lender_take(const fig_lender *lender, fig_block *block, fig_memory kind,
                           size_t bytes);
/* Gives the block back to the caller and zeroes *block. For a zeroed block this does nothing. */
void fig_lender_give_back(const fig_lender *lender, fig_block *block);

#endif
