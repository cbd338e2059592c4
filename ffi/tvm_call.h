/* tvm_call.h: reads the arguments of one TVM FFI call, in their order.
 *
 * Sticky: the first argument that is wrong is kept with its sentence, and later reads give zeros.
 * What is raised, is raised by finish. Invariant: arrays of one call lie on one device, the first
 * one's, and the call runs there. */
#ifndef FIG_FFI_TVM_CALL_H
#define FIG_FFI_TVM_CALL_H

#include "ffi/array.h"
#include "ffi/tvm.h"

typedef struct fig_tvm_call {
    const char *name; /* "silu_and_mul" */
    const fig_tvm_value *args;
    int32_t count, next;
    void *const *stream; /* NULL: that of the caller's environment */
    fig_status status;
    fig_array first; /* array of the call; absent so far */
} fig_tvm_call;

/* Of a call whose name, arguments and stream are filled in. parameters: their names as in Python,
 * "out, input, enable_pdl", which count as many as asked. */
void fig_tvm_call_begin(fig_tvm_call *call, const char *parameters);
void fig_tvm_call_array(fig_tvm_call *call, const char *name, fig_array *array);
/* None, and an array whose first dim is 0, is left out. */
void fig_tvm_call_option(fig_tvm_call *call, const char *name, fig_array *array);
/* A bool is an integer, and both are a real. */
int64_t fig_tvm_call_integer(fig_tvm_call *call, const char *name);
double fig_tvm_call_real(fig_tvm_call *call, const char *name);
void fig_tvm_call_skip(fig_tvm_call *call); /* whatever it is */

/* The stream of the call, on its device; NULL is the default stream. */
void *fig_tvm_call_stream(const fig_tvm_call *call);
/* 0, or -1 with the thread's last message raised as a Python error. */
int fig_tvm_call_finish(const fig_tvm_call *call, fig_status status);

#endif
