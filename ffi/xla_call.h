/* xla_call.h: reads arguments, results and attributes of one XLA FFI call.
 *
 * Sticky: the first that is wrong is kept with its sentence, and later reads give zeros. Arguments
 * and results come in their order, attributes by name; what nobody asked for is refused in the end,
 * so that a misspelt attribute is no default. Invariant: memory is looked at by nobody here. */
#ifndef FIG_FFI_XLA_CALL_H
#define FIG_FFI_XLA_CALL_H

#include "ffi/array.h"
#include "ffi/xla.h"

enum { FIG_XLA_CALL_ATTRIBUTE_LIMIT = 64 };

typedef struct fig_xla_call {
    const char *name; /* "figraph.silu_and_mul" */
    const fig_xla_frame *frame;
    fig_device device;
    int32_t ordinal;
    int64_t next_arg, next_ret;
    uint64_t asked; /* bit i: attribute i was */
    fig_status status;
} fig_xla_call;

/* 1: the frame was a query, which is answered: no call. */
int fig_xla_call_answer(const fig_xla_frame *frame);

void fig_xla_call_begin(fig_xla_call *call, const fig_xla_frame *frame, fig_device device);
void fig_xla_call_argument(fig_xla_call *call, const char *name, fig_array *array);
void fig_xla_call_result(fig_xla_call *call, const char *name, fig_array *array);
/* Where the first dim is 0 it is left out; so are those behind the last. */
void fig_xla_call_option(fig_xla_call *call, const char *name, fig_array *array);
void fig_xla_call_optional_result(fig_xla_call *call, const char *name, fig_array *array);
/* A result that is an argument: `array` is what the argument was, and both are one memory. */
void fig_xla_call_alias(fig_xla_call *call, const char *name, const fig_array *array);

/* Of any type of integer or bool; real takes those and f16 to f64. Absent: `otherwise`. */
int64_t fig_xla_call_integer(fig_xla_call *call, const char *name, int64_t otherwise);
double fig_xla_call_real(fig_xla_call *call, const char *name, double otherwise);
/* FIG_INVALID where an attribute that has no default is absent. */
void fig_xla_call_need(fig_xla_call *call, const char *name);

/* What nobody asked for is refused. */
fig_status fig_xla_call_end(fig_xla_call *call);
/* The stream; FIG_OK and NULL on the host. */
fig_status fig_xla_call_stream(const fig_xla_call *call, void **stream);
/* NULL, or the thread's last message as an error of XLA's. */
fig_xla_error *fig_xla_call_finish(const fig_xla_call *call, fig_status status);

#endif
