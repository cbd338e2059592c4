/* fetch_block.cpp: takes the place of the reference kernel of the fetch in a test program: runs the
 * block of kernels/step/fetch.cu on the CPU, thread by thread. block.hpp emulates the block.
 *
 * The test is linked with --wrap=fig_fetch_reference. So what it expects of the fetch, it expects
 * of the kernel's source. */
#include <cstdio>
#include <cstdlib>

#include "include/figraph.h"
extern "C" {
#include "kernels/common/params.h"
#include "planner/plans/plan.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

/* ---- What stands for block.cuh and fetch.cuh */

#define FIG_KERNELS_BLOCK_CUH
enum { FIG_BLOCK_WARP = WARP };
static void fig_block_wait() {
}
static void fig_block_trigger() {
}

#define FIG_KERNELS_FETCH_CUH
enum { FIG_FETCH_PIECE = sizeof(uint4) };

static uint64_t fig_fetch_acquire(const uint64_t *number) {
    return __atomic_load_n(number, __ATOMIC_ACQUIRE);
}

static void fig_fetch_release(uint64_t *number, uint64_t value) {
    __atomic_store_n(number, value, __ATOMIC_RELEASE);
}

static uint4 fig_fetch_piece(const uint4 *from) {
    return *from;
}

static const uint4 *fig_fetch_slot(const uint8_t *ring, uint64_t number, uint32_t slot_count,
                                   uint32_t slot_bytes) {
    return (const uint4 *)(ring + (number - 1) % slot_count * slot_bytes);
}

static uint4 *fig_fetch_slot_ahead(fig_fetch_state *state) {
    return (uint4 *)(state + 1);
}

static void fig_fetch_count(uint64_t *word) {
    fig_fetch_release(word, *word + 1);
}

static void fig_fetch_miss(fig_fetch_words *words) {
    fig_fetch_count(&words->missed);
}

static void fig_fetch_tell(fig_fetch_words *words, uint64_t consumed, uint64_t replays) {
    fig_fetch_release(&words->consumed, consumed);
    fig_fetch_release(&words->replays, replays);
}

static uint32_t __reduce_add_sync(uint32_t, uint32_t x) {
    const uint64_t *words = meet_warp(x) + threadIdx.x / WARP * WARP;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < WARP; i++)
        sum += (uint32_t)words[i];
    return sum;
}

#include "kernels/step/fetch.cu"

static uint64_t runs;

static void run_kernel(const void *params) {
    fig_kernel_fetch(*(const fig_fetch_params *)params);
}

extern "C" void __wrap_fig_fetch_reference(const void *params, const uint32_t block[3]) {
    if (block_runs(run_kernel, params, block[0], (int)(runs++ % 2))) return;
    puts("a block never ends");
    exit(1);
}

static void __attribute__((destructor)) say_runs() {
    printf("%llu runs of the kernel's source\n", (unsigned long long)runs);
}
