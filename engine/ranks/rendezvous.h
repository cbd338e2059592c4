/* rendezvous.h: how ranks find one another: rank 0 listens, all others connect to it.
 *
 * Each side proves that it knows the job's secret before it is believed anything, so a stranger on
 * the port can neither join nor end a rendezvous, only be turned away. Invariant: on FIG_OK every
 * rank is connected to rank 0, and all have the same count and version; on failure no socket is
 * left, and every rank that came has been told why. */
#ifndef FIG_ENGINE_RANKS_RENDEZVOUS_H
#define FIG_ENGINE_RANKS_RENDEZVOUS_H

#include "engine/ranks/environment.h"

/* links: [count]; on rank 0 a connection to each other rank, elsewhere one at 0; -1: none. */
fig_status fig_rendezvous_meet(const fig_environment *environment, int *links);

#endif
