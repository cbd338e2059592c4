/* carrier.h: bytes between the host ranks of one machine, over shared memory.
 *
 * One exchange is all that a collective needs: each rank lays its bytes down and sees those of all,
 * where they lie; who reduces adds them up in the order of ranks, who gathers copies them. A
 * carrier is one engine's: it is opened by the engine's thread and used by that of its stream.
 * Invariant: an exchange returns FIG_OK on no rank unless the ranks were at the same step, bucket
 * and node, with as many bytes; and every wait ends, in time or because the group is lost. */
#ifndef FIG_ENGINE_RANKS_CARRIER_H
#define FIG_ENGINE_RANKS_CARRIER_H

#include "include/figraph_ranks.h"

typedef struct fig_carrier fig_carrier;

/* Collective, as those of figraph_ranks.h. byte_limit: the most that one rank gives to an exchange,
 * the same on all. Memory is taken as it is used: 2 * byte_limit for each rank at most.
 * FIG_UNSUPPORTED: the ranks are not all on one host. */
fig_status fig_carrier_open(fig_carrier **carrier, fig_ranks *ranks, size_t byte_limit);
/* Nobody is waited for. Takes NULL. */
void fig_carrier_close(fig_carrier *carrier);

/* What travels with the bytes. */
typedef struct fig_carrier_call {
    int64_t step; /* launches of the engine before this one */
    int32_t bucket, node;
    const void *bytes; /* [count] this rank's; read before return */
    size_t count;
} fig_carrier_call;

/* Collective among the threads that have the carrier. parts[r] are the bytes of rank r, 64-byte
 * aligned, to be read until this carrier's next exchange. FIG_INVALID: two ranks differ in a field
 * of the call; every rank gets the sentence that names both and the field. FIG_TIMEOUT names the
 * ranks that did not come. FIG_LOST: the group is lost. After any of these the group is. */
fig_status fig_carrier_exchange(fig_carrier *carrier, const fig_carrier_call *call,
                                const void **parts /* [ranks] */);

#endif
