/* choice.h: which device serves a caller.
 *
 * Invariant: the answer rests on what the caller named and on what this machine has, and on no
 * environment. */
#ifndef FIG_ENGINE_CHOICE_H
#define FIG_ENGINE_CHOICE_H

#include "include/figraph.h"

typedef struct fig_choice_wish {
    const char *who;   /* begins the sentence of a refusal: "engine" */
    fig_device device; /* as the caller has it */
    int is_named;      /* 1: the caller named a GPU, or something of one */
} fig_choice_wish;

/* *device: FIG_DEVICE_HOST or FIG_DEVICE_CUDA. */
fig_status fig_choice_of_device(const fig_choice_wish *wish, fig_device *device);

#endif
