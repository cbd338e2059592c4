/* gated.h: deals stretches of rows to blocks of gated, for the reference kernel and the kernel.
 *
 * A row is cut into stretches of columns, as equal as whole warps allow. Thus a single row keeps
 * several SMs busy, and the same grid suits thousands of rows. Blocks are numbered row by row, so
 * the blocks of rows that a step does not have are the last ones. Invariant: all of this follows
 * from width and dtype, which are known before anything is bound. */
#ifndef FIG_KERNELS_GATED_H
#define FIG_KERNELS_GATED_H

#include "kernels/common/numeric.h"
#include "kernels/common/params.h"

enum { FIG_GATED_THREAD_LIMIT = 256, FIG_GATED_WARP = 32, FIG_GATED_VECTOR_BYTES = 16 };

/* For swiglu_limited: the bound of both halves, and the factor of the exponent. */
#define FIG_GATED_LIMIT 7.0f
#define FIG_GATED_SLOPE 1.702f

/* Returns the factor by which the activated gate is multiplied. */
FIG_BOTH float fig_gated_beside(float up, int32_t activation) {
    if (activation != FIG_SWIGLU_LIMITED) return up;
    if (up > FIG_GATED_LIMIT) up = FIG_GATED_LIMIT;
    if (up < -FIG_GATED_LIMIT) up = -FIG_GATED_LIMIT;
    return 1.0f + up;
}

typedef struct fig_gated_part {
    int32_t row, first, count; /* columns */
} fig_gated_part;

/* Returns the columns of a vector; each thread has one vector of each half. */
FIG_BOTH int32_t fig_gated_lanes(const fig_gated_params *p) {
    return FIG_GATED_VECTOR_BYTES / (p->dtype == FIG_F32 ? 4 : 2);
}

/* Returns the number of stretches of a row. */
FIG_BOTH int32_t fig_gated_stretches(const fig_gated_params *p) {
    return fig_size_ceil_div(p->width, FIG_GATED_THREAD_LIMIT * fig_gated_lanes(p));
}

/* Returns the number of threads of a block. */
FIG_BOTH int32_t fig_gated_threads(const fig_gated_params *p) {
    const int32_t columns = fig_gated_stretches(p) * fig_gated_lanes(p) * FIG_GATED_WARP;
    return fig_size_ceil_div(p->width, columns) * FIG_GATED_WARP;
}

/* Returns the part of a block. threads: the result of fig_gated_threads(), which a kernel has
 * without a division. */
FIG_BOTH fig_gated_part fig_gated_part_of(const fig_gated_params *p, int32_t threads,
                                          uint32_t block) {
    const int32_t stretch = threads * fig_gated_lanes(p);
    const uint32_t stretches = (uint32_t)fig_gated_stretches(p);
    fig_gated_part part;
    part.row = (int32_t)(block / stretches);
    part.first = (int32_t)(block % stretches) * stretch;
    part.count = fig_size_min(stretch, p->width - part.first);
    return part;
}

#endif
