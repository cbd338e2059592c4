/* runner.h: what a runner is made of.
 *
 * Owns nothing but the struct: runner.c opens and closes it, run.c reads it. Invariant: nothing of
 * it but the memo changes between open and close, so that any number of threads may read it. */
#ifndef FIG_ENGINE_RUNNER_H
#define FIG_ENGINE_RUNNER_H

#include "engine/runs/run_memo.h"
#include "engine/runs/run_order.h"
#include "engine/runs/run_tensors.h"

struct fig_runner {
    const fig_graphs *graphs;        /* the caller's, shared */
    const fig_program_view *program; /* theirs */
    const fig_run_device_api *api;
    fig_run_device *device;
    fig_traits traits, kernel_traits; /* the device's; as its kernels may rely on them */
    fig_run_tensors tensors;
    fig_run_memo *memo;
    fig_run_order order;
    uint32_t *haste; /* [launch_count] FIG_ATTENTION_*, where the plan was made by another run */
};

/* The params of a launch as far as nothing is bound; [FIG_PARAMS_LIMIT], of which those behind the
 * launch's own stay as they are. */
void fig_run_fill(const fig_runner *runner, const fig_run_shape *shape, uint32_t launch,
                  uint8_t *params);

#endif
