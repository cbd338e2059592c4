/* head_dims.h: lists the head_dims that the library has, and the kernels compiled for each.
 *
 * gcc and nvcc both read this list. The checks of specs and caches, the refusals of families and
 * the instances of kernels all come from it. Invariant: the library refuses a head_dim that has no
 * row here, and each of the last two attention families serves every head_dim of the list. */
#ifndef FIG_PLANNER_HEAD_DIMS_H
#define FIG_PLANNER_HEAD_DIMS_H

#include "planner/size.h"

/* Calls X(bulk_wide, bulk_codes, short_wide, short_codes, whole, ..., head_dim) for each head_dim,
 * the smallest first. The flags are 0 or 1; the arguments in place of `...` are passed on.
 *   bulk_wide   a token of 16-bit values is a whole number of the bulk copy engine's boxes
 *   bulk_codes  the same for 8-bit values
 *   short_wide  attention_short.cuh has instances for it over caches of 16-bit values
 *   short_codes the same over caches of 8-bit values
 *   whole       whole_attention.cu has instances for it */
#define FIG_HEAD_DIMS(X, ...)                                                                      \
    X(1, 0, 1, 1, 1, __VA_ARGS__, 64)                                                              \
    X(0, 0, 0, 0, 0, __VA_ARGS__, 80)                                                              \
    X(1, 0, 1, 0, 0, __VA_ARGS__, 96)                                                              \
    X(1, 1, 1, 1, 1, __VA_ARGS__, 128)                                                             \
    X(1, 1, 1, 1, 0, __VA_ARGS__, 256)

/* Expands to the arguments after the flag if the flag is 1, and to nothing if the flag is 0. */
#define FIG_HEAD_DIMS_IF(flag, ...) FIG_HEAD_DIMS_IF_##flag(__VA_ARGS__)
#define FIG_HEAD_DIMS_IF_0(...)
#define FIG_HEAD_DIMS_IF_1(...) __VA_ARGS__

/* The list as words for messages; test_head_dims.c compares them with the list. */
#define FIG_HEAD_DIMS_TEXT "64, 80, 96, 128 and 256"
#define FIG_HEAD_DIMS_ANY_TEXT "64, 80, 96, 128 or 256"
#define FIG_HEAD_DIMS_SHORT_TEXT "64, 96, 128 or 256"
#define FIG_HEAD_DIMS_SHORT_CODES_TEXT "64, 128 or 256"
#define FIG_HEAD_DIMS_WHOLE_TEXT "64 or 128"

/* fig_head_dims_has() returns 1 if the library supports the head_dim. The other functions return 1
 * if it has kernels of their kind for the head_dim. */
#define FIG_HEAD_DIMS_IS(wide, codes, short_wide, short_codes, whole, given, dims)                 \
    || (given) == (dims)
#define FIG_HEAD_DIMS_IS_SHORT(wide, codes, short_wide, short_codes, whole, given, dims)           \
    || (short_wide && (given) == (dims))
#define FIG_HEAD_DIMS_IS_SHORT_CODES(wide, codes, short_wide, short_codes, whole, given, dims)     \
    || (short_codes && (given) == (dims))
#define FIG_HEAD_DIMS_IS_WHOLE(wide, codes, short_wide, short_codes, whole, given, dims)           \
    || (whole && (given) == (dims))
FIG_BOTH int fig_head_dims_has(int64_t given) {
    return 0 FIG_HEAD_DIMS(FIG_HEAD_DIMS_IS, given);
}

FIG_BOTH int fig_head_dims_has_short(int64_t given) {
    return 0 FIG_HEAD_DIMS(FIG_HEAD_DIMS_IS_SHORT, given);
}

FIG_BOTH int fig_head_dims_has_short_codes(int64_t given) {
    return 0 FIG_HEAD_DIMS(FIG_HEAD_DIMS_IS_SHORT_CODES, given);
}

FIG_BOTH int fig_head_dims_has_whole(int64_t given) {
    return 0 FIG_HEAD_DIMS(FIG_HEAD_DIMS_IS_WHOLE, given);
}

#endif
