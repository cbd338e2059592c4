/* status.h: how a fault becomes a status and a sentence.
 *
 * Owns the thread's last message; leaves printing to programs. Invariant: whoever returns a status
 * other than FIG_OK has called fig_fail(), once, where the fault was found. */
#ifndef FIG_PLANNER_STATUS_H
#define FIG_PLANNER_STATUS_H

#include "include/figraph.h"

/* Formats the sentence, one line without a full stop, and returns `status`. */
__attribute__((format(printf, 2, 3))) fig_status fig_fail(fig_status status, const char *format,
                                                          ...);

/* "%d row%s", for a sentence that counts. */
#define FIG_PLURAL(count) ((count) == 1 ? "" : "s")

/* Puts the sentence of a fault that another thread found into this thread's message. */
fig_status fig_status_relay(fig_status status, const char *sentence);

#define FIG_TRY(call)                                                                              \
    do {                                                                                           \
        fig_status fig_try_status_ = (call);                                                       \
        if (fig_try_status_ != FIG_OK) return fig_try_status_;                                     \
    } while (0)

/* Copies a public struct whose first field is its uint32_t size. The caller may be compiled against
 * another header: what it did not know reads as zero, and what we do not know must be zero. Ours
 * always gets our size; it is all zero otherwise where `theirs` is NULL or refused. `name` is the
 * struct's, for the sentence. */
fig_status fig_status_take_options(void *ours, size_t ours_bytes, const void *theirs,
                                   const char *name);

/* A size past this is no struct's but what stood in memory that the caller never set: the largest
 * public struct has a quarter of it. */
enum { FIG_STATUS_SIZE_LIMIT = 1 << 14 };

/* The other way: fills the caller's struct, its size set, as far as the caller knows it; zeros
 * where it knows more. FIG_INVALID: the size is none, and nothing is written. */
fig_status fig_status_give(void *theirs, const void *ours, size_t ours_bytes, const char *name);

#endif
