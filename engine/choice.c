/* choice.c: which device serves a caller.
 *
 * AUTO becomes the host only where there is no driver or no GPU, and the caller named none. A GPU
 * that cannot be used is an error and not another device: the caller may have memory of it, which
 * the host would read as its own. */
#include "engine/choice.h"

#include "engine/cuda/cuda_gpu.h"
#include "planner/status.h"

fig_status fig_choice_of_device(const fig_choice_wish *wish, fig_device *device) {
    const fig_device wanted = wish->device;
    *device = FIG_DEVICE_HOST;
    if (wanted != FIG_DEVICE_AUTO && wanted != FIG_DEVICE_HOST && wanted != FIG_DEVICE_CUDA)
        return fig_fail(FIG_INVALID, "%s: device is %d, which no fig_device is", wish->who,
                        (int)wanted);
    if (wanted == FIG_DEVICE_HOST) return FIG_OK;
    if (wanted == FIG_DEVICE_AUTO && !wish->is_named && fig_cuda_gpu_is_absent()) return FIG_OK;
    *device = FIG_DEVICE_CUDA;
    return FIG_OK;
}
