/* lender.h: memory that a caller lends to an engine, in place of what the device would allocate.
 *
 * Owns the call to the caller and the check of what comes back; that it is zeroed is the device's
 * business. Invariant: what was lent goes back to the same caller, once. */
#ifndef FIG_ENGINE_LENDER_H
#define FIG_ENGINE_LENDER_H

#include "engine/device.h"

enum { FIG_LENDER_ALIGNMENT = 256 };

typedef struct fig_lender {
    fig_memory_callback allocate, release; /* NULL: nobody lends */
    void *user;
} fig_lender;

/* FIG_INVALID: one of the two callbacks without the other. */
fig_status fig_lender_init(fig_lender *lender, const fig_engine_options *options);
/* Into a zeroed block; FIG_NOMEM: the caller refused, FIG_INVALID: what came is no such memory. */
fig_status fig_lender_take(const fig_lender *lender, fig_block *block, fig_memory kind,
                           size_t bytes);
/* Of a zeroed block nothing; it is zeroed then. */
void fig_lender_give_back(const fig_lender *lender, fig_block *block);

#endif
