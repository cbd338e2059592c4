/* overlap.h: whether two strided arrays share a byte.
 *
 * Pure arithmetic on addresses; who may lie on whom is binding.c's. Views of one allocation, q
 * inside packed qkv or K and V in one pool, interleave without meeting, so ranges alone cannot
 * tell. Invariant: the answer is exact, whatever the strides. */
#ifndef FIG_ENGINE_OVERLAP_H
#define FIG_ENGINE_OVERLAP_H

#include <stddef.h>
#include <stdint.h>

/* From the smallest stride up, each steps over all that those below it reach. */
typedef struct fig_overlap_array {
    uintptr_t address;
    size_t item_bytes;
    int32_t rank; /* <= 4 */
    int64_t dims[4];
    int64_t strides[4]; /* in elements; of a dimension of 1 any */
} fig_overlap_array;

/* Costs as many steps as the one with fewer has runs of neighbouring bytes; where both repeat at
 * the same distance, those of one repetition. */
int fig_overlap_meets(const fig_overlap_array *a, const fig_overlap_array *b);

#endif
