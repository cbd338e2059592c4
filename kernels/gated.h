/* gated.h: which part of which row one block of gated does, for the twin and the kernel alike.
 *
 * A row is cut into stretches of columns, so that a single row keeps as many processors busy as it
 * has stretches, and thousands of rows need no other grid. Blocks are numbered row by row: rows
 * that a step does not have are the last ones. Invariant: all of it follows from width and dtype,
 * which are there before anything is bound. */
#ifndef FIG_KERNELS_GATED_H
#define FIG_KERNELS_GATED_H

#include "kernels/numeric.h"
#include "kernels/params.h"

enum {
    FIG_GATED_THREADS = 256,
    FIG_GATED_VECTORS = 1, /* of 16 bytes, of either half, that a thread has in flight */
    FIG_GATED_BYTES = 16 * FIG_GATED_THREADS * FIG_GATED_VECTORS /* of a stretch */
};

typedef struct fig_gated_part {
    int32_t row, first, count; /* columns */
} fig_gated_part;

/* Columns of a stretch. */
FIG_BOTH int32_t fig_gated_stretch(const fig_gated_params *p) {
    return FIG_GATED_BYTES / (p->dtype == FIG_F32 ? 4 : 2);
}

/* Stretches of a row. */
FIG_BOTH int32_t fig_gated_stretches(const fig_gated_params *p) {
    return fig_size_ceil_div(p->width, fig_gated_stretch(p));
}

FIG_BOTH fig_gated_part fig_gated_part_of(const fig_gated_params *p, uint32_t block) {
    const int32_t stretch = fig_gated_stretch(p);
    const uint32_t stretches = (uint32_t)fig_gated_stretches(p);
    fig_gated_part part;
    part.row = (int32_t)(block / stretches);
    part.first = (int32_t)(block % stretches) * stretch;
    part.count = fig_size_min(stretch, p->width - part.first);
    return part;
}

#endif
