/* cuda_nccl.h: one rank's NCCL communicator, and its collectives in graphs.
 *
 * Owns the communicator. If NCCL carries a graph's collectives, this file also adds our own kernels
 * before and after them. An NCCL kernel waits for its peers without a timeout. So the thread that
 * waits for a stream checks whether the graph in flight makes progress; if not, the thread aborts
 * the communicator. Invariant: no call into NCCL is still running when a function returns, and each
 * call ends within the group's timeout.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_CUDA_NCCL_H
#define FIG_ENGINE_CUDA_CUDA_NCCL_H

#include <pthread.h>

#include "engine/graph/cuda_work.h"
#include "engine/driver/nccl_api.h"

typedef struct fig_cuda_nccl {
    const fig_nccl_api *api;
    /* Held by a thread that captures with the communicator, and by the thread that gives it up */
    pthread_mutex_t in_use;
    fig_nccl_comm comm; /* NULL: closed or aborted */
    /* a former communicator that a thread is still ending; NULL: none */
    struct fig_cuda_nccl_ending *ending;
    struct fig_ranks *ranks; /* when this group is lost, every wait for NCCL ends */
    int64_t timeout_us;
    int32_t rank, count;
    fig_cu_address places; /* [count] fig_peers_place, one for each rank */
    fig_cu_address parts;  /* [count][byte_limit] the result of an all-gather */
    uint64_t byte_limit;
} fig_cuda_nccl;

typedef struct fig_cuda_nccl_wish {
    struct fig_ranks *ranks;
    int32_t rank, count;
    int64_t timeout_us;
    uint64_t byte_limit; /* the size of the largest message that a rank sends */
} fig_cuda_nccl_wish;

/* Allocates the device memory. The struct must be zeroed. */
fig_status fig_cuda_nccl_init(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu,
                              const fig_cuda_nccl_wish *wish);
/* fig_cuda_nccl_open() is collective: each rank calls it after every rank has allocated its memory.
 * It runs collectives of small, medium and large sizes once: NCCL connects ranks when a size first
 * needs a connection, and connecting during a capture would break the capture.
 * fig_cuda_nccl_close() also accepts a communicator that was never opened or is half-open. When it
 * is called, no graph may hold work of the communicator. */
fig_status fig_cuda_nccl_open(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu);
void fig_cuda_nccl_close(fig_cuda_nccl *nccl, fig_cuda_gpu *gpu);
/* Makes NCCL's kernels on the device stop waiting, and gives up the communicator: `comm` is NULL
 * from then on. While another thread captures with the communicator, the call does nothing; call it
 * again until `comm` is NULL. */
void fig_cuda_nccl_abort(fig_cuda_nccl *nccl);

/* The arguments of a captured collective. */
typedef struct fig_cuda_nccl_job {
    fig_cuda_nccl *nccl;
    fig_cuda_gpu *gpu;
    fig_cuda_kernels *kernels;
    const fig_dev_launch *launch; /* NULL for fig_cuda_nccl_end */
} fig_cuda_nccl_job;

/* Adds the collective that job->launch describes to a graph. Before the first collective of a
 * graph, the ranks tell each other which step and node they have reached. One such exchange is
 * enough, because all collectives of a graph belong to one step. */
fig_status fig_cuda_nccl_capture(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                                 fig_dev_after after);
/* Returns 1 if fig_cuda_nccl_end() has something to add to the graph. */
static inline int fig_cuda_nccl_lacks_end(const fig_cuda_work *work) {
    return work->last_part != 0 && !work->is_ended;
}
/* The caller calls this after the last node was added to the graph; further calls do nothing. If
 * the graph has collectives, this function adds the kernel that reports their end. peers: the
 * device's fig_peers. */
fig_status fig_cuda_nccl_end(const fig_cuda_nccl_job *job, fig_cuda_work *work,
                             fig_cu_address peers);

#endif
