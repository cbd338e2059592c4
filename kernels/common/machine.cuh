/* machine.cuh: wraps the machine instructions that many kernels share.
 *
 * Some make cache policies, some compute powers and logarithms of 2, and some load and store, such
 * as the words that blocks pass to each other.
 *
 * Tests that run a kernel on a CPU have versions of their own. Invariant: a word of a pack arrives
 * as a whole; the order among words is open. */
#ifndef FIG_KERNELS_MACHINE_CUH
#define FIG_KERNELS_MACHINE_CUH

#include <stdint.h>

/* Returns a cache policy for data that is read once: such data leaves L2 first. */
static __device__ __forceinline__ uint64_t fig_machine_policy_once(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Returns a cache policy for data that stays in L2 as long as other data. */
static __device__ __forceinline__ uint64_t fig_machine_policy_usual(void) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Loads a number where the call stands. The compiler would load it where it is used. */
static __device__ __forceinline__ float fig_machine_load_here(const float *from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(from));
    return x;
}

/* Loads 16 bytes of shared memory. */
static __device__ __forceinline__ uint4 fig_machine_load_chunk(uint32_t from) {
    uint4 words;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(from)
                 : "memory");
    return words;
}

/* Stores 16 bytes in shared memory. */
static __device__ __forceinline__ void fig_machine_store_chunk(uint32_t to, uint4 words) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
}

static __device__ __forceinline__ float fig_machine_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

static __device__ __forceinline__ float fig_machine_log2(float x) {
    float log2;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2) : "f"(x));
    return log2;
}

static __device__ __forceinline__ void fig_machine_store(float *to, uint4 words) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}

static __device__ __forceinline__ void fig_machine_store(float *to, uint2 words) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x),
                 "r"(words.y)
                 : "memory");
}

/* Returns a counter that other blocks increase. Orders nothing. */
static __device__ __forceinline__ uint32_t fig_machine_look(const uint32_t *counter) {
    uint32_t seen;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    return seen;
}

static __device__ __forceinline__ void fig_machine_load(uint2 *words, const float *from) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words->x), "=r"(words->y)
                 : "l"(from)
                 : "memory");
}

static __device__ __forceinline__ void fig_machine_load(uint4 *words, const float *from) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words->x), "=r"(words->y), "=r"(words->z), "=r"(words->w)
                 : "l"(from)
                 : "memory");
}

#endif
