/* host_peers.h: a host rank's collectives, which meet the other ranks through their carrier.
 *
 * Invariant: when meet returns FIG_OK, what every rank gave lies where the twin of the launch looks
 * for it, until the next meet. */
#ifndef FIG_ENGINE_HOST_HOST_PEERS_H
#define FIG_ENGINE_HOST_HOST_PEERS_H

#include "engine/device.h"

typedef struct fig_host_peers fig_host_peers; /* begins with the fig_peers that params point to */

/* Collective where there are ranks. close takes NULL and waits for nobody. */
fig_status fig_host_peers_open(fig_host_peers **peers, const fig_dev_meeting *meeting,
                               fig_dev_met *met);
void fig_host_peers_close(fig_host_peers *peers);

/* For a launch of `op`, a collective, with its params; on the stream's thread. */
fig_status fig_host_peers_meet(fig_op op, const void *params);
/* In its place, where this rank cannot go on: the others need not wait for it. */
void fig_host_peers_miss(fig_op op, const void *params, const char *reason);

#endif
