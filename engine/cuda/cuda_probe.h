/* cuda_probe.h: does this driver do what the library relies on, or what some do wrong?
 *
 * Each question is one small graph or capture of its own, on the GPU's stream aside; what was made
 * for it is gone when the answer is there. For fig_examine(); nothing that runs steps asks.
 *
 * The context is entered. */
#ifndef FIG_ENGINE_CUDA_CUDA_PROBE_H
#define FIG_ENGINE_CUDA_CUDA_PROBE_H

#include "engine/cuda/cuda_gpu.h"

/* Adds full and programmatic edges, in turn, to one graph of kernels; *kept: each is of its kind
 * yet. together: in one call, else one by one. The GPU's path is FIG_IMAGE_HOPPER. */
fig_status fig_cuda_probe_edges(fig_cuda_gpu *gpu, int together, int *kept);

/* Launches an exec into a stream that captures; *taken: the driver did not refuse. */
fig_status fig_cuda_probe_launch(fig_cuda_gpu *gpu, int *taken);

/* Puts a graph into a capture, as fig_engine_append does, and launches what was captured. */
fig_status fig_cuda_probe_splice(fig_cuda_gpu *gpu);

#endif
