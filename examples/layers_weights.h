/* layers_weights.h: makes random weights of whole layers, and declares callbacks that use them. */
#ifndef EXAMPLES_LAYERS_WEIGHTS_H
#define EXAMPLES_LAYERS_WEIGHTS_H

#include <figraph.h>

#include "examples/blas.h"
#include "examples/layers_record.h"

/* A rank's part of a model. */
typedef struct layers_part {
    fig_spec model, share; /* all defaults filled in */
    int32_t hidden, rank, ranks;
} layers_part;

/* The weights of one rank. */
typedef struct layers_weights {
    const blas *blas;
    layers_part part;
    uint16_t *numbers; /* [number_count]: all matrices are made of these */
    size_t number_count;
    uint16_t **matrices; /* [layers * LAYERS_MATRICES] */
    int32_t matrix_count;
} layers_weights;

/* Makes the weights of the part. The number at a position of the model's matrices does not depend
 * on the count of ranks. Returns 0, or 1 after printing a sentence on stderr. */
int layers_weights_open(layers_weights *weights, const blas *of, const layers_part *part);
/* Returns the bytes that layers_weights_open() allocates on the device. */
int64_t layers_weights_bytes(const layers_part *part);
void layers_weights_close(layers_weights *weights);

/* Fills the keys or the values of one layer's cache, for all tokens. number: 2 * layer for keys,
 * and one more for values. to: [tokens][kv_heads][head_dim] of the share. */
int layers_weights_fill_cache(const layers_weights *weights, int32_t number, int64_t tokens,
                              uint16_t *to);
/* Fills the state. to: [rows][hidden]. */
int layers_weights_fill_state(const layers_weights *weights, int32_t rows, uint16_t *to);

/* The callbacks of the program. user: the layers_weights. */
int32_t layers_weights_project(void *user, const fig_call_args *args);
int32_t layers_weights_embed(void *user, const fig_call_args *args);
/* Finds the fastest algorithms for products of `rows` rows. x and y hold rows of the widest input
 * and output. */
int layers_weights_tune(const layers_weights *weights, int32_t rows, const uint16_t *x,
                        uint16_t *y);

#endif
