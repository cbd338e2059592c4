/* gpu_caller.h: the caller that a program of tests/gpu plays, and helpers for it.
 *
 * A program has one caller. Invariant: set_up and tear_down are the CMocka group's own, or its own
 * functions call them. */
#ifndef FIG_TESTS_SUPPORT_GPU_CALLER_H
#define FIG_TESTS_SUPPORT_GPU_CALLER_H

#include "tests/support/driver/caller.h"

extern fig_caller fig_gpu_caller;
int fig_gpu_caller_set_up(void **state);
int fig_gpu_caller_tear_down(void **state);

/* Call the driver, or the library. The test fails if the call fails. */
#define CU(name, ...) FIG_CALLER_TRY(&fig_gpu_caller, name, __VA_ARGS__)
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != FIG_OK) fail_msg("%s", fig_message());                                       \
    } while (0)

#endif
