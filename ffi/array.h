/* array.h: describes a foreign caller's array, in one form for both interfaces (TVM FFI and XLA
 * FFI).
 *
 * Owns the checks of an array and their messages, each of which begins with the parameter's name.
 * tvm_call.c and xla_call.c decode arrays; each operation's file decides which checks it needs.
 * Invariant: strides are filled in, and data is the address of the first element, with any byte
 * offset already added. */
#ifndef FIG_FFI_ARRAY_H
#define FIG_FFI_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_ARRAY_RANK_LIMIT = 8, FIG_ARRAY_TYPE_TEXT = 32 };

/* A status for wrong types, which becomes Python's TypeError; FIG_INVALID becomes ValueError. The
 * public header lacks this status, and it never leaves the library. */
#define FIG_ARRAY_WRONG_TYPE ((fig_status)19)

typedef struct fig_array {
    const char *name; /* the parameter's name; NULL: the caller left the array out */
    void *data;       /* may be NULL if there are no elements */
    fig_dtype dtype;  /* 0: a type with which this library does not compute, such as bytes */
    uint32_t bits;    /* the size of one element */
    char type[FIG_ARRAY_TYPE_TEXT]; /* the caller's name for the type: "float16" */
    fig_device device;              /* FIG_DEVICE_HOST or FIG_DEVICE_CUDA */
    int32_t ordinal;                /* the number of the GPU */
    int32_t rank;
    int64_t dims[FIG_ARRAY_RANK_LIMIT];
    int64_t strides[FIG_ARRAY_RANK_LIMIT]; /* in elements; packed strides for dims of size 1 */
} fig_array;

/* Converts a number to a fig_dtype. Returns FIG_INVALID if this library does not compute with that
 * dtype. `what` begins the message. */
fig_status fig_array_read_dtype(const char *what, int64_t number, fig_dtype *dtype);
/* Returns 1 if the caller gave the array. No other function accepts an absent array. */
int fig_array_is_present(const fig_array *array);
/* Fills in the strides of a row-major array without gaps. */
void fig_array_pack(fig_array *array);
int64_t fig_array_count(const fig_array *array); /* the number of elements */
uint64_t fig_array_bytes(const fig_array *array);
/* Decoders call this function. If it succeeds, no count of the array overflows its type, and the
 * array ends within the address space. */
fig_status fig_array_check_size(const fig_array *array);
/* Returns the distance in bytes from the first element to the end of the last one in memory. */
uint64_t fig_array_span(const fig_array *array);

fig_status fig_array_check_rank(const fig_array *array, int32_t rank);
fig_status fig_array_check_dim(const fig_array *array, int32_t dim, int64_t extent);
fig_status fig_array_check_least(const fig_array *array, int32_t dim, int64_t least);
/* Checks that both arrays have the same dims. */
fig_status fig_array_check_alike(const fig_array *array, const fig_array *other);
fig_status fig_array_check_dtype(const fig_array *array, fig_dtype dtype);
fig_status fig_array_check_integers(const fig_array *array);   /* i32 or i64 */
fig_status fig_array_check_activation(const fig_array *array); /* f32, f16 or bf16 */
int fig_array_is_bytes(const fig_array *array);                /* uint8 */
int fig_array_is_dense(const fig_array *array);
/* Checks that the array is row-major without gaps; check_rows checks only the last dim. */
fig_status fig_array_check_dense(const fig_array *array);
fig_status fig_array_check_rows(const fig_array *array);
/* Joins the first two dims: changes an array [rows][tokens]... to [rows * tokens]..., in place.
 * FIG_INVALID: the strides do not allow that. */
fig_status fig_array_join(fig_array *array);
/* Splits an array [n][2]... into two interleaved arrays [n]...; `array` may be halves[0]. */
fig_status fig_array_halve(const fig_array *array, const char *const names[2],
                           fig_array *const halves[2]);
/* Checks that this array is on the device where the call runs: that of the call's first array. */
fig_status fig_array_check_device(const fig_array *array, const fig_array *first);

#endif
