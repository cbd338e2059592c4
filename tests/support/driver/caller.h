/* caller.h: plays a caller of the library that uses GPU 0 itself. The GPU's context is current on
 * its thread, and it has a stream of its own.
 *
 * Owns nothing of the library. Invariant: every context that it enters is left again, so the
 * thread's stack of contexts ends as it began. */
#ifndef FIG_TESTS_SUPPORT_CALLER_H
#define FIG_TESTS_SUPPORT_CALLER_H

#include <figraph.h>

#include "engine/driver/cuda_api.h"

typedef struct fig_caller {
    const fig_cuda_api *cu;
    fig_cu_device device;
    fig_cu_context context;
    fig_cu_stream stream; /* NULL: fig_caller_open() was not called */
} fig_caller;

/* Both return 0 on success, so that they can be the set-up and tear-down of a group. close also
 * accepts a zeroed or half-open struct, and then returns 1. */
int fig_caller_open(fig_caller *caller);
int fig_caller_close(fig_caller *caller);

/* Makes the context current without making a stream. Returns 0 on success; the caller must then
 * leave the context again. */
int fig_caller_enter(fig_caller *caller);
void fig_caller_leave(fig_caller *caller);
/* Returns the free bytes of the GPU. A negative number: the driver does not report them. */
int64_t fig_caller_free_bytes(void);

/* Binds every tensor that must be bound to the engine's own memory. The memory has room for 256
 * rows or, if the first dim does not count rows, for 16. */
fig_status fig_caller_bind_all(fig_engine *engine, const fig_graphs *graphs);

/* Calls the driver as the caller does, and fails the test if the call fails. */
#define FIG_CALLER_TRY(caller, name, ...)                                                          \
    do {                                                                                           \
        const fig_cu_result fig_caller_result_ = (caller)->cu->name(__VA_ARGS__);                  \
        if (fig_caller_result_ != FIG_CU_SUCCESS) fail_msg("cu" #name ": %u", fig_caller_result_); \
    } while (0)

#endif
