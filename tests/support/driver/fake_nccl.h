/* fake_nccl.h: an NCCL with two ranks, only one of which exists. It replaces the table of
 * nccl_api.h.
 *
 * The other rank contributes zeros to every collective. A test decides how many queries find an
 * operation still running. Invariant: a collective is enqueued as one piece of work. In a capture,
 * a collective counts as connected only if one of at least its size has run before. */
#ifndef FIG_TESTS_SUPPORT_FAKE_NCCL_H
#define FIG_TESTS_SUPPORT_FAKE_NCCL_H

#include "engine/driver/nccl_api.h"

typedef struct fig_fake_nccl {
    /* Set by the test: */
    int looks; /* how many queries find an operation running; below 0: all */
    /* how many graphs hold NCCL's work; an abort waits until there are none */
    int graphs;
    /* every call of this name, "ncclAllReduce" for example, returns fail_with */
    const char *fail_name;
    fig_nccl_result fail_with;

    /* What the fake has counted. The thread that ends a communicator changes the first three
     * too. */
    int held; /* communicators */
    int aborted, destroyed;
    int finalized;
    int eager, captured; /* how many of each kind */
    int unconnected;     /* captured collectives for whose size none had run before */
    size_t tried_bytes;  /* the largest size that has run */
} fig_fake_nccl;

/* Installs version 2.28.3 without faults. */
fig_fake_nccl *fig_fake_nccl_install(void);
void fig_fake_nccl_remove(void);

#endif
