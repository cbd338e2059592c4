/* random.h: a small random number generator with a seed, so that a random test can be repeated.
 *
 * A test owns its generator, and prints the seed if it fails. Invariant: the same seed gives the
 * same numbers on every machine and in every build. */
#ifndef FIG_TESTS_SUPPORT_RANDOM_H
#define FIG_TESTS_SUPPORT_RANDOM_H

#include <assert.h>
#include <stdint.h>

typedef struct fig_random {
    uint64_t state;
} fig_random;

static inline fig_random fig_random_seed(uint64_t seed) {
    return (fig_random){seed};
}

/* splitmix64. Its period does not depend on the state, so every seed is good. */
static inline uint64_t fig_random_bits(fig_random *random) {
    uint64_t bits = random->state += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
    return bits ^ (bits >> 31);
}

/* Uniform in [low, high], both ends included. The bias is below 2^-32 of the range. */
static inline int32_t fig_random_range(fig_random *random, int32_t low, int32_t high) {
    assert(low <= high);
    uint64_t count = (uint64_t)((int64_t)high - low + 1);
    uint64_t drawn = (fig_random_bits(random) >> 32) * count >> 32;
    return (int32_t)(low + (int64_t)drawn);
}

/* Uniform in [-1, 1). */
static inline float fig_random_float(fig_random *random) {
    return (float)(fig_random_bits(random) >> 40) * 0x1p-23f - 1.0f;
}

/* Mean 0, variance 1, never beyond 6. The result is the sum of twelve uniform draws of 16 bits. */
static inline float fig_random_normal(fig_random *random) {
    int32_t sum = -12 * 0x8000;
    for (int i = 0; i < 3; i++)
        for (uint64_t bits = fig_random_bits(random), n = 0; n < 4; n++, bits >>= 16)
            sum += (int32_t)(bits & 0xffff);
    return (float)sum * 0x1p-16f;
}

#endif
