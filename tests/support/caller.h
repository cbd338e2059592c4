/* caller.h: a test as a caller of the library that uses GPU 0 itself: with the GPU's context
 * current on its thread, and a stream of its own.
 *
 * Owns nothing of the library's. Invariant: what was entered is left, so that a thread's stack of
 * contexts is what it was. */
#ifndef FIG_TESTS_SUPPORT_CALLER_H
#define FIG_TESTS_SUPPORT_CALLER_H

#include <figraph.h>

#include "engine/cuda/cuda_api.h"

typedef struct fig_caller {
    const fig_cuda_api *cu;
    fig_cu_device device;
    fig_cu_context context;
    fig_cu_stream stream; /* NULL: the caller was not opened */
} fig_caller;

/* 0: done, so that a group's set-up and tear-down may return it. close takes a zeroed struct and a
 * half-open one, which it answers with 1. */
int fig_caller_open(fig_caller *caller);
int fig_caller_close(fig_caller *caller);

/* For a moment, without a stream: the context alone. 0: done, and to be left. */
int fig_caller_enter(fig_caller *caller);
void fig_caller_leave(fig_caller *caller);
/* How much memory nobody has on the GPU; below 0: the driver does not say. */
int64_t fig_caller_free_bytes(void);

/* Every tensor that is to be bound, over the engine's own memory for 256 rows or 16 of others. */
fig_status fig_caller_bind_all(fig_engine *engine, const fig_graphs *graphs);

/* A call of the caller's to the driver, which fails the test where it fails. */
#define FIG_CALLER_TRY(caller, name, ...)                                                          \
    do {                                                                                           \
        const fig_cu_result fig_caller_result_ = (caller)->cu->name(__VA_ARGS__);                  \
        if (fig_caller_result_ != FIG_CU_SUCCESS) fail_msg("cu" #name ": %u", fig_caller_result_); \
    } while (0)

#endif
