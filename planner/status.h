/* status.h: turns a failure into a status and a sentence.
 *
 * Owns the thread's last message; leaves printing to programs. Invariant: for every returned status
 * other than FIG_OK, fig_fail() was called once, where the failure was found. */
#ifndef FIG_PLANNER_STATUS_H
#define FIG_PLANNER_STATUS_H

#include "include/figraph.h"

/* Formats the message, one line without a full stop, and returns `status`. */
__attribute__((format(printf, 2, 3))) fig_status fig_fail(fig_status status, const char *format,
                                                          ...);

/* Expands to the plural ending, for a message such as "%d row%s". */
#define FIG_PLURAL(count) ((count) == 1 ? "" : "s")

/* Sets this thread's message to the sentence of a failure in another thread. */
fig_status fig_status_relay(fig_status status, const char *sentence);

/* The library checks its own invariants in two ways. An assert states an assumption of a function;
 * only debug and sanitizer builds check it, so a release library never ends the process.
 * FIG_TRY_OURS is checked in every build. It guards places where continuing would read or launch
 * something that does not exist: the call fails with FIG_FAULT and the given message, and the
 * caller can still close the object. */
#define FIG_TRY_OURS(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) return fig_status_own_fault(__VA_ARGS__);                                \
    } while (0)

/* Returns FIG_FAULT. The message is "a fault of libfigraph's own: " followed by the formatted
 * sentence. */
__attribute__((format(printf, 1, 2))) fig_status fig_status_own_fault(const char *format, ...);

#define FIG_TRY(call)                                                                              \
    do {                                                                                           \
        fig_status fig_try_status_ = (call);                                                       \
        if (fig_try_status_ != FIG_OK) return fig_try_status_;                                     \
    } while (0)

/* Copies a public struct whose first field is its uint32_t size. The caller may be compiled against
 * another version of the header: fields that the caller's header lacks are set to zero, and fields
 * that this library does not know must be zero. *ours always gets this library's size; its other
 * fields are all zero if `theirs` is NULL or refused. `name` is the struct's name, for the
 * message. */
fig_status fig_status_take_options(void *ours, size_t ours_bytes, const void *theirs,
                                   const char *name);

/* A larger size cannot belong to a public struct: the caller has left the size uninitialised. The
 * largest public struct has a quarter of this limit. */
enum { FIG_STATUS_SIZE_LIMIT = 1 << 14 };

/* Does the opposite of fig_status_take_options(): fills the caller's struct, whose size field is
 * set, with the fields that the caller's header knows. Fields that only the caller knows become
 * zero. Fails with FIG_INVALID and writes nothing if the size cannot belong to such a struct. */
fig_status fig_status_give(void *theirs, const void *ours, size_t ours_bytes, const char *name);

#endif
