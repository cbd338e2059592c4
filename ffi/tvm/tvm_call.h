/* tvm_call.h: reads the arguments of one TVM FFI call, in their order.
 *
 * Errors are sticky: the call keeps the error of the first wrong argument, later reads return
 * zeros, and fig_tvm_call_finish() raises the error. Invariant: all arrays of a call are on the
 * device of the first one, and the call runs there. */
#ifndef FIG_FFI_TVM_CALL_H
#define FIG_FFI_TVM_CALL_H

#include "ffi/array.h"
#include "ffi/tvm/tvm.h"

typedef struct fig_tvm_call {
    const char *name; /* "silu_and_mul" */
    const fig_tvm_value *args;
    int32_t count, next;
    void *const *stream; /* NULL: the stream that TVM FFI's environment has for the device */
    fig_status status;
    fig_array first; /* the first array of the call; absent until it is read */
} fig_tvm_call;

/* Begins a call whose name, args, count and stream are filled in. parameters: the names as in
 * Python, "out, input[, enable_pdl]". The call must have one argument per name, but may leave out
 * arguments after the bracket. */
void fig_tvm_call_begin(fig_tvm_call *call, const char *parameters);
void fig_tvm_call_array(fig_tvm_call *call, const char *name, fig_array *array);
/* Reads an optional array; None and an array whose first dim is 0 count as left out. */
void fig_tvm_call_option(fig_tvm_call *call, const char *name, fig_array *array);
/* integer also accepts bools; real also accepts integers and bools. integer_or returns `otherwise`
 * if the argument is None or was left out. */
int64_t fig_tvm_call_integer(fig_tvm_call *call, const char *name);
int64_t fig_tvm_call_integer_or(fig_tvm_call *call, const char *name, int64_t otherwise);
double fig_tvm_call_real(fig_tvm_call *call, const char *name);
/* Reads the number of a dtype of q or of a cache. */
fig_dtype fig_tvm_call_dtype(fig_tvm_call *call, const char *name);
void fig_tvm_call_skip(fig_tvm_call *call); /* skips an argument of any type */

/* Returns the stream of the call, on its device; NULL is the default stream. */
void *fig_tvm_call_stream(const fig_tvm_call *call);
/* Returns 0, or raises the thread's last message as a Python error and returns -1. */
int fig_tvm_call_finish(const fig_tvm_call *call, fig_status status);

#endif
