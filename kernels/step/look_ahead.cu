/* look_ahead.cu: prefetches the next plan from the ring while a step still runs.
 *
 * The kernel reports the device's progress to the host and, if plan number + 1 is already
 * published, copies the slot of that plan to the slot after the state. Each of these two tasks has
 * a warp of its own, because both wait for the bus. The block is small enough to fit on an SM
 * beside a block of attention. A larger block would wait for an attention block to end and delay
 * the next. Invariant: that of fetch.c; `ahead` names a plan only once its whole slot has been
 * copied. */
#include "kernels/common/block.cuh"
#include "kernels/step/fetch.cuh"

enum {
    THREADS = 2 * FIG_BLOCK_WARP,
    TELLER = FIG_BLOCK_WARP, /* the thread that reports; thread 0 looks for the plan */
    IN_FLIGHT = 4            /* pieces of a thread; 4 KB for the block */
};

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_look_ahead(const __grid_constant__ fig_look_ahead_params p) {
    __shared__ uint64_t tag;
    fig_block_wait();
    fig_block_trigger();
    const uint64_t next = p.state->number + 1;
    const uint4 *slot = fig_fetch_slot(p.ring, next, p.slot_count, p.slot_bytes);
    uint4 *to = fig_fetch_slot_ahead(p.state);
    const int is_ahead = p.state->ahead == next;
    if (threadIdx.x == TELLER) fig_fetch_tell(p.words, next - 1, p.state->replays);
    /* Partner: the release in fig_ring_publish(). A slot is read only after its publication. */
    if (threadIdx.x == 0) tag = is_ahead ? 0 : fig_fetch_acquire((const uint64_t *)slot);
    __syncthreads();
    if (fig_plan_tag_number(tag) != next) return;
    const uint32_t count = fig_plan_tag_bytes(tag, p.slot_bytes) / FIG_FETCH_PIECE;
    for (uint32_t first = threadIdx.x; first < count; first += IN_FLIGHT * THREADS) {
        uint4 pieces[IN_FLIGHT];
#pragma unroll
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            if (first + i * THREADS < count)
                pieces[i] = fig_fetch_piece(slot + first + i * THREADS);
#pragma unroll
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            if (first + i * THREADS < count) to[first + i * THREADS] = pieces[i];
    }
    __syncthreads();
    if (threadIdx.x == 0) p.state->ahead = next;
}
