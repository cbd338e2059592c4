/* angle.h: where a query token stands, for rope's twin and its kernel alike.
 *
 * Leaves angles, position * frequency, to its callers. Invariant: params and the plan alone say
 * it. */
#ifndef FIG_KERNELS_ANGLE_H
#define FIG_KERNELS_ANGLE_H

#include "kernels/params.h"

/* One of an array of FIG_I32 or FIG_I64. */
FIG_BOTH int64_t fig_angle_integer(const void *array, int32_t dtype, int32_t i) {
    return dtype == FIG_I64 ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

/* The last i of which indptr[i] <= row: the segment that holds the row, since those before it that
 * begin there too are empty; -1: the row is before the first; segments: behind the last. */
FIG_BOTH int32_t fig_angle_segment(const fig_rope_params *p, int32_t row) {
    int32_t low = -1, high = p->segments + 1;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (fig_angle_integer(p->indptr, p->packed_dtype, middle) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* 0: the token is in no segment, and stands nowhere. */
FIG_BOTH int fig_angle_position(const fig_rope_params *p, int32_t row, int64_t *position) {
    *position = 0;
    if (p->indptr != NULL) {
        int32_t segment = fig_angle_segment(p, row);
        if (segment < 0 || segment >= p->segments) return 0;
        *position = fig_angle_integer(p->offsets, p->packed_dtype, segment) + row -
                    fig_angle_integer(p->indptr, p->packed_dtype, segment);
    } else if (p->positions == NULL) {
        int32_t before_last = p->rows.multiple - 1 - row % p->rows.multiple;
        const int32_t *last = (const int32_t *)(p->plan + p->positions_offset);
        *position = (int64_t)last[row / p->rows.multiple] - before_last;
        if (*position < 0) *position = 0; /* of an idle row */
    } else {
        *position = fig_angle_integer(p->positions, p->positions_dtype, row);
    }
    return 1;
}

#endif
