/* many.h: lays out the shared memory of attention over rows of many query tokens, on warpgroups.
 *
 * A block has two warpgroups that read strips, with up to 64 query vectors each, and one that
 * loads: two of its warps fill the ring of strips, and two bring queries to the desk, which lies
 * before the ring:
 *
 *     [sheet 0][sheet 1][tray][state of the desk][slots][state of the ring]
 *
 * A sheet has the queries of 64 vectors. At the end of a piece the warpgroups exchange sums, in the
 * piece's sheet and in the tray. kernels/many has the kernel; nvcc and gcc both read this file.
 * Invariant: it holds only constants and arithmetic. */
#ifndef FIG_KERNELS_MANY_H
#define FIG_KERNELS_MANY_H

#include "kernels/attention/geometry.h"

enum {
    FIG_MANY_GROUPS = 2,
    FIG_MANY_GROUP_THREADS = 128,
    FIG_MANY_GROUP_VECTORS = 64,
    FIG_MANY_READERS = 8, /* warps that read strips */
    FIG_MANY_FILLERS = 4, /* two of them only complete a warpgroup */
    FIG_MANY_SLOT_BYTES = 32768,
    FIG_MANY_ABOVE = 16,   /* fewer vectors of a kv head leave most of a product unused */
    FIG_MANY_COLUMN = 128, /* bytes of a column */
    FIG_MANY_SHEETS = 2,
    FIG_MANY_DESK_BYTES = 2048,
    FIG_MANY_ALIGNMENT = 1024, /* of the swizzle */
    FIG_MANY_SHARED_LIMIT = 227 * 1024
};

/* Returns 1 if the kernel serves rows with this number of vectors of a kv head. */
FIG_FORM int32_t fig_many_serves(int32_t value_bytes, int32_t head_dim, int32_t vectors) {
    return value_bytes == 2 && (head_dim == 64 || head_dim == 128) && vectors > FIG_MANY_ABOVE &&
           vectors <= FIG_MANY_GROUPS * FIG_MANY_GROUP_VECTORS;
}

/* Returns the bytes of a sheet or of the tray, which holds half of the sums of 64 vectors. */
FIG_FORM int32_t fig_many_sheet_bytes(int32_t head_dim) {
    return FIG_MANY_GROUP_VECTORS * head_dim * 2;
}

/* Returns the tokens of a strip. */
FIG_FORM int32_t fig_many_strip(int32_t head_dim) {
    return FIG_MANY_SLOT_BYTES / (4 * head_dim);
}

/* Returns the bytes of the K or the V of a strip. */
FIG_FORM int32_t fig_many_side_bytes(int32_t head_dim) {
    return fig_many_strip(head_dim) * head_dim * 2;
}

/* Returns the bytes in front of the ring. */
FIG_FORM int32_t fig_many_front_bytes(int32_t head_dim) {
    return (FIG_MANY_SHEETS + 1) * fig_many_sheet_bytes(head_dim) + FIG_MANY_DESK_BYTES;
}

FIG_FORM int32_t fig_many_slots(int32_t head_dim) {
    return (FIG_MANY_SHARED_LIMIT - fig_many_front_bytes(head_dim) - FIG_GEOMETRY_STATE_BYTES) /
           (2 * fig_many_side_bytes(head_dim));
}

FIG_FORM int32_t fig_many_shared_bytes(int32_t head_dim) {
    return fig_many_front_bytes(head_dim) +
           2 * fig_many_slots(head_dim) * fig_many_side_bytes(head_dim) + FIG_GEOMETRY_STATE_BYTES;
}

#endif
