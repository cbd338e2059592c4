/* wide_machine.cuh: wraps the instructions of compute capability 9.0 that the kernels in wide/ and
 * many/ need beside products (wgmma.cuh) and barriers (barriers.cuh).
 *
 * Invariant: the other files of these kernels contain no instructions, so a test can put its own
 * versions of these headers in front of them, and run a kernel on a CPU
 * (tests/kernels/wide/wide_block.cpp, tests/kernels/many/many_block.cpp). */
#ifndef FIG_KERNELS_WIDE_MACHINE_CUH
#define FIG_KERNELS_WIDE_MACHINE_CUH

#include "kernels/common/barriers.cuh"
#include "kernels/common/block.cuh"
#include "kernels/wide/wgmma.cuh"
#include "kernels/wide/wide.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- Barriers in shared memory --------------------------------------------------------------- */

/* Makes new barriers known to the copy engine. */
static __device__ __forceinline__ void fig_wide_show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Waits for a phase of a barrier. A build that defines FIG_WIDE_LOOKS gives up after that number of
 * tries of up to 10 ms each. Its results are then wrong, but the kernel ends. */
static __device__ __forceinline__ void fig_wide_wait(const uint64_t *barrier, uint32_t phase) {
    const uint32_t address = fig_fragment_shared(barrier);
#ifdef FIG_WIDE_LOOKS
    uint32_t is_over = 0;
    for (int32_t look = 0; look < FIG_WIDE_LOOKS && !is_over; look++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(address), "r"(phase)
                     : "memory");
#else
    fig_ring_wait(address, phase);
#endif
}

/* Meets other threads at a named barrier. Returns 1 if some thread says so. */
static __device__ __forceinline__ int32_t fig_wide_meet_any(int32_t barrier, int32_t threads,
                                                            int32_t says) {
    int32_t any;
    asm volatile("{ .reg .pred p, q; setp.ne.s32 p, %3, 0;\n"
                 "bar.red.or.pred q, %1, %2, p; selp.s32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(barrier), "r"(threads), "r"(says)
                 : "memory");
    return any;
}

/* Arrives, and lets the barrier expect `bytes` bytes more from the copy engine. */
static __device__ __forceinline__ void fig_wide_expect(const uint64_t *barrier, uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(fig_fragment_shared(barrier)),
        "r"(bytes)
        : "memory");
}

/* Arrives `count` times. */
static __device__ __forceinline__ void fig_wide_arrive(const uint64_t *barrier, uint32_t count) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(fig_fragment_shared(barrier)),
                 "r"(count)
                 : "memory");
}

/* ---- Copies to shared memory ----------------------------------------------------------------- */

/* Names a box by its coordinates in a cache's map. */
struct fig_wide_box_place {
    int32_t token, column, block, page;
};

static __device__ __forceinline__ void fig_wide_box_send(uint32_t to, const fig_tensor_map *map,
                                                         const fig_wide_box_place &box,
                                                         const uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
                 "l"(map), "r"(0), "r"(box.token), "r"(box.column), "r"(box.block), "r"(box.page),
                 "r"(fig_fragment_shared(barrier))
                 : "memory");
}

/* Sends one column of queries: those from q head `head` and query token `query` on. */
static __device__ __forceinline__ void fig_wide_column_send(uint32_t to, const fig_tensor_map *map,
                                                            int32_t head, int32_t query,
                                                            int32_t column,
                                                            const uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(0), "r"(head), "r"(query), "r"(column),
                 "r"(fig_fragment_shared(barrier))
                 : "memory");
}

/* Copies 16 bytes. fig_wide_await_copies() waits for all copies of the thread. */
static __device__ __forceinline__ void fig_wide_copy(uint32_t to, uint64_t from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* Copies 4 bytes. */
static __device__ __forceinline__ void fig_wide_copy_word(uint32_t to, uint64_t from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void fig_wide_await_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Arrives when all copies that the thread has started are done. */
static __device__ __forceinline__ void fig_wide_arrive_copied(const uint64_t *barrier) {
    asm volatile(
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(fig_fragment_shared(barrier))
        : "memory");
}

static __device__ __forceinline__ uint32_t fig_wide_load_word(uint32_t from) {
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

static __device__ __forceinline__ void fig_wide_clear_chunk(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

/* Orders the thread's accesses to shared memory before those of products and of the copy engine
 * that it starts, or lets start, later. */
static __device__ __forceinline__ void fig_wide_order_engines() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Memory of the device -------------------------------------------------------------------- */

/* Orders the thread's accesses to memory before its later ones, for all threads of the device. */
static __device__ __forceinline__ void fig_wide_order_memory() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/* Returns the counter's value. Later reads, of this thread or of threads that meet it, see what
 * those wrote who have counted. */
static __device__ __forceinline__ uint32_t fig_wide_acquire(const uint32_t *counter) {
    uint32_t seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    return seen;
}

/* Stores a value in the counter and returns the value before. Orders accesses before and after. */
static __device__ __forceinline__ uint32_t fig_wide_exchange(uint32_t *counter, uint32_t value) {
    uint32_t seen;
    asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], %2;"
                 : "=r"(seen)
                 : "l"(counter), "r"(value)
                 : "memory");
    return seen;
}

/* ---- Numbers and registers ------------------------------------------------------------------- */

static __device__ __forceinline__ float fig_wide_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ int32_t fig_wide_most(int32_t a, int32_t b, int32_t c) {
    return __vimax3_s32(a, b, c);
}

/* Returns a pair of numbers, each of them at least the least positive one. */
template <int32_t DTYPE>
static __device__ __forceinline__ uint32_t fig_wide_positive(uint32_t pair) {
    if (DTYPE == FIG_BF16) {
        asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x00800080u));
    } else {
        asm("max.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(0x00010001u));
    }
    return pair;
}

/* Returns all ones in each half of the word whose highest bit is set. */
static __device__ __forceinline__ uint32_t fig_wide_signs(uint32_t word) {
    uint32_t mask;
    asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(mask) : "r"(word));
    return mask;
}

/* Sets the registers of each thread of a warpgroup to COUNT: keep gives back those above COUNT, and
 * take waits until other warps have given back enough. */
template <int32_t COUNT> static __device__ __forceinline__ void fig_wide_keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int32_t COUNT> static __device__ __forceinline__ void fig_wide_take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
#endif
