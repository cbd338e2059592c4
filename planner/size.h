/* size.h: arithmetic on sizes that never wraps silently.
 *
 * The checked functions return 1 and leave *out unchanged if the result does not fit; the caller
 * then names the field that it was computing. Read by nvcc. */
#ifndef FIG_PLANNER_SIZE_H
#define FIG_PLANNER_SIZE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define FIG_BOTH static __host__ __device__ __forceinline__
#else
#define FIG_BOTH static inline
#endif

#ifndef __CUDACC__
static inline int fig_size_add(size_t *out, size_t a, size_t b) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return 1;
    *out = sum;
    return 0;
}

static inline int fig_size_multiply(size_t *out, size_t a, size_t b) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return 1;
    *out = product;
    return 0;
}

/* Returns x, with all but its three highest bits cleared. */
static inline int64_t fig_size_rounded(int64_t x) {
    int32_t bits = 0;
    while (x >> bits >= 8)
        bits++;
    return x >> bits << bits;
}
#endif

/* Rounds up to a multiple of `unit`, a power of two. The caller makes sure that the result fits. */
FIG_BOTH uint64_t fig_size_align(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) & ~(unit - 1);
}

FIG_BOTH int32_t fig_size_ceil_div(int32_t a, int32_t b) {
    return a / b + (a % b != 0);
}

FIG_BOTH int32_t fig_size_min(int32_t a, int32_t b) {
    return a < b ? a : b;
}

#endif
