/* latent_block.cpp: runs the blocks of kernels/latent/latent_attention.cu on a CPU, thread by
 * thread, and compares what they leave with the reference kernel's. block.hpp emulates a block.
 *
 * Tokens that no query sees are NaN. Sums are taken in another order than the reference kernel's,
 * so results may be off by a rounding; partials, sums and counters must be zeros again. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "include/figraph.h"
extern "C" {
#include "planner/plans/plan.h"
}

#define BLOCK_THREADS 256
#include "tests/support/kernels/block.hpp"

#undef __shared__
#define __shared__
#define __align__(bytes)

alignas(16) uint8_t dynamic[80000]; /* the dynamic shared memory */

/* numeric.h keeps its loops over rows, which are C, from nvcc. */
#define __CUDACC__
#include "kernels/latent/latent_attention.cu"

static_assert(sizeof dynamic >= FIG_LATENT_PLAIN_BYTES, "a block's shared memory");

#include "tests/kernels/latent/block_case.hpp"

static void run_kernel(const void *params) {
    fig_kernel_latent_attention(*(const fig_latent_attention_params *)params);
}

/* Returns 0 if the two sides differ. */
static int try_case(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    latent_case c = {};
    draw_case(&c, &random, FOR_PLAIN);
    fig_latent_attention_params *p = &c.params;
    for (int side = 0; side < 2; side++) {
        p->out = c.out[side].data();
        p->lse = c.lse[side].data();
        for (uint32_t n = 0; n < (uint32_t)p->split.workers; n++) {
            const uint32_t block[3] = {seed % 2 ? n : (uint32_t)p->split.workers - 1 - n, 0, 0};
            if (side == 0) {
                fig_latent_attention_reference(p, block);
            } else if (!block_runs(run_kernel, p, block[0], (int)(seed / 2 % 2))) {
                printf("seed %llu: block %u does not end\n", (unsigned long long)seed, block[0]);
                return 0;
            }
        }
        if (is_clean(&c)) continue;
        printf("seed %llu: the workspace is not zeros\n", (unsigned long long)seed);
        return 0;
    }
    return compare(&c, seed, p->dtype == FIG_F32 ? 1e-5f : p->dtype == FIG_F16 ? 2e-3f : 1e-2f);
}

int main(int argc, char **argv) {
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    for (uint64_t seed = 1; seed <= cases; seed++)
        if (!try_case(seed)) return 1;
    printf("%llu steps are the twin's\n", (unsigned long long)cases);
    return 0;
}
