/* attention.cu: computes split-K decode attention by plain instructions, on any GPU.
 *
 * attention_cores.cuh does the work. */
#include "kernels/attention/attention_cores.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fig_kernel_attention(const __grid_constant__ fig_attention_params p) {
    __shared__ shared_state shared;
    fig_block_wait();
    fig_block_trigger();
    do_block(p, &shared);
}
