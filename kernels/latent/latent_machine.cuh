/* latent_machine.cuh: wraps the machine instructions that the warpgroup kernels over latents need
 * beside products (wgmma.cuh, narrow_products.cuh) and barriers (barriers.cuh).
 *
 * Tests that run these kernels on a CPU have versions of their own (tests/kernels/latent/).
 * Invariant: the low half of a pair is the value of the lower dimension. */
#ifndef FIG_KERNELS_LATENT_MACHINE_CUH
#define FIG_KERNELS_LATENT_MACHINE_CUH

#include "kernels/common/fragment.cuh"
#include "kernels/common/params.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Returns the values of a pair of f16. */
static __device__ __forceinline__ float2 fig_latent_machine_floats(uint32_t pair) {
    return __half22float2(*(const __half2 *)&pair);
}

/* Sets `low` and `high` to the first and the last two of four codes of e4m3, as f16, which holds
 * them exactly. */
static __device__ __forceinline__ void fig_latent_machine_codes(uint32_t codes, uint32_t *low,
                                                                uint32_t *high) {
    asm("{ .reg .b16 first, last; mov.b32 {first, last}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, first; cvt.rn.f16x2.e4m3x2 %1, last; }"
        : "=r"(*low), "=r"(*high)
        : "r"(codes));
}

/* Transposes a matrix of 8 x 8 values of 16 bits. The lane's pair holds values 2 (lane % 4) and
 * 2 (lane % 4) + 1 of row lane / 4. All lanes of the warp take part. */
static __device__ __forceinline__ uint32_t fig_latent_machine_across(uint32_t pair) {
    uint32_t across;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(across) : "r"(pair));
    return across;
}

/* If it waits in vain, ends the launch with an error by a store to address 0. With a trap instead,
 * the assembler would give the products too few registers. */
static __device__ __forceinline__ void fig_latent_machine_end_if(int32_t is_vain) {
    asm volatile("{ .reg .pred p; .reg .b64 none; mov.b64 none, 0; setp.ne.b32 p, %0, 0;\n"
                 "@p st.global.u32 [none], 0; }" ::"r"(is_vain)
                 : "memory");
}

/* ---- Shared memory */

/* Makes new barriers known to the copy engine. */
static __device__ __forceinline__ void fig_latent_machine_show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Waits for a phase of a barrier for up to 10 ms. Returns 1 if it is over. */
static __device__ __forceinline__ uint32_t fig_latent_machine_try(uint32_t barrier,
                                                                  uint32_t phase) {
    uint32_t is_over;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2, 0x989680;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_over)
                 : "r"(barrier), "r"(phase)
                 : "memory");
    return is_over;
}

/* Arrives, and lets the barrier expect `bytes` bytes more from the copy engine. */
static __device__ __forceinline__ void fig_latent_machine_expect(const uint64_t *barrier,
                                                                 uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(fig_fragment_shared(barrier)),
        "r"(bytes)
        : "memory");
}

/* Orders the thread's accesses to shared memory before those of products and of the copy engine. */
static __device__ __forceinline__ void fig_latent_machine_publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ void fig_latent_machine_clear(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
}

/* Stores two matrices of 8 x 8 values of 16 bits, transposed. Lane r of the first 8 has the address
 * of row r of the first matrix, the next 8 lanes those of the second. */
static __device__ __forceinline__ void fig_latent_machine_store_turned(uint32_t to, uint32_t first,
                                                                       uint32_t second) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to),
                 "r"(first), "r"(second)
                 : "memory");
}

/* Stores four matrices of 8 x 8 values of 16 bits. Lane 8 i + r has the address of row r of matrix
 * i. */
static __device__ __forceinline__ void fig_latent_machine_store_matrices(uint32_t to,
                                                                         const uint32_t *pairs) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
}

/* ---- Copies */

/* Sends a box of the cache. */
static __device__ __forceinline__ void
fig_latent_machine_send(uint32_t to, const fig_tensor_map *map, int32_t column, int32_t token,
                        int32_t page, const uint64_t *barrier, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(column), "r"(token), "r"(page), "r"(fig_fragment_shared(barrier)),
                 "l"(policy)
                 : "memory");
}

/* Sends a box of the cache to the same place in both blocks of a cluster. Each block's barrier at
 * the place of `barrier` counts what it gets. */
static __device__ __forceinline__ void
fig_latent_machine_send_both(uint32_t to, const fig_tensor_map *map, int32_t column, int32_t token,
                             int32_t page, const uint64_t *barrier, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(to),
        "l"(map), "r"(column), "r"(token), "r"(page), "r"(fig_fragment_shared(barrier)),
        "h"((uint16_t)3), "l"(policy)
        : "memory");
}

/* Copies memory of the device to shared memory: whole 16 bytes, from and to multiples of 16. */
static __device__ __forceinline__ void fig_latent_machine_copy(uint32_t to, const void *from,
                                                               uint32_t bytes,
                                                               const uint64_t *barrier,
                                                               uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(fig_fragment_shared(barrier)), "l"(policy)
                 : "memory");
}

static __device__ __forceinline__ float fig_latent_machine_load_scale(uint32_t from) {
    float scale;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale) : "r"(from) : "memory");
    return scale;
}

/* Brings the map of the cache close. Otherwise the first box would wait for it. */
static __device__ __forceinline__ void fig_latent_machine_bring_map(const fig_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Brings memory of the device into L2. */
static __device__ __forceinline__ void fig_latent_machine_bring(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* ---- A cluster of blocks */

/* Announces that the block has begun and its barriers exist. All threads call this function. */
static __device__ __forceinline__ void fig_latent_machine_announce() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/* Waits until all blocks of the cluster have announced that. */
static __device__ __forceinline__ void fig_latent_machine_meet() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

/* Returns the address, in the shared memory of block `rank`, of what lies at `own` in this one. */
static __device__ __forceinline__ uint32_t fig_latent_machine_of(uint32_t own, int32_t rank) {
    uint32_t theirs;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(own), "r"(rank));
    return theirs;
}

/* Arrives at a barrier of any block of the cluster. */
static __device__ __forceinline__ void fig_latent_machine_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Sends words to another block, whose barrier counts their bytes. */
static __device__ __forceinline__ void fig_latent_machine_give(uint32_t to, uint32_t barrier,
                                                               uint4 words) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], "
                 "{%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void fig_latent_machine_give(uint32_t to, uint32_t barrier,
                                                               uint2 words) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, "
                 "[%3];" ::"r"(to),
                 "r"(words.x), "r"(words.y), "r"(barrier)
                 : "memory");
}

/* Waits until all bytes that the barrier expects have come from the other blocks. */
static __device__ __forceinline__ void fig_latent_machine_await_given(const uint64_t *barrier) {
    uint32_t is_over = 0;
    while (!is_over)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, "
                     "[%1], 0, 0x989680;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_over)
                     : "r"(fig_fragment_shared(barrier))
                     : "memory");
}

/* ---- Products and registers */

/* Waits for all groups of products but the last one. */
static __device__ __forceinline__ void fig_latent_machine_await_all_but_one() {
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* Keeps the compiler from moving uses of a sum before this call. There is one call for each
 * register, because a single statement for several made the assembler serialise the products. */
static __device__ __forceinline__ void fig_latent_machine_pin(float &sum) {
    asm volatile("" : "+f"(sum)::"memory");
}

/* Sets the registers of each thread of a warpgroup to COUNT: keep() gives back those above COUNT,
 * and take() waits until other warps have given back enough. */
template <int32_t COUNT> static __device__ __forceinline__ void fig_latent_machine_keep() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int32_t COUNT> static __device__ __forceinline__ void fig_latent_machine_take() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
#endif
