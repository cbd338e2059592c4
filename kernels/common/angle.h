/* angle.h: finds the position of a query token, for RoPE's CUDA kernel and for its reference
 * kernel.
 *
 * The callers compute angles, position * frequency. Invariant: the position follows only from
 * params and the plan. */
#ifndef FIG_KERNELS_ANGLE_H
#define FIG_KERNELS_ANGLE_H

#include "kernels/common/params.h"

/* Returns element i of an array of FIG_I32 or FIG_I64. */
FIG_BOTH int64_t fig_angle_integer(const void *array, int32_t dtype, int32_t i) {
    return dtype == FIG_I64 ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

/* Returns the segment that holds the row: the last i with indptr[i] <= row. Earlier segments that
 * begin at the same row are empty. Returns -1 if the row is before the first segment, and
 * `segments` if the row is after the last. */
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

/* Finds the position of a token. Returns 0 if the token is in no segment and so has no position. */
FIG_BOTH int fig_angle_position(const fig_rope_params *p, int32_t row, int64_t *position) {
    *position = 0;
    if (p->indptr != NULL) {
        int32_t segment = fig_angle_segment(p, row);
        if (segment < 0 || segment >= p->segments) return 0;
        *position = fig_angle_integer(p->offsets, p->packed_dtype, segment) + row -
                    fig_angle_integer(p->indptr, p->packed_dtype, segment);
    } else if (p->positions == NULL) {
        const fig_params_query query = fig_params_query_of(&p->rows, p->plan, row);
        const int32_t *last = (const int32_t *)(p->plan + p->positions_offset);
        *position = (int64_t)last[query.row] - (query.before_end - 1);
        if (*position < 0) *position = 0; /* in an idle row */
    } else {
        *position = fig_angle_integer(p->positions, p->positions_dtype, row);
    }
    return 1;
}

#endif
