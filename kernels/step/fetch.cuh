/* fetch.cuh: accesses memory that the host reads and writes while a kernel runs.
 *
 * This is the device's counterpart of the atomics in fetch.c and ring.h. It accesses the numbers
 * that order a slot's bytes, and the bytes themselves. Every access has system scope, because a
 * slot is rewritten between replays. Invariant: only one thread of the device writes a word at a
 * time. */
#ifndef FIG_KERNELS_FETCH_CUH
#define FIG_KERNELS_FETCH_CUH

#include "kernels/common/params.h"

enum { FIG_FETCH_PIECE = sizeof(uint4) }; /* bytes; a slot is a whole number of pieces */

/* Loads a number. Later reads see everything that the host wrote before it stored this number. */
static __device__ __forceinline__ uint64_t fig_fetch_acquire(const uint64_t *number) {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(number) : "memory");
    return value;
}

/* Stores a number. A host that reads this number also sees all earlier writes of the thread, and
 * those of the whole block if a barrier precedes the call. */
static __device__ __forceinline__ void fig_fetch_release(uint64_t *number, uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(number), "l"(value) : "memory");
}

/* Loads sixteen bytes, unordered with other accesses. */
static __device__ __forceinline__ uint4 fig_fetch_piece(const uint4 *from) {
    uint4 piece;
    asm volatile("ld.relaxed.sys.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                 : "l"(from)
                 : "memory");
    return piece;
}

/* Returns the slot of plan `number`; the plan may not be published yet. */
static __device__ __forceinline__ const uint4 *
fig_fetch_slot(const uint8_t *ring, uint64_t number, uint32_t slot_count, uint32_t slot_bytes) {
    return (const uint4 *)(ring + (number - 1) % slot_count * slot_bytes);
}

/* Returns the slot for a prefetched plan. */
static __device__ __forceinline__ uint4 *fig_fetch_slot_ahead(fig_fetch_state *state) {
    return (uint4 *)(state + 1);
}

/* Adds one. One thread calls this. Partner: the acquires in fig_ring_missed() and
 * fig_ring_torn(). */
static __device__ __forceinline__ void fig_fetch_count(uint64_t *word) {
    fig_fetch_release(word, fig_fetch_acquire(word) + 1);
}

/* Counts a replay that got zero rows. */
static __device__ __forceinline__ void fig_fetch_miss(fig_fetch_words *words) {
    fig_fetch_count(&words->missed);
}

/* Reports to the host. One thread calls this, after a barrier if other threads have read the slot.
 * A single fence releases both words, because each fence waits for everything still on the bus.
 * Partner: the acquires in fig_ring_consumed() and fig_ring_replays(). */
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
