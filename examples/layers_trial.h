/* layers_trial.h: steps of one engine, from what they need to how long they took. */
#ifndef EXAMPLES_LAYERS_TRIAL_H
#define EXAMPLES_LAYERS_TRIAL_H

#include <figraph_ranks.h>

#include "examples/layers_weights.h"

enum { LAYERS_ROW_LIMIT = 256 };

typedef struct layers_trial_options {
    const blas *blas;
    fig_device device;
    int32_t ordinal;
    int32_t rows, kv, steps; /* steps: that are timed */
    int first_way;           /* 1: no other way to multiply is tried */
} layers_trial_options;

typedef struct layers_trial {
    const layers_trial_options *options;
    const fig_graphs *graphs;
    fig_ranks *ranks; /* NULL: alone, whatever part it has */
    layers_part part;
    uint16_t
        *result; /* [rows][hidden], on the host: the state that the first step leaves; or NULL */
    /* The rest is the trial's own. */
    layers_weights weights;
    uint16_t *qkv, *state, *norm;  /* where the tensors lie */
    uint16_t *widest, *widest_out; /* for products that are tried */
    uint16_t **caches;             /* [2 * layers] */
    int32_t *table;                /* [rows][row_pages] */
    int32_t row_pages;
    fig_engine *engine;
    double weights_s, tune_s; /* to fill memory; to try products */
    double first_s, step_s;   /* the first step, from graphs on; a step */
} layers_trial;

/* 0, or 2 with a sentence on stderr; what was opened is closed. */
int layers_trial_run(layers_trial *trial);
double layers_trial_now_s(void);

#endif
