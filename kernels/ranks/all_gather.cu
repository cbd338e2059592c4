/* all_gather.cu: runs all_gather on GPUs that write into each other's memory.
 *
 * out[row] = in[row] of every rank, one after the other in the order of ranks. Each rank pushes its
 * whole message to every other. Thread i of the launch has vectors i, i + threads, ... of every
 * rank's message, for any dtype: bytes are moved and no number is read. Invariant: a thread pushes
 * its whole part of the message before it waits for the message of any other rank. */
#include "kernels/common/block.cuh"
#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "kernels/ranks/peers.cuh"
#include "kernels/common/vector.cuh"

enum { THREAD_LIMIT = 512 };

extern "C" __global__ void __launch_bounds__(THREAD_LIMIT)
    fig_kernel_all_gather(const __grid_constant__ fig_all_gather_params p) {
    __shared__ fig_peers_view view;
    const int64_t in_row = (int64_t)p.width * fig_numeric_bytes(p.dtype) / FIG_VECTOR_BYTES;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t apart = (int64_t)FIG_PEERS_BLOCKS * blockDim.x;
    const uint4 *in = (const uint4 *)p.in;
    fig_peers_open(p.peers, &view);
    fig_block_enter(p.early_reads & FIG_EARLY_READS_ON);
    const fig_peers_epoch e = fig_peers_enter(&view);
    const int32_t rows = fig_params_rows(&p.rows, p.plan);
    if (fig_peers_speaks()) {
        fig_peers_speak(e, fig_peers_place_of(p.plan, p.state, p.node, rows));
        return;
    }
    for (int64_t i = first; i < in_row * rows; i += apart)
        fig_peers_push(e, i, fig_vector_fetch(in + i));
    for (int64_t i = first; i < in_row * rows; i += apart) {
        const int64_t row = i / in_row, column = i % in_row;
        uint4 *out = (uint4 *)p.out + row * view.count * in_row + column;
        for (int32_t r = 0; r < view.count; r++)
            out[r * in_row] = r == view.rank ? fig_vector_fetch(in + i) : fig_peers_take(e, r, i);
    }
    fig_peers_leave(e);
}
