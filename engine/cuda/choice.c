/* choice.c: chooses the device that serves a caller.
 *
 * FIG_DEVICE_AUTO selects the host only if the machine has no driver or no GPU, and the caller
 * named no GPU. If there is a GPU but it cannot be used, the call fails instead of falling back to
 * the host: the caller may hold addresses of GPU memory, which the host would take for its own. */
#include "engine/cuda/choice.h"

#include "engine/driver/cuda_gpu.h"
#include "planner/status.h"

fig_status fig_choice_of_device(const fig_choice_wish *wish, fig_device *device) {
    const fig_device wanted = wish->device;
    *device = FIG_DEVICE_HOST;
    if (wanted != FIG_DEVICE_AUTO && wanted != FIG_DEVICE_HOST && wanted != FIG_DEVICE_CUDA)
        return fig_fail(FIG_INVALID, "%s: device is %d, which is no fig_device", wish->who,
                        (int)wanted);
    if (wanted == FIG_DEVICE_HOST) return FIG_OK;
    if (wanted == FIG_DEVICE_AUTO && !wish->is_named && fig_cuda_gpu_is_absent()) return FIG_OK;
    *device = FIG_DEVICE_CUDA;
    return FIG_OK;
}
