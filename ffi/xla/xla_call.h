/* xla_call.h: reads arguments, results and attributes of one XLA FFI call.
 *
 * Errors are sticky: the call keeps the first wrong value with its message, and later reads return
 * zeros. Arguments and results are read in order, attributes by name. fig_xla_call_end() fails if
 * values were not read, so a misspelt attribute is an error and not a silent default. Invariant:
 * nothing here reads the memory of a buffer. */
#ifndef FIG_FFI_XLA_CALL_H
#define FIG_FFI_XLA_CALL_H

#include "ffi/array.h"
#include "ffi/xla/xla.h"

enum { FIG_XLA_CALL_ATTRIBUTE_LIMIT = 64 };

typedef struct fig_xla_call {
    const char *name; /* "figraph.silu_and_mul" */
    const fig_xla_frame *frame;
    fig_device device;
    int32_t ordinal;
    int64_t next_arg, next_ret;
    uint64_t asked; /* bit i: attribute i was read */
    fig_status status;
} fig_xla_call;

/* If the frame is a query, answers it and returns 1. Returns 0 if the frame is a call. */
int fig_xla_call_answer(const fig_xla_frame *frame);

void fig_xla_call_begin(fig_xla_call *call, const fig_xla_frame *frame, fig_device device);
void fig_xla_call_argument(fig_xla_call *call, const char *name, fig_array *array);
void fig_xla_call_result(fig_xla_call *call, const char *name, fig_array *array);
/* Read an optional argument or result. It counts as left out if its first dim is 0, or if the call
 * has no further arguments or results. */
void fig_xla_call_option(fig_xla_call *call, const char *name, fig_array *array);
void fig_xla_call_optional_result(fig_xla_call *call, const char *name, fig_array *array);
/* Reads a result that aliases an argument, and checks that it shares the memory of `array`. */
void fig_xla_call_alias(fig_xla_call *call, const char *name, const fig_array *array);

/* Read an attribute, or return `otherwise` if it is absent. integer accepts all integer types and
 * bool; real also accepts f16 to f64. */
int64_t fig_xla_call_integer(fig_xla_call *call, const char *name, int64_t otherwise);
double fig_xla_call_real(fig_xla_call *call, const char *name, double otherwise);
/* Sets the call's error to FIG_INVALID if this attribute, which has no default, is absent. */
void fig_xla_call_need(fig_xla_call *call, const char *name);

/* Fails if an argument, result or attribute was not read. */
fig_status fig_xla_call_end(fig_xla_call *call);
/* Gets the call's stream; NULL on the host. */
fig_status fig_xla_call_stream(const fig_xla_call *call, void **stream);
/* Returns NULL, or the thread's last message as an XLA error. */
fig_xla_error *fig_xla_call_finish(const fig_xla_call *call, fig_status status);

#endif
