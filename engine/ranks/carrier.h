/* carrier.h: exchanges bytes between the host ranks of one machine, over shared memory.
 *
 * All collectives use the same exchange: each rank writes its bytes, and reads the bytes of all
 * ranks in place. A reduction then adds them in the order of ranks; a gather copies them. A carrier
 * belongs to one engine: the engine's thread opens it, and the thread of the engine's stream uses
 * it. Invariant: an exchange returns FIG_OK on a rank only if all ranks were at the same step,
 * bucket and node, with the same number of bytes. Every wait ends, by the timeout at the latest. */
#ifndef FIG_ENGINE_RANKS_CARRIER_H
#define FIG_ENGINE_RANKS_CARRIER_H

#include "include/figraph_ranks.h"

typedef struct fig_carrier fig_carrier;

/* All ranks must call this, as with the collective calls of figraph_ranks.h. byte_limit: the
 * largest number of bytes that one rank gives to an exchange; it must be equal on all ranks. Memory
 * is used only as exchanges need it: at most 2 * byte_limit per rank. FIG_UNSUPPORTED: the ranks
 * are not all on one host. */
fig_status fig_carrier_open(fig_carrier **carrier, fig_ranks *ranks, size_t byte_limit);
/* Closes the carrier without waiting for other ranks. Accepts NULL. */
void fig_carrier_close(fig_carrier *carrier);

/* One rank's part of an exchange. */
typedef struct fig_carrier_call {
    int64_t step; /* the number of launches that the engine made before this one */
    int32_t bucket, node;
    const void *bytes; /* [count] this rank's bytes, read before return */
    size_t count;
} fig_carrier_call;

/* On every rank, the thread that uses the carrier must call this function. parts[r] are the bytes
 * of rank r, 64-byte aligned, and may be read until this carrier's next exchange. FIG_INVALID: two
 * ranks differ in a field of the call; the message on every rank names both ranks and the field.
 * FIG_TIMEOUT: the message names the ranks that did not come. FIG_LOST: the group is lost. After
 * any of these failures the group is lost. */
fig_status fig_carrier_exchange(fig_carrier *carrier, const fig_carrier_call *call,
                                const void **parts /* [ranks] */);

#endif
