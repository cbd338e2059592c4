/* fetch.cuh: memory that the host reads and writes while a kernel runs, as a kernel sees it.
 *
 * The device's end of what fetch.c and engine/ring.h say with atomics: numbers that order a slot's
 * bytes, and the bytes themselves. Every access asks beyond the caches of one chip, since a slot is
 * rewritten between replays. Invariant: only one thread of the device writes a word at a time. */
#ifndef FIG_KERNELS_FETCH_CUH
#define FIG_KERNELS_FETCH_CUH

#include "kernels/params.h"

enum { FIG_FETCH_PIECE = sizeof(uint4) }; /* bytes; a slot is whole pieces */

/* What the host wrote before it stored this number is there for whoever reads on. */
static __device__ __forceinline__ uint64_t fig_fetch_acquire(const uint64_t *number) {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(number) : "memory");
    return value;
}

/* The host that finds this number also finds all done before it; of the whole block where a barrier
 * stands before the call. */
static __device__ __forceinline__ void fig_fetch_release(uint64_t *number, uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(number), "l"(value) : "memory");
}

/* Sixteen bytes, in no order of their own. */
static __device__ __forceinline__ uint4 fig_fetch_piece(const uint4 *from) {
    uint4 piece;
    asm volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                 : "l"(from)
                 : "memory");
    return piece;
}

/* Where plan `number` lies once it is published. */
static __device__ __forceinline__ const uint4 *
fig_fetch_slot(const uint8_t *ring, uint64_t number, uint32_t slot_count, uint32_t slot_bytes) {
    return (const uint4 *)(ring + (number - 1) % slot_count * slot_bytes);
}

/* Where one lies that was taken ahead. */
static __device__ __forceinline__ uint4 *fig_fetch_slot_ahead(fig_fetch_state *state) {
    return (uint4 *)(state + 1);
}

/* Adds one; called by one thread. Partner: the acquires in fig_ring_missed and fig_ring_torn. */
static __device__ __forceinline__ void fig_fetch_count(uint64_t *word) {
    fig_fetch_release(word, fig_fetch_acquire(word) + 1);
}

/* Counts a replay that became one of zero rows. */
static __device__ __forceinline__ void fig_fetch_miss(fig_fetch_words *words) {
    fig_fetch_count(&words->missed);
}

/* Called by one thread, behind a barrier where others have read the slot. One fence releases both
 * words, since each fence waits for what the bus still has to take. Partner: the acquires in
 * fig_ring_consumed and fig_ring_replays. */
static __device__ __forceinline__ void fig_fetch_tell(fig_fetch_words *words, uint64_t consumed,
                                                      uint64_t replays) {
    asm volatile("fence.acq_rel.sys;\n\t"
                 "st.relaxed.sys.u64 [%0], %1;\n\t"
                 "st.relaxed.sys.u64 [%2], %3;"
                 :
                 : "l"(&words->consumed), "l"(consumed), "l"(&words->replays), "l"(replays)
                 : "memory");
}

#endif
