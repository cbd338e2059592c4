/* layers_trial.h: runs and times the steps of one engine. */
#ifndef EXAMPLES_LAYERS_TRIAL_H
#define EXAMPLES_LAYERS_TRIAL_H

#include <figraph_ranks.h>

#include "examples/layers_weights.h"

enum { LAYERS_ROW_LIMIT = 256 };

typedef struct layers_trial_options {
    const blas *blas;
    fig_device device;
    int32_t ordinal;
    int32_t rows, kv, steps; /* steps: the number of timed steps */
    int first_way;           /* 1: use the first algorithm of cuBLASLt without tuning */
} layers_trial_options;

typedef struct layers_trial {
    const layers_trial_options *options;
    const fig_graphs *graphs;
    fig_ranks *ranks; /* NULL: the rank runs alone, even if it has only a part */
    layers_part part;
    uint16_t *result; /* [rows][hidden] on the host: the state after the first step; or NULL */
    int quiet;        /* 1: print no progress, because another rank does */
    /* layers_trial_run() sets all fields below. */
    layers_weights weights;
    uint16_t *qkv, *state, *norm;  /* memory of tensors */
    uint16_t *widest, *widest_out; /* input and output of products that are tuned */
    uint16_t **caches;             /* [2 * layers] */
    int32_t *table;                /* [rows][row_pages] */
    int32_t row_pages;
    fig_engine *engine;
    double weights_s, tune_s; /* seconds to fill memory; seconds to tune */
    double first_s, step_s;   /* seconds of the first step, with opening; seconds of a later step */
} layers_trial;

/* Returns 0, or 2 after printing a sentence on stderr. Closes everything that it opened. */
int layers_trial_run(layers_trial *trial);
double layers_trial_now_s(void);

#endif
