/* nothing.c: functions for TVM FFI, and a target for XLA, that do nothing.
 *
 * tests/gpu/jax_compare.py measures their time, the overhead of a call, and subtracts it from the
 * times of both libraries. */
#include "ffi/tvm/tvm.h"
#include "ffi/xla/xla.h"

#define EXPORT __attribute__((visibility("default")))
#define FUNCTION(name)                                                                             \
    EXPORT fig_tvm_function __tvm_ffi_##name;                                                      \
    int __tvm_ffi_##name(void *self, const fig_tvm_value *args, int32_t count,                     \
                         fig_tvm_value *result) {                                                  \
        (void)self, (void)args, (void)count, (void)result;                                         \
        return 0;                                                                                  \
    }
#define FUNCTIONS(X) X(silu_and_mul) X(apply_rope) X(run) X(apply_rope_jax) X(run_jax)
FUNCTIONS(FUNCTION)

EXPORT fig_xla_handler nothing;
fig_xla_error *nothing(fig_xla_frame *frame) {
    if (frame->extension == NULL || frame->extension->type != FIG_XLA_METADATA) return NULL;
    fig_xla_metadata *metadata = ((fig_xla_query *)(void *)frame->extension)->metadata;
    metadata->version.major = FIG_XLA_MAJOR;
    metadata->version.minor = FIG_XLA_MINOR;
    metadata->traits = FIG_XLA_COMMAND_BUFFER_COMPATIBLE;
    return NULL;
}
