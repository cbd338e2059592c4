/* blas.h: what the example has beside figraph: memory, and matrix products.
 *
 * Two records with the same functions: cuBLAS on a GPU, and plain C where there is none, which is
 * slow and there to be tested. Every function returns 0, or says on stderr what went wrong. */
#ifndef EXAMPLES_BLAS_H
#define EXAMPLES_BLAS_H

#include <stddef.h>
#include <stdint.h>

/* y = scale * x w', of bf16, summed in f32; w is as checkpoints have it, a row for each output. */
typedef struct blas_product {
    const uint16_t *x; /* [rows][depth] */
    const uint16_t *w; /* [width][depth] */
    uint16_t *y;       /* [rows][y_stride], of which [rows][width] is written */
    int32_t rows, depth, width, y_stride;
    float scale;
} blas_product;

/* A block of a larger matrix; strides in bytes. */
typedef struct blas_block {
    void *to;
    const void *from;
    size_t to_stride, from_stride, row_bytes, rows;
} blas_block;

typedef struct blas {
    int (*open)(int32_t local_rank, int32_t *ordinal); /* a GPU becomes this thread's */
    int (*open_products)(void);
    void (*close)(void);
    void *(*allocate)(size_t bytes); /* NULL: there is no such memory */
    void (*release)(void *memory);
    int (*move)(void *to, const void *from, size_t bytes); /* from the host's memory, or to it */
    int (*copy_block)(const blas_block *block);
    int (*wait)(void); /* until all of these have ended */
    /* Tries how products of one shape are multiplied fastest, by [count] of them, whose weights are
     * not the same, so that none are in a cache. */
    int (*tune)(const blas_product *products, int32_t count);
    /* What a callback does, on the stream that it was given. */
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*multiply)(const blas_product *product, void *stream);
} blas;

extern const blas blas_host, blas_cuda;
/* GPUs that blas_cuda finds; 0 where it finds no CUDA. */
int32_t blas_cuda_count(void);

#endif
