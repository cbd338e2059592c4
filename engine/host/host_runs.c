/* host_runs.c: the host as the device of a runner: the calling thread runs the reference kernels.
 *
 * This device has no state, so its fig_run_device is NULL. Invariant: a launch has ended when it
 * returns. */
#include "engine/seam/run_device.h"

#include <stddef.h>

#include "planner/status.h"

static fig_status host_open(fig_run_device **device, const fig_runner_options *options) {
    (void)options;
    *device = NULL;
    return FIG_OK;
}

static void host_close(fig_run_device *device) {
    (void)device;
}

static void host_read_traits(const fig_run_device *device, fig_traits *traits) {
    (void)device;
    *traits = (fig_traits){.size = sizeof *traits};
    fig_traits_named(traits, "host");
}

static fig_status host_load(fig_run_device *device, fig_op op, const fig_family_choice *choice,
                            const void *params) {
    (void)device, (void)op, (void)choice, (void)params;
    return FIG_OK;
}

static int host_compiled(const fig_run_device *device, uint32_t index, fig_image_compiled *code) {
    (void)device, (void)index;
    *code = (fig_image_compiled){.driver = 0};
    return 0;
}

static fig_status host_begin(const fig_run_device *device, void *stream) {
    (void)device;
    if (stream == NULL) return FIG_OK;
    return fig_fail(FIG_INVALID, "run: stream is %p, it must be NULL on the host", stream);
}

static fig_status host_prepare(const fig_run_device *device, const fig_family_choice *choice,
                               fig_run_launch *launch) {
    (void)device, (void)choice;
    launch->kernel = NULL;
    return FIG_OK;
}

static fig_status host_launch(const fig_run_device *device, const fig_run_launch *launch,
                              void *stream) {
    const uint32_t *grid = launch->shape.grid;
    (void)device, (void)stream;
    for (uint32_t z = 0; z < grid[2]; z++)
        for (uint32_t y = 0; y < grid[1]; y++)
            for (uint32_t x = 0; x < grid[0]; x++)
                fig_kernel_table[launch->op].reference(launch->params, (uint32_t[3]){x, y, z});
    return FIG_OK;
}

static fig_status host_end(const fig_run_device *device, fig_status status) {
    (void)device;
    return status;
}

const fig_run_device_api fig_run_device_host = {
    .kind = FIG_DEVICE_HOST,
    .open = host_open,
    .close = host_close,
    .read_traits = host_read_traits,
    .read_kernel_traits = host_read_traits,
    .load = host_load,
    .compiled = host_compiled,
    .begin = host_begin,
    .prepare = host_prepare,
    .launch = host_launch,
    .end = host_end,
};
