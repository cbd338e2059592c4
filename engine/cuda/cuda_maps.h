/* cuda_maps.h: the tensor maps in a launch's params, which only the driver can make, and what else
 * its family fills in for a GPU.
 *
 * Leaves what a map says to the family that reads it. Invariant: where the family has no maps, or
 * the params no fields for them, params stay as they are. */
#ifndef FIG_ENGINE_CUDA_MAPS_H
#define FIG_ENGINE_CUDA_MAPS_H

#include "engine/cuda/cuda_gpu.h"

/* params: the launch's, 64-byte aligned, with every address filled in. */
fig_status fig_cuda_maps_fill(fig_cuda_gpu *gpu, fig_op op, uint32_t family, uint8_t *params);

#endif
