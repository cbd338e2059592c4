/* run_device.h: the seam of runs. What a runner asks of the machine it runs on.
 *
 * open, load and close are cold. begin, prepare, launch and end are a run: any number of threads
 * may be there at once, nothing is allocated, loaded or waited for, so that a device may be
 * capturing. Invariant: what these are given of the device stays as it is, and a launch that was
 * prepared once may be launched any number of times. */
#ifndef FIG_ENGINE_RUN_DEVICE_H
#define FIG_ENGINE_RUN_DEVICE_H

#include "include/figraph_runner.h"
#include "include/figraph_unstable.h"
#include "kernels/families.h"

typedef struct fig_run_device fig_run_device;

typedef struct fig_run_launch {
    fig_op op;
    fig_launch_shape shape;
    uint8_t *params; /* 64-byte aligned */
    void *kernel;    /* prepare's: the device's own */
} fig_run_launch;

typedef struct fig_run_device_api {
    fig_device kind;
    /* Whoever opens has chosen the kind. */
    fig_status (*open)(fig_run_device **device, const fig_runner_options *options);
    void (*close)(fig_run_device *device); /* NULL is nothing */
    void (*read_traits)(const fig_run_device *device, fig_traits *traits);
    void (*read_kernel_traits)(const fig_run_device *device, fig_traits *traits);
    /* A launch of a run may need this kernel. */
    fig_status (*load)(fig_run_device *device, fig_op op, const fig_family_choice *choice);

    fig_status (*begin)(const fig_run_device *device, void *stream);
    /* Sets the kernel, and in the params what the device makes, such as tensor maps. */
    fig_status (*prepare)(const fig_run_device *device, const fig_family_choice *choice,
                          fig_run_launch *launch);
    fig_status (*launch)(const fig_run_device *device, const fig_run_launch *launch, void *stream);
    fig_status (*end)(const fig_run_device *device, fig_status status); /* returns `status` */
} fig_run_device_api;

extern const fig_run_device_api fig_run_device_host;
extern const fig_run_device_api fig_run_device_cuda;

#endif
