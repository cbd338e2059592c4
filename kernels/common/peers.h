/* peers.h: defines the state that a rank's collectives share with other ranks, in the memory of its
 * device.
 *
 * On a GPU each rank has an inbox. All other ranks write into it over NVLink, and only its owner
 * reads:
 *
 *     inbox  [2 parities][ranks: the writer][slot]        slot  [4 packets][packets ...]
 *     packet [4 bytes][tag][4 bytes][tag]
 *
 * A packet has 16 bytes, 8 of them data. Each tag names the epoch of the 4 bytes beside it and
 * arrives together with them. A reader therefore polls the packet itself; there is no other
 * signal, and nothing is cleared. The first packets of a slot are the writer's fig_peers_place.
 * All collectives of a rank, of any size, share one epoch counter. Each collective adds one to it,
 * and uses the half of the inbox with the epoch's parity. That half is free by then, because a
 * rank in epoch e has received from every other rank in e - 1, so all of them have finished e - 2.
 *
 * On the host, `parts` points to each rank's contribution to an exchange while a reference kernel
 * adds the contributions up. Invariant: a kernel always writes epochs, `aborted`, `begun` and
 * `ended`; it writes other fields only when it stops waiting. nvcc reads this file, too. */
#ifndef FIG_KERNELS_PEERS_H
#define FIG_KERNELS_PEERS_H

#include <stdint.h>

enum {
    FIG_PEERS_LIMIT = 8,      /* ranks whose GPUs write into each other's memory */
    FIG_PEERS_BLOCKS = 128,   /* blocks that move messages */
    FIG_PEERS_TEAM_LIMIT = 8, /* blocks that share a row, if it is normed */
    /* blocks of a launch: those that move messages, and a team that compares places; each block
     * counts the epoch itself */
    FIG_PEERS_GRID = FIG_PEERS_BLOCKS + FIG_PEERS_TEAM_LIMIT,
    FIG_PEERS_PACKET_BYTES = 16, /* half of them data */
    FIG_PEERS_HEAD_BYTES = 64    /* head of a slot, before the packets of its message */
};

/* A rank's place in its work. All ranks must agree on it before their numbers mean anything. */
typedef struct fig_peers_place {
    uint32_t step, exec, node, rows;
} fig_peers_place;

/* The reason why a rank stopped waiting. The first block to stop reports it to the host, in pinned
 * memory. */
typedef enum fig_peers_verdict {
    FIG_PEERS_FINE = 0,
    FIG_PEERS_APART, /* `rank` is at another place: see fields mine and theirs */
    FIG_PEERS_LATE,  /* `rank` did not come in time */
    FIG_PEERS_LOST   /* the group was lost meanwhile */
} fig_peers_verdict;
typedef struct fig_peers_words {
    uint32_t lost; /* set by the host: stop waiting */
    uint32_t verdict, rank;
    uint32_t begun, ended; /* graphs with NCCL collectives that have begun, ended */
    uint32_t reserved[3];
    fig_peers_place mine, theirs;
} fig_peers_words;

typedef struct fig_peers {
    /* [count] inbox of each rank, as this rank's device addresses it */
    uint8_t *inboxes[FIG_PEERS_LIMIT];
    fig_peers_words *words;
    const void *const *parts; /* [count] on the host; NULL on a GPU */
    uint64_t timeout_ns;
    uint64_t slot_bytes; /* the head included */
    int32_t rank, count;
    uint32_t aborted; /* 1: no block waits any longer */
    uint32_t begun;   /* as in fig_peers_words */
    uint32_t epochs[FIG_PEERS_GRID];
} fig_peers;

/* Returns the bytes of an inbox. An inbox starts as zeros, so no epoch's tag is 0. */
static inline uint64_t fig_peers_inbox_bytes(int32_t count, uint64_t message_bytes) {
    return 2 * (uint64_t)count * (FIG_PEERS_HEAD_BYTES + 2 * message_bytes);
}

#endif
