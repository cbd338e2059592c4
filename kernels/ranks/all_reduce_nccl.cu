/* all_reduce_nccl.cu: holds the kernels that run before, between and after the NCCL collectives of
 * a graph, one block each.
 *
 * NCCL waits for other ranks without a time limit, and does not check that they are at the same
 * collective. Therefore `begin`, before a graph's first collective, tells the host that collectives
 * have begun. Then the ranks exchange their places, and `compare` checks that the places agree.
 * `end` follows the last collective. Invariant: begin and end alternate, so their counts are equal
 * when no collective is running. */
#include "kernels/common/block.cuh"
#include "kernels/common/params.h"
#include "kernels/ranks/peers.cuh"

/* p->out: [ranks] fig_peers_place. */
static __device__ __forceinline__ void begin(const fig_all_reduce_params *p) {
    fig_peers *peers = p->peers;
    if (threadIdx.x != 0) return;
    ((fig_peers_place *)p->out)[peers->rank] =
        fig_peers_place_of(p->plan, p->state, p->node, fig_params_rows(&p->rows, p->plan));
    peers->begun++;
    *(volatile uint32_t *)&peers->words->begun = peers->begun;
}

/* Thread r compares with rank r. If the host has already reported why waiting ended, it has also
 * stopped NCCL, whose buffers then hold arbitrary data. */
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
