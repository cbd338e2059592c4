/* synthetic.h: generates data from a seed, the same on every machine. */
#ifndef FIG_TOOLS_SYNTHETIC_H
#define FIG_TOOLS_SYNTHETIC_H

#include <figraph.h>

typedef struct fig_synthetic {
    uint64_t state;
} fig_synthetic;

void fig_synthetic_seed(fig_synthetic *synthetic, uint64_t seed); /* any seed, 0 included */
/* Returns a random number from 0 to below - 1; below >= 1. */
int32_t fig_synthetic_below(fig_synthetic *synthetic, int32_t below);
/* Fills values with 0..count - 1 in a random order. */
void fig_synthetic_permutation(fig_synthetic *synthetic, int32_t *values, int32_t count);
/* Fills elements with floats of both signs and full mantissas, of magnitude 1/16 to 2. For fp8 the
 * magnitude is 8 to 256; scales reduce it to that of the other types, and appended values may
 * saturate. */
void fig_synthetic_fill(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count);
/* Fills scales with numbers between 1/256 and 1/64. */
void fig_synthetic_scales(fig_synthetic *synthetic, float *scales, size_t count);
/* Fills the array of a score: i32 with numbers from 1 to 16, other dtypes with numbers of both
 * signs and a magnitude from 1/256 to 1, so that slopes, biases and masks leave weights of many
 * sizes. A float that is the only element is from 1 to 2, because a score may divide by it. */
void fig_synthetic_array(fig_synthetic *synthetic, fig_dtype dtype, void *elements, size_t count);

/* Returns the bytes of one element. */
size_t fig_synthetic_bytes(fig_dtype dtype);

#endif
