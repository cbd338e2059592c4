/* cuda_peers.h: the routes of one rank to the GPUs of all ranks.
 *
 * Owns the inbox that other ranks write into, the inboxes that this rank has opened, the NCCL
 * communicator if NCCL carries messages, and the words that a kernel writes when it stops waiting
 * (kernels/common/peers.h). Invariant: every rank can reach the memory that fig_cuda_peers_open()
 * hands out, and that memory was cleared before any rank could write into it. Either all ranks have
 * such memory, or none does.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_PEERS_H
#define FIG_ENGINE_CUDA_PEERS_H

#include "engine/cuda/cuda_nccl.h"
#include "engine/seam/device.h"

typedef struct fig_cuda_peers {
    struct fig_ranks *ranks;      /* NULL: the only rank */
    const uint32_t *exec_buckets; /* [exec_count] the bucket of each exec, as in fig_dev_meeting */
    uint32_t exec_count;
    fig_cu_address block; /* the device's fig_peers; 0: not open */
    fig_cu_address inbox;
    int is_told;                            /* 1: other ranks may have the inbox's address */
    fig_cu_address opened[FIG_PEERS_LIMIT]; /* inboxes of other processes; 0: not opened */
    fig_peers_words *words;
    fig_cuda_nccl nccl; /* closed if NCCL carries no message */
    uint32_t routes;    /* bits FIG_ROUTE_*: the routes that messages may take */
    /* the last graph with NCCL collectives that was found running */
    uint32_t seen;
    int64_t seen_ns; /* when that graph was first found running */
    uint64_t slot_bytes;
    int64_t timeout_us;
    int32_t rank, count;
    int watched; /* 1: the group sets words->lost */
    int told;    /* 1: the fault in `words` was reported */
} fig_cuda_peers;

/* fig_cuda_peers_open() fills a zeroed struct. It returns FIG_UNSUPPORTED on every rank if NCCL is
 * missing and the GPUs cannot reach each other, or if NCCL is missing and there are too many GPUs.
 * fig_cuda_peers_close() also accepts a zeroed or half-open struct; no work of this rank may be
 * running when it is called. Other ranks may still write into the inbox, so it is not freed once
 * they have its address. */
fig_status fig_cuda_peers_open(fig_cuda_peers *peers, fig_cuda_gpu *gpu,
                               const fig_dev_meeting *meeting, fig_dev_met *met);
void fig_cuda_peers_close(fig_cuda_peers *peers, fig_cuda_gpu *gpu);

/* A thread that waits for a stream calls this repeatedly, so that no NCCL kernel waits forever. */
void fig_cuda_peers_attend(fig_cuda_peers *peers);

/* Returns the status that the next fig_cuda_peers_check() will return, without a message. */
fig_status fig_cuda_peers_look(const fig_cuda_peers *peers);
/* Reports why a kernel of this rank stopped waiting. The first report gives the cause; later calls
 * return FIG_LOST. If no kernel has stopped waiting, the function reads only one word. */
fig_status fig_cuda_peers_check(fig_cuda_peers *peers);

#endif
