/* all_reduce_nccl.cu: what stands around the collectives of a graph that NCCL carries, one block
 * each.
 *
 * NCCL waits for other ranks without an end and compares nothing. So before the first of a graph
 * begin tells the host that they are under way, and compare, once the ranks have told one another
 * where they are, whether they are apart; behind the last comes end. Invariant: begin and end come
 * in turn, so that their counts are equal where none is under way. */
#include "kernels/block.cuh"
#include "kernels/params.h"
#include "kernels/peers.cuh"

/* p->out: [ranks] fig_peers_place. */
static __device__ __forceinline__ void begin(const fig_all_reduce_params *p) {
    fig_peers *peers = p->peers;
    if (threadIdx.x != 0) return;
    ((fig_peers_place *)p->out)[peers->rank] =
        fig_peers_place_of(p->plan, p->state, p->node, fig_params_rows(&p->rows, p->plan));
    peers->begun++;
    *(volatile uint32_t *)&peers->words->begun = peers->begun;
}

/* Thread r compares with rank r. Where the host has said why nobody waits any more, it has stopped
 * NCCL, which then leaves what it finds in its buffers. */
static __device__ __forceinline__ void compare(const fig_all_reduce_params *p) {
    __shared__ fig_peers_view view;
    const int32_t rank = (int32_t)threadIdx.x;
    fig_peers_open(p->peers, &view);
    if (rank >= view.count || rank == view.rank) return;
    const fig_peers_place *all = (const fig_peers_place *)p->out;
    const fig_peers_place places[2] = {all[view.rank], all[rank]};
    if (!fig_peers_is_same_place(places[0], places[1]) &&
        *(volatile uint32_t *)&view.words->verdict == FIG_PEERS_FINE)
        fig_peers_abort(&view, FIG_PEERS_APART, rank, places);
}

static __device__ __forceinline__ void end(const fig_all_reduce_params *p) {
    if (threadIdx.x == 0) *(volatile uint32_t *)&p->peers->words->ended = p->peers->begun;
}

#define ENTRY(name, serve)                                                                         \
    extern "C" __global__ void name(const __grid_constant__ fig_all_reduce_params p) {             \
        fig_block_wait();                                                                          \
        serve(&p);                                                                                 \
    }

ENTRY(fig_kernel_all_reduce_nccl_begin, begin)
ENTRY(fig_kernel_all_reduce_nccl_compare, compare)
ENTRY(fig_kernel_all_reduce_nccl_end, end)
