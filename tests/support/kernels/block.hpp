/* block.hpp: runs a block of a kernel's source on a CPU, thread by thread.
 *
 * A program defines BLOCK_THREADS, includes this file and then the kernel's .cu file, which is
 * compiled as C++. Each thread of the block is a context of its own. It runs until it must wait:
 * for the block at a barrier, or for its warp at a shuffle. A value that it passes to others is
 * stored until all of them have arrived. So the order of threads is fixed: each runs as far as it
 * can before the next one runs, in ascending or in descending order. Shared memory is not cleared
 * before a block begins. Invariant: one block runs at a time. */
#ifndef FIG_TESTS_SUPPORT_BLOCK_HPP
#define FIG_TESTS_SUPPORT_BLOCK_HPP

#include <cstdint>
#include <cstring>
#include <ucontext.h>

namespace {
enum { THREAD_LIMIT = BLOCK_THREADS, WARP = 32, STACK_BYTES = 1 << 17 };

struct index3 {
    uint32_t x, y, z;
};

/* How many threads wait at a barrier or shuffle, and the word of each. */
struct meeting {
    int arrived, turn;
    /* two sets in turn, so that no thread overwrites a word that another thread still reads */
    uint64_t words[2][THREAD_LIMIT];
};

/* Where a thread or the loop over threads goes on. The compiler's own jumps keep three registers;
 * those of the C library, which look for functions to call on the way, take five times as long. */
typedef void *jump_place[5];

/* A context starts a thread. Later, jumps go from stack to stack: unlike a change of context, they
 * need no call of the system. */
struct thread {
    ucontext_t context;
    jump_place place;
    int is_begun, is_done;
    char stack[STACK_BYTES];
};

thread threads[THREAD_LIMIT];
meeting warps[THREAD_LIMIT / WARP], whole;
jump_place back;
int advanced;      /* set to 1 by each thread that need not wait any longer */
uint64_t happened; /* grows with everything that may let a thread of another warp go on */
index3 threadIdx, blockIdx;
index3 blockDim = {THREAD_LIMIT, 1, 1}; /* a program may set fewer threads, in whole warps */

/* A function during which other threads run, so its callers may assume nothing about what it
 * leaves as it was: neither memory nor registers. */
#ifdef __clang__
#define OTHERS_RUN __attribute__((noinline))
#else
#define OTHERS_RUN __attribute__((noipa))
#endif

OTHERS_RUN void jump(void **place) {
    __asm__ volatile("" ::: "memory");
    __builtin_longjmp(place, 1);
}

OTHERS_RUN void give_way() {
    if (__builtin_setjmp(threads[threadIdx.x].place) == 0) jump(back);
    __asm__ volatile("" ::: "memory");
}

/* Runs thread threadIdx.x until it gives way. */
OTHERS_RUN void go_on() {
    thread *of = &threads[threadIdx.x];
    if (__builtin_setjmp(back) != 0) {
        __asm__ volatile("" ::: "memory");
        return;
    }
    if (of->is_begun) jump(of->place);
    of->is_begun = 1;
    setcontext(&of->context);
}

/* Waits until `members` threads have called this; returns the words of all of them. */
const uint64_t *meet(meeting *at, int members, uint64_t word) {
    const int turn = at->turn;
    at->words[turn % 2][threadIdx.x] = word;
    if (++at->arrived == members) {
        at->arrived = 0;
        at->turn++;
    }
    while (at->turn == turn)
        give_way();
    advanced = 1;
    return at->words[turn % 2];
}

const uint64_t *meet_warp(uint64_t word) {
    return meet(&warps[threadIdx.x / WARP], WARP, word);
}

void __syncthreads() {
    happened++;
    meet(&whole, (int)blockDim.x, 0);
}

template <class T> T of_lane(T x, uint32_t lane) {
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    const uint32_t first = threadIdx.x / WARP * WARP;
    const uint64_t *words = meet_warp(word);
    memcpy(&x, &words[first + lane], sizeof x);
    return x;
}

template <class T> T __shfl_xor_sync(uint32_t, T x, int apart) {
    return of_lane(x, threadIdx.x % WARP ^ (uint32_t)apart);
}

template <class T> T __shfl_up_sync(uint32_t, T x, uint32_t apart) {
    const uint32_t lane = threadIdx.x % WARP;
    return of_lane(x, lane >= apart ? lane - apart : lane);
}

template <class T> T __shfl_sync(uint32_t, T x, int lane) {
    return of_lane(x, (uint32_t)lane);
}

template <class T> T max(T a, T b) {
    return a > b ? a : b;
}
template <class T> T min(T a, T b) {
    return a < b ? a : b;
}

struct uint4 {
    uint32_t x, y, z, w;
};
uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return {x, y, z, w};
}
struct uint2 {
    uint32_t x, y;
};
uint2 make_uint2(uint32_t x, uint32_t y) {
    return {x, y};
}
struct alignas(8) float2 {
    float x, y;
};
float2 make_float2(float x, float y) {
    return {x, y};
}
struct alignas(16) float4 {
    float x, y, z, w;
};
float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

void __syncwarp() {
    meet_warp(0);
}
int __any_sync(uint32_t, int is_true) {
    const uint64_t *words = meet_warp(is_true != 0) + threadIdx.x / WARP * WARP;
    int any = 0;
    for (uint32_t i = 0; i < WARP; i++)
        any |= words[i] != 0;
    return any;
}
int __all_sync(uint32_t mask, int is_true) {
    return !__any_sync(mask, !is_true);
}

/* Only one block runs, so memory is consistent, and every access is whole. */
template <class T> T __ldcg(const T *from) {
    return *from;
}
template <class T> void __stcg(T *to, T value) {
    *to = value;
}
void __threadfence() {
}
uint32_t atomicInc(uint32_t *counter, uint32_t last) {
    const uint32_t before = *counter;
    *counter = before >= last ? 0 : before + 1;
    return before;
}
} // namespace

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static

static void (*running)(const void *params);
static const void *running_params;

static void begin() {
    running(running_params);
    threads[threadIdx.x].is_done = 1;
    give_way();
}

/* Makes the threads of block number `block`. */
static void block_prepare(void (*kernel)(const void *params), const void *params, uint32_t block) {
    running = kernel;
    running_params = params;
    blockIdx.x = block;
    memset(warps, 0, sizeof warps);
    memset(&whole, 0, sizeof whole);
    for (thread &of : threads) {
        getcontext(&of.context);
        of.is_begun = of.is_done = 0;
        of.context.uc_stack.ss_sp = of.stack;
        of.context.uc_stack.ss_size = sizeof of.stack;
        of.context.uc_link = NULL;
        makecontext(&of.context, begin, 0);
    }
}

/* Runs block number `block` of a kernel. Returns 0 if the block never ends, because its threads
 * wait at different places. */
static int block_runs(void (*kernel)(const void *params), const void *params, uint32_t block,
                      int is_backwards) {
    int left = (int)blockDim.x, idle = 0;
    block_prepare(kernel, params, block);
    while (left > 0 && idle < 1 << 18) {
        const int before = left;
        for (uint32_t i = 0; i < blockDim.x; i++) {
            threadIdx.x = is_backwards ? blockDim.x - 1 - i : i;
            if (threads[threadIdx.x].is_done) continue;
            go_on();
            left -= threads[threadIdx.x].is_done;
        }
        idle = left == before ? idle + 1 : 0;
    }
    return left == 0;
}

#endif
