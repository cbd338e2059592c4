/* exec_bare.h: an exec's nodes alone, under whatever plan the device holds, and kernels that read
 * memory: what is timed.
 *
 * There is no fetch and no look ahead. What is made is the caller's to destroy once it has ended.
 * Invariant: what fails half-way leaves nothing behind. */
#ifndef FIG_ENGINE_EXEC_BARE_H
#define FIG_ENGINE_EXEC_BARE_H

#include "engine/execs.h"

/* Launches that each read a piece of memory, one after another: the next piece each time, and the
 * first again where none is left. */
typedef struct fig_exec_reading {
    const uint8_t *from;
    uint64_t *folded;          /* device memory: changed by exclusive or with every word */
    size_t bytes, piece_bytes; /* a piece is a multiple of 16, of 64 GB at most; 0: launches do
                                  nothing */
    uint32_t blocks, launches;
    int is_plain; /* 1: none begins before the one before has ended */
} fig_exec_reading;
fig_status fig_exec_bare_readings(const fig_execs *execs, const fig_exec_reading *reading,
                                  fig_dev_exec **exec);

typedef struct fig_exec_bare {
    uint32_t exec;   /* it is ready */
    uint32_t copies; /* one after another, each as a launch of its own would come after the one
                        before */
    int serial;      /* 1: within a copy too each launch comes after the one before it */
    /* Not NULL: before each node, of one copy and in order, stands one of those launches, and no
     * node begins before it has ended; nodes that find none left are left out. */
    const fig_exec_reading *spacer;
    int spacers_only; /* 1: and so are all others */
} fig_exec_bare;
fig_status fig_exec_bare_nodes(const fig_execs *execs, const fig_exec_bare *bare,
                               fig_dev_exec **exec);

#endif
