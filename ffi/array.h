/* array.h: memory that a foreign caller hands over, in the one form that both interfaces decode to.
 *
 * Owns what may be asked of an array and the sentence where it is not so; who decodes one is
 * tvm_call.c or xla_call.c, what an operation asks is in the operation's file. Every sentence
 * begins with the parameter's name. Invariant: strides are filled in, and data is the address of
 * the first element, whatever offset it came with. */
#ifndef FIG_FFI_ARRAY_H
#define FIG_FFI_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "include/figraph.h"

enum { FIG_ARRAY_RANK_LIMIT = 8, FIG_ARRAY_TYPE_TEXT = 32 };

/* A refusal because of a type, which Python knows as TypeError; FIG_INVALID is its ValueError. It
 * is no status of the public header, and never leaves the library. */
#define FIG_ARRAY_WRONG_TYPE ((fig_status)19)

typedef struct fig_array {
    const char *name; /* of the parameter; NULL: the caller left it out */
    void *data;       /* may be NULL where there is no element */
    fig_dtype dtype;  /* 0: one that this library does not compute with, such as bytes of scratch */
    uint32_t bits;    /* of one element */
    char type[FIG_ARRAY_TYPE_TEXT]; /* what the caller would call it: "float16" */
    fig_device device;              /* FIG_DEVICE_HOST or FIG_DEVICE_CUDA */
    int32_t ordinal;                /* cuda: which */
    int32_t rank;
    int64_t dims[FIG_ARRAY_RANK_LIMIT];
    int64_t strides[FIG_ARRAY_RANK_LIMIT]; /* in elements; 1 past dims of 1 as if packed */
} fig_array;

/* FIG_INVALID where a number is no fig_dtype that this library computes with. `what` begins the
 * sentence. */
fig_status fig_array_read_dtype(const char *what, int64_t number, fig_dtype *dtype);
/* 1: there is one. Of an absent array nothing else may be asked. */
int fig_array_is_present(const fig_array *array);
/* Strides of a row-major array without gaps. */
void fig_array_pack(fig_array *array);
int64_t fig_array_count(const fig_array *array); /* of elements */
uint64_t fig_array_bytes(const fig_array *array);
/* For a decoder, so that from here on no count of an array's is more than its type holds. */
fig_status fig_array_check_size(const fig_array *array);
/* From the first element to the end of the last, as strides spread them. */
uint64_t fig_array_span(const fig_array *array);

fig_status fig_array_check_rank(const fig_array *array, int32_t rank);
fig_status fig_array_check_dim(const fig_array *array, int32_t dim, int64_t extent);
/* The same dims in both. */
fig_status fig_array_check_alike(const fig_array *array, const fig_array *other);
fig_status fig_array_check_dtype(const fig_array *array, fig_dtype dtype);
fig_status fig_array_check_integers(const fig_array *array);   /* i32 or i64 */
fig_status fig_array_check_activation(const fig_array *array); /* f32, f16 or bf16 */
int fig_array_is_dense(const fig_array *array);
/* Row-major without gaps; check_rows asks it of the last dim alone. */
fig_status fig_array_check_dense(const fig_array *array);
fig_status fig_array_check_rows(const fig_array *array);
/* Where the call runs is where its first array lies; every other lies there too. */
fig_status fig_array_check_device(const fig_array *array, const fig_array *first);

#endif
