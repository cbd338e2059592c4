/* run_device.h: the seam between a runner and the device that it runs on.
 *
 * The functions open, load and close are cold. A run calls begin, prepare, launch and end. Any
 * number of threads may run at once. A run never allocates, loads or waits, so its stream may be
 * capturing. Invariant: a run does not change the device, and a launch that was prepared once may
 * be launched any number of times. */
#ifndef FIG_ENGINE_RUN_DEVICE_H
#define FIG_ENGINE_RUN_DEVICE_H

#include "include/figraph_runner.h"
#include "include/figraph_unstable.h"
#include "kernels/table/families.h"
#include "kernels/table/images.h"

typedef struct fig_run_device fig_run_device;

typedef struct fig_run_launch {
    fig_op op;
    fig_launch_shape shape;
    uint8_t *params; /* 64-byte aligned */
    int is_plain;    /* 1: the launch begins only after the preceding work has ended */
    void *kernel;    /* set by prepare; only the device interprets it */
} fig_run_launch;

typedef struct fig_run_device_api {
    fig_device kind;
    /* Opens the device. The caller has already chosen between the host and a GPU. */
    fig_status (*open)(fig_run_device **device, const fig_runner_options *options);
    void (*close)(fig_run_device *device); /* accepts NULL */
    void (*read_traits)(const fig_run_device *device, fig_traits *traits);
    void (*read_kernel_traits)(const fig_run_device *device, fig_traits *traits);
    /* Loads a kernel that a later run may need; compiles it if its family compiles scores. params:
     * those of such a run, of which a device reads the score alone. */
    fig_status (*load)(fig_run_device *device, fig_op op, const fig_family_choice *choice,
                       const void *params);
    /* Describes the code of loaded kernel `index`, from 0; the code lasts as long as the device.
     * Returns 0 past the last kernel; image.bytes is NULL if the kernel was not compiled. */
    int (*compiled)(const fig_run_device *device, uint32_t index, fig_image_compiled *code);

    fig_status (*begin)(const fig_run_device *device, void *stream);
    /* Sets launch->kernel and the params that only the device can make, such as tensor maps. */
    fig_status (*prepare)(const fig_run_device *device, const fig_family_choice *choice,
                          fig_run_launch *launch);
    fig_status (*launch)(const fig_run_device *device, const fig_run_launch *launch, void *stream);
    fig_status (*end)(const fig_run_device *device, fig_status status); /* returns `status` */
} fig_run_device_api;

extern const fig_run_device_api fig_run_device_host;
extern const fig_run_device_api fig_run_device_cuda;

#endif
