/* blas_host.c: allocates memory and multiplies matrices on a machine without a GPU, in plain C. */
#include "examples/blas.h"

#include <stdlib.h>
#include <string.h>

static float number_of(uint16_t bf16) {
    const uint32_t bits = (uint32_t)bf16 << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Rounds to the nearest bf16, ties to even. */
static uint16_t bf16_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static int open_host(int32_t local_rank, int32_t *ordinal) {
    (void)local_rank;
    return *ordinal = 0;
}

static int do_nothing(void) {
    return 0;
}

static void close_host(void) {
}

static int move_host(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}

static int copy_block(const blas_block *block) {
    for (size_t row = 0; row < block->rows; row++)
        memcpy((char *)block->to + row * block->to_stride,
               (const char *)block->from + row * block->from_stride, block->row_bytes);
    return 0;
}

static int copy(void *to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

static int multiply(const blas_product *product, void *stream) {
    (void)stream;
    for (int32_t row = 0; row < product->rows; row++) {
        const uint16_t *x = product->x + (size_t)row * (size_t)product->depth;
        for (int32_t i = 0; i < product->width; i++) {
            const uint16_t *w = product->w + (size_t)i * (size_t)product->depth;
            float sum = 0;
            for (int32_t k = 0; k < product->depth; k++)
                sum += number_of(x[k]) * number_of(w[k]);
            product->y[(size_t)row * (size_t)product->y_stride + (size_t)i] =
                bf16_of(product->scale * sum);
        }
    }
    return 0;
}

static int tune(const blas_product *products, int32_t count) {
    (void)products;
    (void)count;
    return 0;
}

static void *allocate(size_t bytes) {
    return calloc(bytes / 64 + 1, 64); /* aligned to 16 bytes, as tensors must be */
}

const blas blas_host = {.open = open_host,
                        .open_products = do_nothing,
                        .close = close_host,
                        .allocate = allocate,
                        .release = free,
                        .move = move_host,
                        .copy_block = copy_block,
                        .wait = do_nothing,
                        .tune = tune,
                        .copy = copy,
                        .multiply = multiply};
