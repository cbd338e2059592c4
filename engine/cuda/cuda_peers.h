/* cuda_peers.h: the GPUs of all ranks as one of them reaches them.
 *
 * Owns the inbox that other ranks write into, what this rank has opened of theirs, the communicator
 * of NCCL's where that carries messages, and the words that a kernel leaves when it stops waiting
 * (kernels/peers.h). Invariant: what open hands out is
 * reached by every rank and was cleared before any could write into it; all ranks have it, or none.
 *
 * All: the context is entered. */
#ifndef FIG_ENGINE_CUDA_PEERS_H
#define FIG_ENGINE_CUDA_PEERS_H

#include "engine/cuda/cuda_nccl.h"
#include "engine/device.h"

typedef struct fig_cuda_peers {
    struct fig_ranks *ranks; /* NULL: alone */
    const uint32_t *exec_buckets; /* [exec_count] */
    uint32_t exec_count;
    fig_cu_address block; /* the device's fig_peers; 0: not open */
    fig_cu_address inbox;
    fig_cu_address opened[FIG_PEERS_LIMIT]; /* inboxes of other processes; 0: none */
    fig_peers_words *words;
    fig_cuda_nccl nccl; /* closed where it carries nothing */
    uint32_t routes;    /* FIG_ROUTE_* */
    uint32_t seen;      /* the graph with collectives of NCCL's that was last found under way */
    int64_t seen_ns;    /* since when */
    uint64_t slot_bytes;
    int64_t timeout_us;
    int32_t rank, count;
    int watched; /* 1: the group sets words->lost */
    int told;    /* 1: what the words say was reported */
} fig_cuda_peers;

/* Into a zeroed struct; close takes that and a half-open one, when nothing runs any more.
 * FIG_UNSUPPORTED: GPUs that cannot reach each other, or too many of them, without NCCL; on every
 * rank. */
fig_status fig_cuda_peers_open(fig_cuda_peers *peers, fig_cuda_gpu *gpu,
                               const fig_dev_meeting *meeting, fig_dev_met *met);
void fig_cuda_peers_close(fig_cuda_peers *peers, fig_cuda_gpu *gpu);

/* For who waits for a stream, again and again: nothing of NCCL's waits for ever. */
void fig_cuda_peers_attend(fig_cuda_peers *peers);

/* What stopped a kernel of this rank, once, and FIG_LOST from then on. It reads one word. */
fig_status fig_cuda_peers_check(fig_cuda_peers *peers);

#endif
