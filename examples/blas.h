/* blas.h: the memory and matrix products of the example, which figraph does not provide.
 *
 * Two records hold these functions: one uses cuBLAS on a GPU, the other is plain C for machines
 * without a GPU, slow and meant for tests. Every function returns 0, or prints the error on stderr
 * and returns another number. */
#ifndef EXAMPLES_BLAS_H
#define EXAMPLES_BLAS_H

#include <stddef.h>
#include <stdint.h>

/* A product y = scale * x w' of bf16 numbers, summed in f32. w has the layout of a checkpoint: one
 * row for each output. */
typedef struct blas_product {
    const uint16_t *x; /* [rows][depth] */
    const uint16_t *w; /* [width][depth] */
    uint16_t *y;       /* [rows][y_stride]; only [rows][width] is written */
    int32_t rows, depth, width, y_stride;
    float scale;
} blas_product;

/* A block of a larger matrix. The strides are in bytes. */
typedef struct blas_block {
    void *to;
    const void *from;
    size_t to_stride, from_stride, row_bytes, rows;
} blas_block;

typedef struct blas {
    int (*open)(int32_t local_rank, int32_t *ordinal); /* selects a GPU for the calling thread */
    int (*open_products)(void);
    void (*close)(void);
    void *(*allocate)(size_t bytes); /* returns NULL if there is not enough memory */
    void (*release)(void *memory);
    int (*move)(void *to, const void *from, size_t bytes); /* copies from or to host memory */
    int (*copy_block)(const blas_block *block);
    int (*wait)(void); /* waits until all submitted work has ended */
    /* Finds the fastest algorithm for products of one shape by timing [count] of them. The products
     * have different weights, so that no cache holds the weights. */
    int (*tune)(const blas_product *products, int32_t count);
    /* A callback uses the two functions below, on the stream that it receives. */
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*multiply)(const blas_product *product, void *stream);
} blas;

extern const blas blas_host, blas_cuda;
/* Returns the number of GPUs that blas_cuda finds, or 0 if it finds no CUDA. */
int32_t blas_cuda_count(void);

#endif
