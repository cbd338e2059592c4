/* xla_host.h: plays XLA to a handler: call frames, a table of functions, errors.
 *
 * A test adds a call's arguments one by one and then makes the call. Invariant: everything that a
 * handler creates is destroyed here. The frame is rebuilt for every call, so asan notices a handler
 * that keeps a pointer into a frame. */
#ifndef FIG_TESTS_SUPPORT_XLA_HOST_H
#define FIG_TESTS_SUPPORT_XLA_HOST_H

#include "ffi/xla/xla.h"

enum { FIG_XLA_HOST_LIMIT = 24, FIG_XLA_HOST_RANK = 10, FIG_XLA_HOST_TEXT = 1024 };

typedef struct fig_xla_host_array {
    int kind; /* FIG_XLA_BUFFER, unless a test makes it invalid */
    fig_xla_buffer buffer;
    int64_t dims[FIG_XLA_HOST_RANK];
} fig_xla_host_array;

typedef struct fig_xla_host_attribute {
    const char *name;
    int kind, type;
    int64_t integer;
    double real;
    float narrow;
    const char *text;
} fig_xla_host_attribute;

typedef struct fig_xla_host {
    fig_xla_api api;
    fig_xla_handler *handler;
    int stage;
    fig_xla_host_array args[FIG_XLA_HOST_LIMIT], rets[FIG_XLA_HOST_LIMIT];
    fig_xla_host_attribute attributes[FIG_XLA_HOST_LIMIT];
    int arg_count, ret_count, attribute_count;
    void *stream;     /* NULL: XLA:CPU, which has no stream */
    int32_t ordinal;  /* below 0: the runtime is too old to report the ordinal */
    int errors_alive; /* errors that were created and are not destroyed yet */
    int code;         /* the last call's error code; 0: it succeeded */
    char message[FIG_XLA_HOST_TEXT];
} fig_xla_host;

/* Begins a call of `handler` in the execute stage, on a CPU. */
void fig_xla_host_init(fig_xla_host *host, fig_xla_handler *handler);
/* Returns the handler of one of this library's targets, by the names under which Python registers
 * it. */
fig_xla_handler *fig_xla_host_find(const char *target, const char *platform);

void fig_xla_host_arg(fig_xla_host *host, fig_xla_type type, void *data, int rank,
                      const int64_t *dims);
void fig_xla_host_ret(fig_xla_host *host, fig_xla_type type, void *data, int rank,
                      const int64_t *dims);
void fig_xla_host_integer(fig_xla_host *host, const char *name, int64_t value);
void fig_xla_host_real(fig_xla_host *host, const char *name, double value);
void fig_xla_host_text(fig_xla_host *host, const char *name, const char *text);
#define FIG_XLA_HOST_DIMS(...)                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                       \
        __VA_ARGS__                                                                                \
    }

/* Calls the handler, and sets code and message. */
void fig_xla_host_call(fig_xla_host *host);

#endif
