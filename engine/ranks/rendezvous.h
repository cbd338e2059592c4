/* rendezvous.h: connects the ranks of a job: rank 0 listens, and all other ranks connect to it.
 *
 * Each side proves that it knows the job's secret before the other side trusts it. So a stranger
 * that connects to the port can neither join nor end a rendezvous. Rank 0 turns the stranger away
 * without sending anything that would help to test guesses of the secret. A job without a secret
 * uses a Unix socket that accepts only this user's processes, and they prove to which job they
 * belong. Invariant: on FIG_OK every rank is connected to rank 0, and all have the same count and
 * version. On failure no socket is left open, and rank 0 has sent the reason to every rank that
 * came. */
#ifndef FIG_ENGINE_RANKS_RENDEZVOUS_H
#define FIG_ENGINE_RANKS_RENDEZVOUS_H

#include "engine/ranks/environment.h"

/* links: [count]. On rank 0: a connection to each other rank; on the others: one connection, at
 * index 0. -1: none. */
fig_status fig_rendezvous_meet(const fig_environment *environment, int *links);

#endif
