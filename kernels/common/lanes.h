/* lanes.h: the innermost loops of the reference kernels of attention, over vectors in f32.
 *
 * Sanitizers do not check these loops, because they would take most of the time of a test run.
 * Premise: the caller keeps the vectors in arrays of its own, whose size it knows to suffice; loops
 * that touch the memory of a program's tensors are not here. gcc alone reads this file. Invariant:
 * the order in which a sum adds its terms is always the same. */
#ifndef FIG_KERNELS_LANES_H
#define FIG_KERNELS_LANES_H

#include <stdint.h>

#define FIG_LANES static inline __attribute__((no_sanitize("address", "undefined", "thread")))

/* The number of sums that a dot product keeps side by side. Separate sums let the compiler use
 * vector instructions although it may not reorder a sum. */
enum { FIG_LANES_COUNT = 16 };

/* Returns the dot product of two vectors. count: a multiple of FIG_LANES_COUNT. */
FIG_LANES float fig_lanes_dot(const float *a, const float *b, int32_t count) {
    float lanes[FIG_LANES_COUNT] = {0}, sum = 0;
    for (int32_t i = 0; i < count; i += FIG_LANES_COUNT)
        for (int32_t lane = 0; lane < FIG_LANES_COUNT; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (int32_t lane = 0; lane < FIG_LANES_COUNT; lane++)
        sum += lanes[lane];
    return sum;
}

/* to *= factor */
FIG_LANES void fig_lanes_scale(float *to, float factor, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        to[i] *= factor;
}

/* to += from * factor */
FIG_LANES void fig_lanes_add(float *restrict to, const float *restrict from, float factor,
                             int32_t count) {
    for (int32_t i = 0; i < count; i++)
        to[i] += from[i] * factor;
}

/* to = to * keep + from * factor */
FIG_LANES void fig_lanes_mix(float *restrict to, float keep, const float *restrict from,
                             float factor, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        to[i] = to[i] * keep + factor * from[i];
}

/* to += rows[0] * factors[0] + rows[1] * factors[1] + ... */
FIG_LANES void fig_lanes_add_rows(float (*restrict to)[FIG_LANES_COUNT],
                                  const float (*restrict rows)[FIG_LANES_COUNT],
                                  const float *restrict factors, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t lane = 0; lane < FIG_LANES_COUNT; lane++)
            (*to)[lane] += rows[i][lane] * factors[i];
}

#endif
