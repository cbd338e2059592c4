/* blas_few.h: matrix products of few rows by a kernel of the example's own.
 *
 * Such a product is as fast as its weights come from memory. A library's kernel asks for the first
 * of them when the launch before it has ended; this one asks before that, since no launch of the
 * step writes weights, and lets the next one do the same while it ends. What it does not take it
 * refuses, and cuBLAS serves. */
#ifndef EXAMPLES_BLAS_FEW_H
#define EXAMPLES_BLAS_FEW_H

#include "examples/blas.h"
#include "examples/blas_few_params.h"

/* How a product is dealt to so many blocks; NULL, or why it is not taken: a sentence's end. */
const char *blas_few_plan(const blas_product *product, int32_t blocks, blas_few_params *params);

/* The kernel, on this thread's GPU. 0; 1: there is none for this GPU, or this program has none. */
int blas_few_open(void);
void blas_few_close(void);
/* Where it was opened, and blas_few_plan takes the product. 0, or the driver's result. */
int blas_few_multiply(const blas_product *product, void *stream);
/* Blocks of a launch; 0 where it was not opened. */
int32_t blas_few_blocks(void);

#endif
