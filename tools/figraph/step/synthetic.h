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
/* Floats of both signs and full mantissas, between 1/16 and 2; of fp8 between 8 and 256, which its
 * scales make as large as the others, while what a step appends may saturate. */
void fig_synthetic_fill(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count);
/* Between 1/256 and 1/64. */
void fig_synthetic_scales(fig_synthetic *synthetic, float *scales, size_t count);

/* Bytes of an element. */
size_t fig_synthetic_bytes(fig_dtype dtype);

#endif
