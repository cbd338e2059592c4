/* cuda_nccl.h: one rank's NCCL communicator, and the work that it puts on streams.
 *
 * Owns the communicator and what stands around the collectives of a graph that NCCL carries: NCCL
 * itself never stops waiting, so who waits for a stream looks whether the graph at hand has gone
 * on, and aborts the communicator where it has not. Invariant: no call into NCCL is left running
 * when a function returns, and each ends in the group's time.
 *
 * All: the context is entered. */
#ifndef FIG_ENGINE_CUDA_CUDA_NCCL_H
#define FIG_ENGINE_CUDA_CUDA_NCCL_H

#include "engine/cuda/cuda_work.h"
#include "engine/cuda/nccl_api.h"

typedef struct fig_cuda_nccl {
    const fig_nccl_api *api;
    fig_nccl_comm comm;                  /* NULL: closed, or aborted */
    struct fig_cuda_nccl_ending *ending; /* of one that was; NULL: none is under way */
    struct fig_ranks *ranks; /* the group: where it is lost nothing of NCCL's is waited for */
    int64_t timeout_us;
    int32_t rank, count;
    fig_cu_address places; /* [count] fig_peers_place, one of each rank */
    fig_cu_address parts;  /* [count][byte_limit] what an all-gather brings */
    uint64_t byte_limit;
} fig_cuda_nccl;

typedef struct fig_cuda_nccl_wish {
    struct fig_ranks *ranks;
    int32_t rank, count;
    int64_t timeout_us;
    uint64_t byte_limit; /* of a rank's largest message */
} fig_cuda_nccl_wish;

/* Its memory, into a zeroed struct. */
fig_status fig_cuda_nccl_init(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu,
                              const fig_cuda_nccl_wish *wish);
/* Collective, once every rank has its memory. Every size up to the limit is tried once, since NCCL
 * connects ranks where a size first needs it, which no capture would survive. close takes what was
 * never opened and what is half-open, when no graph has its work any more. */
fig_status fig_cuda_nccl_open(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu);
void fig_cuda_nccl_close(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu);
/* What runs on the device stops waiting; from then on there is no communicator. */
void fig_cuda_nccl_abort(fig_cuda_nccl *nccl);

/* What a collective is captured with. */
typedef struct fig_cuda_nccl_job {
    fig_cuda_nccl *nccl;
    fig_cuda_gpu *gpu;
    fig_cuda_kernels *kernels;
    const fig_dev_launch *launch; /* of the end: NULL */
} fig_cuda_nccl_job;

/* Adds a collective to a graph, as its launch says. The first of a graph tells the other ranks
 * where this one is: all of a graph are of one step. */
fig_status fig_cuda_nccl_capture(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                                 fig_dev_after after);
/* Once nothing is added to a graph any more, any number of times: what says that its collectives,
 * if there are any, are over. peers: the device's fig_peers. */
fig_status fig_cuda_nccl_end(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                             fig_cu_address peers);

#endif
