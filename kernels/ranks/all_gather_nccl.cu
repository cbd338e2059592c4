/* all_gather_nccl.cu: distributes the data that NCCL has received for an all_gather.
 *
 * p.in is [ranks][row_limit][width], the rows of each rank. out[row] holds that row of every rank,
 * one after the other. Thread i of the launch has vectors i, i + threads, ... of every rank's
 * message, for any dtype. */
#include "kernels/common/block.cuh"
#include "kernels/common/numeric.h"
#include "kernels/common/params.h"
#include "kernels/common/vector.cuh"

enum { THREAD_LIMIT = 512 };

extern "C" __global__ void __launch_bounds__(THREAD_LIMIT)
    fig_kernel_all_gather_nccl(const __grid_constant__ fig_all_gather_params p) {
    const int64_t in_row = (int64_t)p.width * fig_numeric_bytes(p.dtype) / FIG_VECTOR_BYTES;
    const int64_t apart = (int64_t)gridDim.x * blockDim.x;
    const uint4 *in = (const uint4 *)p.in;
    fig_block_enter(p.early_reads & FIG_EARLY_READS_ON);
    const int64_t end = in_row * fig_params_rows(&p.rows, p.plan);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += apart) {
        const int64_t row = i / in_row, column = i % in_row;
        uint4 *out = (uint4 *)p.out + row * p.ranks * in_row + column;
        for (int32_t r = 0; r < p.ranks; r++)
            out[r * in_row] = in[r * in_row * p.rows.row_limit + i];
    }
}
