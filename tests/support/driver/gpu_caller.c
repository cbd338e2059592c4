/* gpu_caller.c: see gpu_caller.h. */
#include "tests/support/driver/gpu_caller.h"

fig_caller fig_gpu_caller;

int fig_gpu_caller_set_up(void **state) {
    (void)state;
    return fig_caller_open(&fig_gpu_caller);
}

int fig_gpu_caller_tear_down(void **state) {
    (void)state;
    return fig_caller_close(&fig_gpu_caller);
}
