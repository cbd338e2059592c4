/* wide.h: defines the tile sizes of the warpgroup kernel, and how pages are divided into boxes.
 *
 * A tile is the set of kv tokens of one head that a warpgroup multiplies at once. It lies in shared
 * memory in columns of 128 or 64 bytes:
 *
 *     [blocks of 8 tokens][column][token][bytes of the column, swizzled]
 *
 * Such blocks serve as an operand both of a product along the dims, for K, and of a product across
 * the tokens, for V. One box of the copy engine brings all columns of all whole blocks that a page
 * holds. If the page size is no multiple of 8 tokens, a box brings one column of at most 4 tokens.
 * nvcc and gcc both read this file. Invariant: the file holds only constants and arithmetic. */
#ifndef FIG_KERNELS_WIDE_H
#define FIG_KERNELS_WIDE_H

#include "kernels/attention/geometry.h"
#include "kernels/common/params.h"
#include "planner/plans/strips.h"

enum {
    FIG_WIDE_WARPS = 12,           /* one warpgroup loads, and two multiply */
    FIG_WIDE_BLOCK = 8,            /* tokens of a block */
    FIG_WIDE_HEAD_LIMIT = 1 << 16, /* elements from head to head; keeps numbers of columns small */
    FIG_WIDE_SHARED_LIMIT = 227 * 1024,
    FIG_WIDE_STATE_BYTES = 2048 /* barriers and notes after the ring */
};

/* Returns 1 if the kernel has instances for the head_dim. */
FIG_FORM int32_t fig_wide_has(int32_t head_dim) {
    return head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

/* Returns the tokens of a tile. With 256 dims, the products of more tokens do not fit in a thread's
 * registers. */
FIG_FORM int32_t fig_wide_tile(int32_t head_dim) {
    return head_dim > 128 ? 64 : 128;
}

/* Returns the dims of a column. The engine swizzles columns of 128 bytes, or of 64 bytes if the
 * bytes of a head are no multiple of 128. */
FIG_FORM int32_t fig_wide_column(int32_t head_dim) {
    return head_dim % 64 == 0 ? 64 : 32;
}

FIG_FORM int32_t fig_wide_columns(int32_t head_dim) {
    return head_dim / fig_wide_column(head_dim);
}

/* Returns the bytes of the K or the V of a tile. */
FIG_FORM int32_t fig_wide_side_bytes(int32_t head_dim) {
    return fig_wide_tile(head_dim) * head_dim * 2;
}

/* Returns the bytes of the queries of a warpgroup. */
FIG_FORM int32_t fig_wide_q_bytes(int32_t head_dim) {
    return FIG_STRIPS_HALF * head_dim * 2;
}

/* Returns the number of tiles that fit in shared memory beside the queries. */
FIG_FORM int32_t fig_wide_stages(int32_t head_dim) {
    return (FIG_WIDE_SHARED_LIMIT - FIG_WIDE_STATE_BYTES - 2 * fig_wide_q_bytes(head_dim)) /
           (2 * fig_wide_side_bytes(head_dim));
}

FIG_FORM int32_t fig_wide_shared_bytes(int32_t head_dim) {
    return 2 * fig_wide_q_bytes(head_dim) +
           2 * fig_wide_stages(head_dim) * fig_wide_side_bytes(head_dim) + FIG_WIDE_STATE_BYTES;
}

/* Returns the tokens of one box: the largest power of two that divides the page size, but at most a
 * tile. */
FIG_FORM int32_t fig_wide_box(int32_t page_size, int32_t head_dim) {
    return (page_size & -page_size) < fig_wide_tile(head_dim) ? page_size & -page_size
                                                              : fig_wide_tile(head_dim);
}

/* Returns the distance, in columns, between the beginnings of two neighbouring heads of a token, if
 * it is a whole number of columns; V may lie between the heads of K. A box then finds a head by its
 * column. Returns 0 if the heads are laid out otherwise: pages and heads then form one
 * dimension. */
FIG_FORM int32_t fig_wide_head_columns(const fig_cache_strides *strides, int32_t kv_heads,
                                       int32_t head_dim) {
    const int32_t column = fig_wide_column(head_dim);
    if (kv_heads == 1 || strides->head == head_dim) return fig_wide_columns(head_dim);
    if (strides->head % column != 0 || strides->head > FIG_WIDE_HEAD_LIMIT) return 0;
    if (strides->head * (kv_heads - 1) + head_dim > strides->token) return 0;
    return (int32_t)(strides->head / column);
}

#endif
