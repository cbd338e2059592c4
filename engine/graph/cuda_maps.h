/* cuda_maps.h: completes the params of a launch on a GPU.
 *
 * Only the driver can make tensor maps, so this file calls it for each map. It also calls the
 * family's `finish`, which fills in the family's other fields. The family decides what each map
 * describes. Invariant: params stay unchanged if the family has no maps and no `finish`. */
#ifndef FIG_ENGINE_CUDA_MAPS_H
#define FIG_ENGINE_CUDA_MAPS_H

#include "engine/driver/cuda_gpu.h"

/* params: the params of the launch, aligned to 64 bytes, with every address filled in. */
fig_status fig_cuda_maps_fill(fig_cuda_gpu *gpu, fig_op op, uint32_t family, uint8_t *params);

#endif
