/* failure.h: keeps the status and the message of something that could not be shown.
 *
 * The library keeps the messages of its own calls; fig_failure_of_library() copies such a message
 * here. Invariant: the message is that of the last failure, in this program or in the library. */
#ifndef FIG_TOOLS_FAILURE_H
#define FIG_TOOLS_FAILURE_H

#include <figraph.h>

/* Keeps the message and returns the status. */
__attribute__((format(printf, 2, 3))) fig_status fig_failure(fig_status status, const char *format,
                                                             ...);
/* Takes the status of a library call and, if the call failed, keeps the library's message. */
fig_status fig_failure_of_library(fig_status status);
const char *fig_failure_message(void);

#define FIG_FAILURE_TRY(call)                                                                      \
    do {                                                                                           \
        const fig_status failure_status = (call);                                                  \
        if (failure_status != FIG_OK) return failure_status;                                       \
    } while (0)

#endif
