/* sums.h: the result of a vector while parts of its tokens have been seen, for the reference
 * kernels of attention.
 *
 * Owns the arithmetic of these results: they are stored, added up and finished. Invariant: results
 * are relative to the greatest logit of their own tokens, so adding two of them rescales both. */
#ifndef FIG_KERNELS_SUMS_H
#define FIG_KERNELS_SUMS_H

#include <math.h>
#include <stdint.h>

/* The result of a vector so far: the sum of weight * v and the sum of weights, both relative to the
 * greatest logit, which is -INFINITY if there was no token yet. */
typedef struct fig_sums {
    float *values; /* [dims] */
    float greatest, weights;
} fig_sums;

/* Where results are kept. */
typedef struct fig_sums_store {
    float *values; /* [count][dims] */
    float *states; /* [count][2]: greatest and weights */
    int32_t dims;
} fig_sums_store;

/* Returns the factor for a sum whose greatest logit grows from `from` to `to`. The factor is 0 if
 * there was no logit yet, because -inf - -inf would be NaN. */
static inline float fig_sums_shrink(float from, float to) {
    return from == -INFINITY ? 0 : exp2f(from - to);
}
void fig_sums_keep(const fig_sums_store *to, int64_t at, const fig_sums *sums);
/* Adds the result at `at` to *all. */
void fig_sums_add(const fig_sums_store *from, int64_t at, fig_sums *all);
/* Adds the sink, unless it is NULL, and returns the factor that makes attention's result of the
 * values. v_scale: the scale of V. */
float fig_sums_finish(const float *sink, float v_scale, fig_sums *sums);

#endif
