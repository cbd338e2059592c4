/* blas_few.h: declares the example's own kernel for matrix products of few rows.
 *
 * Such a product takes as long as reading its weights from memory. A library's kernel reads its
 * first weights after the previous launch has ended. This kernel reads them earlier, because no
 * launch of the step writes weights, and lets the next launch do the same. It refuses products
 * that it does not support; cuBLAS then multiplies them. */
#ifndef EXAMPLES_BLAS_FEW_H
#define EXAMPLES_BLAS_FEW_H

#include "examples/blas.h"
#include "examples/blas_few_params.h"

/* Divides a product among `blocks` blocks. Returns NULL, or the end of a sentence that says why the
 * kernel does not support the product. */
const char *blas_few_plan(const blas_product *product, int32_t blocks, blas_few_params *params);

/* Loads the kernel on the GPU of the calling thread. Returns 0, or 1 if this program has no kernel
 * for this GPU. */
int blas_few_open(void);
void blas_few_close(void);
/* Multiplies. Call it only after blas_few_open() succeeded, for a product that blas_few_plan()
 * accepts. Returns 0 or the result of the driver. */
int blas_few_multiply(const blas_product *product, void *stream);
/* Returns the number of blocks of a launch, or 0 if the kernel is not loaded. */
int32_t blas_few_blocks(void);

#endif
