/* peers.h: what a rank's collectives know of the other ranks, in memory of its device.
 *
 * On a GPU each rank has an inbox that all others write into, over NVLink, and it alone reads:
 *
 *     inbox  [2 parities][ranks: who writes][slot]        slot  [4 packets][packets ...]
 *     packet [4 bytes][tag][4 bytes][tag]
 *
 * A packet is 16 bytes of which 8 are meant; the two tags say for which epoch, and arrive with the
 * halves that they stand beside, so a reader spins on the packet itself: nothing else tells it that
 * a message is there, and nothing is cleared. The first packets of a slot are the writer's
 * fig_peers_place. There is one epoch for all collectives of a rank, whatever their sizes: each
 * counts it up by one and uses the half of the inbox of its parity. A half is free again by then: a
 * rank that is in epoch e has heard from every other in e - 1, who thus are done with e - 2.
 *
 * On the host parts say where what each rank gave to an exchange lies while a twin adds it up.
 * Invariant: of what is here, a kernel writes epochs, `aborted`, `begun` and `ended`, and the rest
 * only where it stops waiting. Read by nvcc. */
#ifndef FIG_KERNELS_PEERS_H
#define FIG_KERNELS_PEERS_H

#include <stdint.h>

enum {
    FIG_PEERS_LIMIT = 8,      /* ranks whose GPUs write into one another */
    FIG_PEERS_BLOCKS = 128,   /* that move messages */
    FIG_PEERS_TEAM_LIMIT = 8, /* of them that share a row, where it is normed */
    FIG_PEERS_GRID =          /* with a team that speaks: blocks of every launch, since each */
    FIG_PEERS_BLOCKS + FIG_PEERS_TEAM_LIMIT, /* counts the epoch for itself */
    FIG_PEERS_PACKET_BYTES = 16,             /* of which half are meant */
    FIG_PEERS_HEAD_BYTES = 64                /* of a slot, before the packets of its message */
};

/* Where in its work a rank is: what all must agree on before their numbers mean anything. */
typedef struct fig_peers_place {
    uint32_t step, exec, node, rows;
} fig_peers_place;

/* Told to the host, in pinned memory, by who stops waiting first. */
typedef enum fig_peers_verdict {
    FIG_PEERS_FINE = 0,
    FIG_PEERS_APART, /* `rank` is elsewhere: mine and theirs differ */
    FIG_PEERS_LATE,  /* `rank` did not come in time */
    FIG_PEERS_LOST   /* the group was lost meanwhile */
} fig_peers_verdict;
typedef struct fig_peers_words {
    uint32_t lost; /* the host's to set: nobody need wait any more */
    uint32_t verdict, rank;
    uint32_t begun, ended; /* graphs with collectives that NCCL carries, so far */
    uint32_t reserved[3];
    fig_peers_place mine, theirs;
} fig_peers_words;

typedef struct fig_peers {
    uint8_t *inboxes[FIG_PEERS_LIMIT]; /* [count] of each rank, as this one's device reaches it */
    fig_peers_words *words;
    const void *const *parts; /* [count] the host's; NULL on a GPU */
    uint64_t timeout_ns;
    uint64_t slot_bytes; /* the head included */
    int32_t rank, count;
    uint32_t aborted; /* 1: nothing is waited for any more */
    uint32_t begun;   /* as in the words */
    uint32_t epochs[FIG_PEERS_GRID];
} fig_peers;

/* The tag of an epoch is itself, never 0: that is what an inbox holds at first. */
static inline uint64_t fig_peers_inbox_bytes(int32_t count, uint64_t message_bytes) {
    return 2 * (uint64_t)count * (FIG_PEERS_HEAD_BYTES + 2 * message_bytes);
}

#endif
