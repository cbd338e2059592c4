/* host_peers.h: exchanges the messages of a host rank's collectives with the other ranks.
 *
 * Invariant: when fig_host_peers_meet() returns FIG_OK, the message of every rank lies where the
 * launch's reference kernel reads it. The message stays there until the next
 * fig_host_peers_meet(). */
#ifndef FIG_ENGINE_HOST_HOST_PEERS_H
#define FIG_ENGINE_HOST_HOST_PEERS_H

#include "engine/seam/device.h"

typedef struct fig_host_peers fig_host_peers; /* begins with the fig_peers that params point to */

/* If there is a group, all of its ranks must call fig_host_peers_open(). fig_host_peers_close()
 * accepts NULL and waits for no rank. */
fig_status fig_host_peers_open(fig_host_peers **peers, const fig_dev_meeting *meeting,
                               fig_dev_met *met);
void fig_host_peers_close(fig_host_peers *peers);

/* Exchanges the messages of one launch of the collective `op`. The stream's thread calls this
 * function before it runs the launch. */
fig_status fig_host_peers_meet(fig_op op, const void *params);
/* Aborts the group, so that the other ranks do not wait. The stream's thread calls this function
 * instead of fig_host_peers_meet() if this rank cannot go on. */
void fig_host_peers_miss(fig_op op, const void *params, const char *reason);

#endif
