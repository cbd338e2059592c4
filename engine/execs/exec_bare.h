/* exec_bare.h: makes execs for measuring times: a step's nodes without a fetch, or kernels that
 * only read memory.
 *
 * These execs have no fetch and no look ahead: the nodes run under the plan that the device holds.
 * The caller destroys an exec once the exec's launches have ended. Invariant: a function that fails
 * frees everything that it made. */
#ifndef FIG_ENGINE_EXEC_BARE_H
#define FIG_ENGINE_EXEC_BARE_H

#include "engine/execs/execs.h"

/* A series of launches that read memory piece by piece. Each launch reads the next piece; after the
 * last piece they start again with the first. */
typedef struct fig_exec_reading {
    const uint8_t *from;
    /* device memory; the launches XOR every word that they read into it */
    uint64_t *folded;
    /* bytes: size of the memory. piece_bytes: a multiple of 16, at most 64 GB; 0: the launches do
     * nothing. */
    size_t bytes, piece_bytes;
    uint32_t blocks, launches;
    int is_plain; /* 1: each launch begins only after the previous one has ended */
} fig_exec_reading;
fig_status fig_exec_bare_readings(const fig_execs *execs, const fig_exec_reading *reading,
                                  fig_dev_exec **exec);

typedef struct fig_exec_bare {
    uint32_t exec; /* index of a ready exec */
    /* Number of copies of the nodes. Each copy follows the previous copy as a separate launch
     * would. */
    uint32_t copies;
    int serial; /* 1: within a copy, each launch depends on the previous one */
    /* If not NULL, the exec has one copy of the nodes, in order, with one launch of the spacer
     * before each node. A node begins only after its spacer has ended. The exec has only as many
     * nodes as the spacer has launches. */
    const fig_exec_reading *spacer;
    int spacers_only; /* 1: the exec has the spacers but no nodes */
} fig_exec_bare;
fig_status fig_exec_bare_nodes(const fig_execs *execs, const fig_exec_bare *bare,
                               fig_dev_exec **exec);

#endif
