/* fetch.cu: take the next plan out of the ring.
 *
 * plan = slot of number *cursor + 1, or a head of zero rows where that plan is not there or another
 * bucket's. One block. The ring and the words lie in pinned host memory, where a load takes about a
 * microsecond: one thread decides, then all have many loads in flight at once. Slots and the plan
 * are 16-byte aligned. Invariant: that of fetch.c, a plan is copied whole or not at all. */
#include "kernels/block.cuh"
#include "kernels/fetch.cuh"

enum {
    THREADS = 128,
    IN_FLIGHT = 8, /* pieces of a thread: 16 KB of a block */
    PIECE_BYTES = sizeof(uint4),
    HEAD_PIECES = sizeof(fig_plan_head) / PIECE_BYTES
};

static_assert(offsetof(fig_plan_head, bytes) == 8 && offsetof(fig_plan_head, bucket) == 12,
              "z and w of a slot's first piece");

/* Of the slot where it holds plan number `next` and this graph can run it; else 0. Partner: the
 * release in fig_ring_publish. Only a slot that has been published is read on. */
static __device__ uint32_t bytes_of(const fig_fetch_params *p, const uint8_t *slot, uint64_t next) {
    const fig_plan_head *head = (const fig_plan_head *)slot;
    if (fig_fetch_acquire(&head->sequence) != next) return 0;
    uint4 words = fig_fetch_piece((const uint4 *)slot);
    uint32_t bytes = words.z, bucket = words.w;
    if (bucket != p->bucket || bytes < sizeof *head) return 0;
    return bytes <= p->slot_bytes && bytes <= p->plan_bytes ? bytes : 0;
}

/* All loads of a turn leave before its first store waits for one of them. */
static __device__ void copy(uint4 *to, const uint4 *from, uint32_t count) {
    for (uint32_t first = threadIdx.x; first < count; first += IN_FLIGHT * THREADS) {
        uint4 pieces[IN_FLIGHT];
#pragma unroll
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            if (first + i * THREADS < count)
                pieces[i] = fig_fetch_piece(from + first + i * THREADS);
#pragma unroll
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            if (first + i * THREADS < count) to[first + i * THREADS] = pieces[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    fig_kernel_fetch(const __grid_constant__ fig_fetch_params p) {
    __shared__ uint32_t verdict; /* bytes of the plan to take; 0: none */
    fig_block_wait();
    fig_block_trigger();
    const uint64_t next = *p.cursor + 1;
    const uint8_t *slot = p.ring + (next - 1) % p.slot_count * p.slot_bytes;
    if (threadIdx.x == 0) verdict = bytes_of(&p, slot, next);
    __syncthreads();
    const uint32_t bytes = verdict;
    if (bytes == 0) {
        if (threadIdx.x < HEAD_PIECES) ((uint4 *)p.plan)[threadIdx.x] = make_uint4(0, 0, 0, 0);
        if (threadIdx.x == 0) fig_fetch_miss(p.words);
        return;
    }
    copy((uint4 *)p.plan, (const uint4 *)slot, bytes / PIECE_BYTES);
    __syncthreads();
    if (threadIdx.x != 0) return;
    *p.cursor = next;
    /* Partner: the acquire in fig_ring_consumed. The barrier puts every thread's reading of the
     * slot before it. */
    fig_fetch_release(&p.words->consumed, next);
}
