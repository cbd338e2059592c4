/* warpgroup_block.cpp: runs the blocks of a warpgroup kernel over latents on a CPU, thread by thread,
 * and compares what they leave with the reference kernel's. hopper.hpp stands for the machine.
 *
 * NARROW, SHORT, CODES, WIDE or PAIR is defined, and tells which kernel. The blocks of PAIR run
 * alone, each as the only one that loads tiles. All round weights to q's type, and that
 * for codes also the values of codes, so results may differ by some roundings. */
#include <algorithm>

#define BLOCK_THREADS WARPGROUP_THREADS
#if defined NARROW || defined SHORT
enum { WARPGROUP_THREADS = 320 };
#elif defined CODES
enum { WARPGROUP_THREADS = 640 };
#else
enum { WARPGROUP_THREADS = 384 };
#endif
#include "tests/support/kernels/hopper_latent.hpp"
#include "tests/support/kernels/hopper_steps.hpp"

extern "C" {
#include "planner/plans/plan.h"
#include "planner/split/split.h"
}

struct named_kernel {
    const char *name;
    void (*run)(fig_latent_attention_params);
};

#define NAMED(kernel)                                                                              \
    { #kernel, kernel }
#if defined NARROW
#include "kernels/latent/latent_narrow.cu"
static const named_kernel kernels[] = {NAMED(fig_kernel_latent_attention_narrow_bf16_16),
                                       NAMED(fig_kernel_latent_attention_narrow_bf16_32),
                                       NAMED(fig_kernel_latent_attention_narrow_f16_16),
                                       NAMED(fig_kernel_latent_attention_narrow_f16_32)};
#define ENTRY fig_latent_attention_narrow_entry
#define KIND FOR_NARROW
#elif defined SHORT
#include "kernels/latent/latent_short.cu"
#define NAMED_SIZES(type, vectors)                                                                 \
    NAMED(fig_kernel_latent_attention_short_##type##_##vectors##_2),                               \
        NAMED(fig_kernel_latent_attention_short_##type##_##vectors##_4),                           \
        NAMED(fig_kernel_latent_attention_short_##type##_##vectors##_8),                           \
        NAMED(fig_kernel_latent_attention_short_##type##_##vectors##_16)
static const named_kernel kernels[] = {NAMED_SIZES(bf16, 16), NAMED_SIZES(bf16, 32),
                                       NAMED_SIZES(f16, 16), NAMED_SIZES(f16, 32)};
#define ENTRY fig_latent_attention_short_entry
#define KIND FOR_SHORT
#elif defined CODES
#include "kernels/latent/latent_codes.cu"
static const named_kernel kernels[] = {NAMED(fig_kernel_latent_attention_codes_bf16_16),
                                       NAMED(fig_kernel_latent_attention_codes_bf16_32)};
#define ENTRY fig_latent_attention_codes_entry
#define KIND FOR_CODES
#elif defined PAIR
#define FIG_LATENT_RING_SENDERS 1
#include "kernels/latent/latent_pair.cu"
static const named_kernel kernels[] = {NAMED(fig_kernel_latent_attention_pair_bf16),
                                       NAMED(fig_kernel_latent_attention_pair_f16)};
#define ENTRY fig_latent_attention_pair_entry
#define KIND FOR_PAIR
#else
#include "kernels/latent/latent_wide.cu"
static const named_kernel kernels[] = {NAMED(fig_kernel_latent_attention_wide_bf16),
                                       NAMED(fig_kernel_latent_attention_wide_f16),
                                       NAMED(fig_kernel_latent_attention_wide_bf16_ahead),
                                       NAMED(fig_kernel_latent_attention_wide_f16_ahead)};
#define ENTRY fig_latent_attention_wide_entry
#define KIND FOR_WIDE
#endif

#include "tests/kernels/latent/block_case.hpp"

static void run_kernel(const void *params) {
    char name[FIG_ENTRY_BYTES];
    ENTRY(params, name);
    for (const named_kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0)
            return kernel.run(*(const fig_latent_attention_params *)params);
    fault = "there is no such kernel";
}

/* Runs a side of the case. Returns NULL, or what it did wrong. */
static const char *run_side(latent_case *c, fig_random *random, int is_kernel) {
    fig_latent_attention_params *p = &c->params;
    const int32_t blocks = p->split.workers * (KIND == FOR_PAIR && is_kernel ? 2 : 1);
    gridDim.x = (uint32_t)blocks;
    gifts.assign(gridDim.x, {});
    cluster_blocks = p->split.workers / (p->split.row_limit * p->split.groups);
    is_giving = KIND == FOR_SHORT && is_kernel;
    const char *wrong = NULL;
    if (is_giving) wrong = steps_launch(run_kernel, NULL, p, blocks, random);
    is_giving = 0;
    if (wrong == NULL)
        wrong = steps_launch(is_kernel ? run_kernel : NULL, fig_latent_attention_reference, p,
                             blocks, random);
    if (wrong != NULL) return wrong;
    return is_clean(c) ? NULL : "the workspace is not zeros";
}

/* Returns 0 if the kernel does something wrong. */
static int try_case(uint64_t seed) {
    fig_random random = fig_random_seed(seed);
    latent_case c = {};
    draw_case(&c, &random, KIND);
    fig_latent_attention_params *p = &c.params;
    if (KIND != FOR_CODES) fig_latent_attention_wide_map(p, 0, &maps[0]);
    for (int side = 0; side < 2; side++) {
        p->out = c.out[side].data();
        p->lse = c.lse[side].data();
        const char *wrong = run_side(&c, &random, side);
        if (wrong == NULL) continue;
        printf("seed %llu, %d heads, %d workers: %s\n", (unsigned long long)seed, p->q_heads,
               p->split.workers, wrong);
        return 0;
    }
    return compare(&c, seed, p->dtype == FIG_F16 ? 4e-3f : 3e-2f);
}

int main(int argc, char **argv) {
    return steps_try(argc, argv, try_case);
}
