/* overlap.h: decides whether two strided arrays share a byte.
 *
 * This file only compares addresses; binding.c decides which tensors may overlap. Views of one
 * allocation, such as q inside packed qkv or K and V in one pool, can interleave without sharing a
 * byte, so a comparison of address ranges is not enough. Invariant: the answer is exact for all
 * strides. */
#ifndef FIG_ENGINE_OVERLAP_H
#define FIG_ENGINE_OVERLAP_H

#include <stddef.h>
#include <stdint.h>

/* An array of items in memory. Each stride is at least as large as the reach of all dimensions with
 * smaller strides together, so no two indices share a byte. */
typedef struct fig_overlap_array {
    uintptr_t address;
    size_t item_bytes;
    int32_t rank; /* <= 4 */
    int64_t dims[4];
    int64_t strides[4]; /* in elements; ignored for a dimension of 1 */
} fig_overlap_array;

/* Returns 1 if the arrays share a byte. The time grows with the number of contiguous runs of bytes
 * in the array that has fewer of them. If both arrays repeat at the same outermost stride, only the
 * runs of one repetition count. */
int fig_overlap_meets(const fig_overlap_array *a, const fig_overlap_array *b);

#endif
