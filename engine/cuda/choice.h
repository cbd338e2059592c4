/* choice.h: chooses the device that serves a caller.
 *
 * Invariant: the choice depends on the caller's request and on this machine, but on no environment
 * variable. */
#ifndef FIG_ENGINE_CHOICE_H
#define FIG_ENGINE_CHOICE_H

#include "include/figraph.h"

typedef struct fig_choice_wish {
    const char *who;   /* the first word of error messages: "engine" */
    fig_device device; /* as the caller gave it */
    int is_named;      /* 1: the caller named a GPU, or passed an object that belongs to one */
} fig_choice_wish;

/* Sets *device to FIG_DEVICE_HOST or FIG_DEVICE_CUDA. */
fig_status fig_choice_of_device(const fig_choice_wish *wish, fig_device *device);

#endif
