/* runner.h: the runner's struct.
 *
 * This header only defines the struct; runner.c opens and closes a runner, and run.c reads the
 * struct. Invariant: between open and close only the memo changes, so any number of threads may use
 * a runner. */
#ifndef FIG_ENGINE_RUNNER_H
#define FIG_ENGINE_RUNNER_H

#include "engine/runs/run_memo.h"
#include "engine/runs/run_order.h"
#include "engine/runs/run_tensors.h"

struct fig_runner {
    const fig_graphs *graphs;        /* the caller owns and may share them */
    const fig_program_view *program; /* part of graphs */
    const fig_run_device_api *api;
    fig_run_device *device;
    fig_traits traits, kernel_traits; /* kernel_traits: the traits that kernels may rely on */
    fig_run_tensors tensors;
    fig_run_memo *memo;
    fig_run_order order;
    /* [launch_count] FIG_EARLY_READS_* or FIG_ATTENTION_* of each launch, for a plan that is
     * already complete */
    uint32_t *early_reads;
};

/* Fills in the params of a launch that do not depend on bindings. params is [FIG_PARAMS_LIMIT];
 * bytes past the end of the launch's params do not change. */
void fig_run_fill(const fig_runner *runner, const fig_run_shape *shape, uint32_t launch,
                  uint8_t *params);

#endif
