/* layers_weights.h: made-up weights of whole layers, and the callback that multiplies by them. */
#ifndef EXAMPLES_LAYERS_WEIGHTS_H
#define EXAMPLES_LAYERS_WEIGHTS_H

#include <figraph.h>

#include "examples/blas.h"
#include "examples/layers_record.h"

/* A rank's part of a model. */
typedef struct layers_part {
    fig_spec model, share; /* every default filled in */
    int32_t hidden, rank, ranks;
} layers_part;

/* What one rank has of the weights. */
typedef struct layers_weights {
    const blas *blas;
    layers_part part;
    uint16_t *numbers; /* [number_count]: of these all matrices are made */
    size_t number_count;
    uint16_t **matrices; /* [layers * LAYERS_MATRICES] */
    int32_t matrix_count;
} layers_weights;

/* The same numbers for a place of the model's matrices, however many ranks share it. 0, or 1 with a
 * sentence on stderr. */
int layers_weights_open(layers_weights *weights, const blas *of, const layers_part *part);
void layers_weights_close(layers_weights *weights);

/* Numbers for the caches, of all layers and tokens: number 2 * layer for keys, and one more for
 * values. to: [tokens][kv_heads][head_dim] of the share. */
int layers_weights_fill_cache(const layers_weights *weights, int32_t number, int64_t tokens,
                              uint16_t *to);
/* Numbers for the state; to: [rows][hidden]. */
int layers_weights_fill_state(const layers_weights *weights, int32_t rows, uint16_t *to);

/* The callbacks; user: the weights. */
int32_t layers_weights_project(void *user, const fig_call_args *args);
int32_t layers_weights_embed(void *user, const fig_call_args *args);
/* Finds out how products of so many rows are multiplied fastest; x and y: rows of the widest. */
int layers_weights_tune(const layers_weights *weights, int32_t rows, const uint16_t *x,
                        uint16_t *y);

#endif
