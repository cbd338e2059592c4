/* scored_attention.cu: computes split-K decode attention with a score on any GPU.
 *
 * Each lane that has a logit goes through the nodes of the score, which lie in the params. So every
 * score runs without a compiler, at the cost of its nodes for each token and q head. All lanes take
 * the same branches, since they go through the same nodes. attention_cores.cuh does the rest. */
#define FIG_PIECES_SCORED 1
#include "kernels/attention/attention_cores.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    fig_kernel_scored_attention(const __grid_constant__ fig_scored_attention_params p) {
    __shared__ shared_state shared;
    fig_block_wait();
    fig_block_trigger();
    do_block(p.attention, &shared);
}
