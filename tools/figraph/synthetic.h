/* synthetic.h: data made up from a seed, the same on every machine. */
#ifndef FIG_TOOLS_SYNTHETIC_H
#define FIG_TOOLS_SYNTHETIC_H

#include <figraph.h>

typedef struct fig_synthetic {
    uint64_t state;
} fig_synthetic;

void fig_synthetic_seed(fig_synthetic *synthetic, uint64_t seed); /* any seed, 0 included */
/* From 0 to below - 1; below >= 1. */
int32_t fig_synthetic_below(fig_synthetic *synthetic, int32_t below);
/* 0..count - 1 in a random order. */
void fig_synthetic_permutation(fig_synthetic *synthetic, int32_t *values, int32_t count);
/* Elements of both signs and full mantissas between 1/16 and 2. FIG_F32, FIG_F16 or FIG_BF16. */
void fig_synthetic_fill(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count);

/* Bytes of an element. */
size_t fig_synthetic_bytes(fig_dtype dtype);

#endif
