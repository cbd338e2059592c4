/* cuda_probe.h: tests the driver's behaviour where the library relies on it and some drivers have
 * faults.
 *
 * Each function builds one small graph or capture on the GPU's stream `aside`, and destroys all its
 * objects before it returns. Only fig_examine() calls these functions; code that runs steps never
 * does.
 *
 * The caller has entered the GPU's context for every function. */
#ifndef FIG_ENGINE_CUDA_CUDA_PROBE_H
#define FIG_ENGINE_CUDA_CUDA_PROBE_H

#include "engine/driver/cuda_gpu.h"

/* Adds full and programmatic edges alternately to one graph of kernels. A programmatic edge lets a
 * kernel begin before the previous kernel has ended; a full edge does not. Sets *kept to 1 if each
 * edge still has its type afterwards. together: 1: adds all edges in one call; 0: adds them one by
 * one. The GPU's path must be FIG_IMAGE_HOPPER. */
fig_status fig_cuda_probe_edges(fig_cuda_gpu *gpu, int together, int *kept);

/* Launches an exec into a stream that captures. Sets *taken to 1 if the driver did not refuse. */
fig_status fig_cuda_probe_launch(fig_cuda_gpu *gpu, int *taken);

/* Puts a graph into a capture, as fig_engine_append() does, and launches the captured graph. */
fig_status fig_cuda_probe_splice(fig_cuda_gpu *gpu);

#endif
