/* fake_nccl.h: an NCCL of two ranks of which one is there, to stand behind engine/cuda/nccl_api.h.
 *
 * What a collective brings of the other rank is zeros. Calls that begin something are found under
 * way for as many looks as the test wants. Invariant: a collective is put on a stream as one piece
 * of work, and onto a stream that captures only where every size up to its own came before. */
#ifndef FIG_TESTS_SUPPORT_FAKE_NCCL_H
#define FIG_TESTS_SUPPORT_FAKE_NCCL_H

#include "engine/cuda/nccl_api.h"

typedef struct fig_fake_nccl {
    /* As the test wants it: */
    int looks;             /* that find a call under way; below 0: for ever */
    int graphs;            /* that have its work, as long as which an abort waits */
    const char *fail_name; /* "ncclAllReduce": what every call of that name returns */
    fig_nccl_result fail_with;

    /* What it has seen; the first three on a thread that ends one, too: */
    int held; /* communicators */
    int aborted, destroyed;
    int finalized;
    int eager, captured; /* collectives, of each kind */
    int unconnected;     /* those captured whose size had not been tried */
    size_t tried_bytes;  /* the greatest */
} fig_fake_nccl;

/* As version 2.28.3, on which all goes well. */
fig_fake_nccl *fig_fake_nccl_install(void);
void fig_fake_nccl_remove(void);

#endif
