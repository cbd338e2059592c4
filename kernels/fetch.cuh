/* fetch.cuh: memory that the host reads and writes while a kernel runs, as a kernel sees it.
 *
 * The device's end of what fetch.c and engine/ring.h say with atomics: numbers that order a slot's
 * bytes, and the bytes themselves. Every access asks beyond the caches of one chip, since a slot is
 * rewritten between replays. Invariant: only one thread of the device writes a word at a time. */
#ifndef FIG_KERNELS_FETCH_CUH
#define FIG_KERNELS_FETCH_CUH

#include "kernels/params.h"

/* What the host wrote before it stored this number is there for whoever reads on. */
static __device__ __forceinline__ uint64_t fig_fetch_acquire(const uint64_t *number) {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(number) : "memory");
    return value;
}

/* The host that finds this number also finds all done before it, and reuses no memory that was
 * still to be read; of the whole block where a barrier stands before the call. */
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

/* Counts a replay that became one of zero rows; called by one thread. Partner: the acquire in
 * fig_ring_missed. */
static __device__ __forceinline__ void fig_fetch_miss(fig_fetch_words *words) {
    fig_fetch_release(&words->missed, fig_fetch_acquire(&words->missed) + 1);
}

#endif
