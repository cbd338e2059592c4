/* gpu_caller.h: the caller that a test of tests/gpu is, with what such tests do over and over.
 *
 * A program has one. Invariant: set_up and tear_down are a CMocka group's, or are called by it. */
#ifndef FIG_TESTS_SUPPORT_GPU_CALLER_H
#define FIG_TESTS_SUPPORT_GPU_CALLER_H

#include "tests/support/caller.h"

extern fig_caller fig_gpu_caller;
int fig_gpu_caller_set_up(void **state);
int fig_gpu_caller_tear_down(void **state);

/* A call to the driver, and one to the library: the test fails where it does. */
#define CU(name, ...) FIG_CALLER_TRY(&fig_gpu_caller, name, __VA_ARGS__)
#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != FIG_OK) fail_msg("%s", fig_message());                                       \
    } while (0)

#endif
